package workload

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// +kubebuilder:rbac:groups=resource.k8s.io,resources=resourceclaimtemplates,verbs=get

// templateLifetime is the time for which a ResourceClaimTemplate is not read again. Its claim never
// changes, but it can be deleted and created again.
const templateLifetime = time.Minute

// claimTemplates are the claims of ResourceClaimTemplates that were read. The zero value is ready.
type claimTemplates struct {
	mu      sync.Mutex
	entries map[types.NamespacedName]templateEntry
}

type templateEntry struct {
	claim  *resourcev1.ResourceClaimSpec // nil if the template does not exist
	readAt time.Time
}

// get returns the claim of a template, or nil if the template does not exist or if the hub has no
// such API.
func (c *claimTemplates) get(ctx context.Context, reader client.Reader, key types.NamespacedName, now time.Time) (*resourcev1.ResourceClaimSpec, error) {
	c.mu.Lock()
	e, ok := c.entries[key]
	c.mu.Unlock()
	if ok && now.Sub(e.readAt) < templateLifetime {
		return e.claim, nil
	}
	e = templateEntry{readAt: now}
	template := &resourcev1.ResourceClaimTemplate{}
	err := reader.Get(ctx, key, template)
	switch {
	case err == nil:
		e.claim = &template.Spec.Spec
	case client.IgnoreNotFound(err) != nil && !apimeta.IsNoMatchError(err):
		return nil, fmt.Errorf("read ResourceClaimTemplate %s: %w", key, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries == nil {
		c.entries = map[types.NamespacedName]templateEntry{}
	}
	maps.DeleteFunc(c.entries, func(_ types.NamespacedName, old templateEntry) bool { return now.Sub(old.readAt) >= templateLifetime })
	c.entries[key] = e
	return e.claim, nil
}

// observeClaimTemplates reads the ResourceClaimTemplates of the workload's pods, if the gate's fit
// query reads shares. An error ends the reconciliation: without the template, the pods would count
// as pods with unused devices.
func (r *Reconciler) observeClaimTemplates(ctx context.Context, s *lifecycle.Situation) error {
	if !shape.OptionsOf(&s.Gate.Spec, nil).Shares {
		return nil
	}
	s.Request.ClaimTemplates = map[string]*resourcev1.ResourceClaimSpec{}
	for i := range s.Workload.Spec.PodSets {
		for _, name := range shape.ClaimTemplates(&s.Workload.Spec.PodSets[i].Template.Spec) {
			claim, err := r.claimTemplates.get(ctx, r.live, types.NamespacedName{Namespace: s.Key.Namespace, Name: name}, s.Now)
			if err != nil {
				return err
			}
			s.Request.ClaimTemplates[name] = claim
		}
	}
	return nil
}
