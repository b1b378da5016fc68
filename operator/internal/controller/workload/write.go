package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/gate"
)

const (
	// checkOwner is the field manager of our own check entry and annotation.
	checkOwner = client.FieldOwner("plimsoll-gate")
	// admissionOwner is Kueue's manager of admission. A nomination has to be
	// written as it: from any other manager Kueue could not clear it again.
	admissionOwner = client.FieldOwner("kueue-admission")
	// dispatchOwner writes nominations where config/nomination's policy clears them.
	dispatchOwner = client.FieldOwner("plimsoll-dispatch")
)

// messageCost bounds the messages of a gate's waiting workloads to 100 a second.
const messageCost = 10 * time.Millisecond

// writeCheck writes a decision to the workload's check if it changes anything,
// after what must outlive an eviction, and then an event on a transition.
func (r *Reconciler) writeCheck(ctx context.Context, s *subject, d gate.Decision, dispatch gate.Dispatch) error {
	old := *s.check()
	if string(old.State) == string(d.State) && (old.Message == d.Message || d.State == gate.Ready) {
		return nil
	}
	// Numbers change with nearly every job; many that wait don't all say so each time.
	every := time.Duration(r.board.Waiting(s.gateName)) * messageCost
	if string(old.State) == string(d.State) && !r.tracks.says(s.wl.UID, d.Reason, every, r.now()) {
		return nil
	}
	if d.State == gate.Retry {
		return r.yield(ctx, s, d, dispatch)
	}
	if d.State == gate.Ready && s.mk == "" {
		if _, err := r.annotate(ctx, s.wl, dispatch.Begin(d.Order[:1], d.Message, r.now())); err != nil {
			return err
		}
	}
	if err := r.applyChecks(ctx, s, d); err != nil {
		return err
	}
	transition := string(old.State) != string(d.State) || r.tracks.reason(s.wl.UID) != d.Reason
	r.tracks.setReason(s.wl.UID, d.Reason)
	if transition {
		r.event(s.wl, d.State == gate.Rejected, d.Reason, d.Message)
	}
	if d.State == gate.Ready {
		r.metrics.ready(s.gateName, s.wl, r.now())
	}
	return nil
}

// applyChecks writes our entries by server-side apply, with the resourceVersion
// that was decided upon: a conflict means that the decision is out of date. The
// apply takes their fields over from Kueue, which set them up. Entries of ours
// that it leaves out would vanish, so that they are written together.
func (r *Reconciler) applyChecks(ctx context.Context, s *subject, d gate.Decision) error {
	next := map[*kueue.AdmissionCheckState]kueue.AdmissionCheckState{}
	var entries []any
	for _, name := range s.own {
		current := gate.FindCheck(s.wl, name)
		entry := *current
		if string(current.State) != string(d.State) {
			entry.LastTransitionTime = metav1.NewTime(r.now())
		}
		entry.State, entry.Message = kueue.CheckState(d.State), d.Message
		entry.PodSetUpdates = nil
		if d.State == gate.Ready {
			entry.PodSetUpdates = s.updates
		}
		fields, err := applied(entry)
		if err != nil {
			return err
		}
		next[current], entries = entry, append(entries, fields)
	}
	u := bare(s.wl, s.wl.ResourceVersion)
	u.Object["status"] = map[string]any{"admissionChecks": entries}
	if err := r.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), checkOwner, client.ForceOwnership); err != nil {
		return fmt.Errorf("write check %s: %w", strings.Join(s.own, ", "), err)
	}
	s.wl.ResourceVersion = u.GetResourceVersion()
	for current, entry := range next {
		*current = entry
	}
	return nil
}

// applied are the fields of an entry that are ours.
func applied(entry kueue.AdmissionCheckState) (map[string]any, error) {
	fields := map[string]any{
		"name": string(entry.Name), "state": string(entry.State), "message": entry.Message,
		"lastTransitionTime": entry.LastTransitionTime.UTC().Format(time.RFC3339),
	}
	if len(entry.PodSetUpdates) == 0 {
		return fields, nil
	}
	updates, err := unstructuredUpdates(entry.PodSetUpdates)
	fields["podSetUpdates"] = updates
	return fields, err
}

// bare workload: what an apply needs to find it.
func bare(wl client.Object, resourceVersion string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(kueue.SchemeGroupVersion.WithKind("Workload"))
	u.SetNamespace(wl.GetNamespace())
	u.SetName(wl.GetName())
	u.SetResourceVersion(resourceVersion)
	return u
}

// annotate the workload and return it as the apiserver has it now, with its
// managedFields.
func (r *Reconciler) annotate(ctx context.Context, wl *kueue.Workload, d gate.Dispatch) (*unstructured.Unstructured, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": wl.ResourceVersion,
		"annotations":     map[string]string{v1alpha1.DispatchAnnotation: d.Encode()},
	}})
	if err != nil {
		return nil, err
	}
	u := bare(wl, "")
	if err := r.client.Patch(ctx, u, client.RawPatch(types.MergePatchType, patch), checkOwner); err != nil {
		return nil, fmt.Errorf("write annotation %s: %w", v1alpha1.DispatchAnnotation, err)
	}
	wl.ResourceVersion, wl.Annotations = u.GetResourceVersion(), u.GetAnnotations()
	r.tracks.writes(wl.UID, d.Attempt, r.now())
	return u, nil
}

// errMoved says that the workload is no longer as it was decided upon.
var errMoved = errors.New("the workload changed since the decision")

// write a nomination: the annotation first (nil = none), then the list of
// clusters, on the state that the apiserver has now. A conflict drops it.
func (r *Reconciler) write(ctx context.Context, s *subject, clusters []string, d *gate.Dispatch, reason, message string) error {
	var live *unstructured.Unstructured
	var err error
	if d != nil {
		live, err = r.annotate(ctx, s.wl, *d)
	} else {
		live = bare(s.wl, "")
		err = r.live.Get(ctx, s.key(), live)
	}
	if err != nil {
		return err
	}
	now := &kueue.Workload{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, now); err != nil {
		return fmt.Errorf("read workload: %w", err)
	}
	if !gate.MayNominate(now, s.mk, r.now()) || !slices.Equal(now.Status.NominatedClusterNames, s.wl.Status.NominatedClusterNames) {
		return apierrors.NewConflict(schema.GroupResource{Group: kueue.SchemeGroupVersion.Group, Resource: "workloads"}, s.wl.Name, errMoved)
	}
	u, err := nomination(live, clusters)
	owner := admissionOwner
	if r.ownNominations {
		u, owner = bare(live, live.GetResourceVersion()), dispatchOwner
		err = unstructured.SetNestedStringSlice(u.Object, clusters, "status", "nominatedClusterNames")
	}
	if err != nil {
		return err
	}
	if err := r.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), owner, client.ForceOwnership); err != nil {
		return fmt.Errorf("nominate: %w", err)
	}
	added := slices.DeleteFunc(slices.Clone(clusters), func(c string) bool { return slices.Contains(s.wl.Status.NominatedClusterNames, c) })
	r.metrics.nominated(added, reason)
	r.event(s.wl, false, reason, gate.Truncate(fmt.Sprintf("%v: %s", clusters, message)))
	return nil
}
