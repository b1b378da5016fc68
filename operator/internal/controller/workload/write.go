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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/timing"
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

// writeCheck writes a decision to the workload's check if it changes anything,
// after what must outlive an eviction, and then an event on a transition.
func (r *Reconciler) writeCheck(ctx context.Context, s *subject, d gate.Decision, record dispatch.Record) error {
	old := *s.check()
	if string(old.State) == string(d.State) && (old.Message == d.Message || d.State == gate.Ready) {
		return nil
	}
	// Numbers change with nearly every job; many that wait don't all say so each time.
	every := time.Duration(r.board.TotalWaiting()) * timing.MessageInterval
	transition := string(old.State) != string(d.State) || r.tracks.reason(s.wl.UID) != d.Reason
	if !r.tracks.says(s.wl.UID, sort(d), every, r.now()) && !transition && old.Message != "" {
		return nil
	}
	if d.State == gate.Retry {
		return r.yield(ctx, s, d, record)
	}
	if d.State == gate.Ready && (s.mk == "" || !r.nominate) && record.Encode() != (dispatch.Record{}).Encode() {
		// What is kept of the time without a place ends here; elsewhere our nomination ends it.
		if _, err := r.annotate(ctx, s.wl, dispatch.Record{}); err != nil {
			return err
		}
	}
	if err := r.writeChecks(ctx, s, d); err != nil {
		return err
	}
	r.tracks.setReason(s.wl.UID, d.Reason)
	if transition {
		r.event(s.wl, d.State == gate.Rejected, d.Reason, d.Message)
	}
	if d.State == gate.Ready {
		r.metrics.ready(s.gateName, r.tracks.heldFor(s.wl.UID, r.now()))
	}
	return nil
}

// sort of message: others of the same one differ in what was measured, no more.
func sort(d gate.Decision) string {
	switch {
	case d.Reason == gate.ReasonGateNotReady:
		return d.Message
	case d.Incomplete:
		return d.Reason + ", doubtful"
	}
	return d.Reason
}

// operation of a JSON patch, RFC 6902.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// writeChecks writes the fields of our entries that are ours, and nothing else, at
// the resourceVersion that was decided upon: a conflict means that the decision is
// out of date. A patch costs the apiserver a fraction of what an apply does.
func (r *Reconciler) writeChecks(ctx context.Context, s *subject, d gate.Decision) error {
	patch := []operation{{"replace", "/metadata/resourceVersion", s.wl.ResourceVersion}}
	for _, name := range s.own {
		i := slices.IndexFunc(s.wl.Status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool { return string(c.Name) == name })
		entry, at := s.wl.Status.AdmissionChecks[i], fmt.Sprintf("/status/admissionChecks/%d/", i)
		if string(entry.State) != string(d.State) {
			patch = append(patch, operation{"add", at + "state", d.State}, operation{"add", at + "lastTransitionTime", metav1.NewTime(r.now())})
		}
		patch = append(patch, operation{"add", at + "message", d.Message})
		switch {
		case d.State == gate.Ready && len(s.updates) > 0:
			patch = append(patch, operation{"add", at + "podSetUpdates", s.updates})
		case len(entry.PodSetUpdates) > 0:
			patch = append(patch, operation{Op: "remove", Path: at + "podSetUpdates"})
		}
	}
	text, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	next := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: s.wl.Namespace, Name: s.wl.Name}}
	err = r.client.Status().Patch(ctx, next, client.RawPatch(types.JSONPatchType, text), checkOwner)
	if apierrors.IsInvalid(err) && r.moved(ctx, s.wl) {
		err = conflict(s.wl)
	}
	if err != nil {
		return fmt.Errorf("write check %s: %w", strings.Join(s.own, ", "), err)
	}
	r.wrote(s.wl, next)
	s.wl.Status.AdmissionChecks = next.Status.AdmissionChecks
	return nil
}

// moved says whether the workload is no longer as it was decided upon. A patch of an
// entry that is gone is refused before its version is looked at.
func (r *Reconciler) moved(ctx context.Context, wl *kueue.Workload) bool {
	now := bare(wl, "")
	err := r.live.Get(ctx, client.ObjectKeyFromObject(wl), now)
	return apierrors.IsNotFound(err) || err == nil && now.GetResourceVersion() != wl.ResourceVersion
}

// wrote a workload, whose state in the cache is out of date until it shows that.
func (r *Reconciler) wrote(wl *kueue.Workload, now client.Object) {
	wl.ResourceVersion = now.GetResourceVersion()
	r.tracks.writes(wl.UID, wl.ResourceVersion, r.now())
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
func (r *Reconciler) annotate(ctx context.Context, wl *kueue.Workload, d dispatch.Record) (*unstructured.Unstructured, error) {
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
	wl.Annotations = u.GetAnnotations()
	r.wrote(wl, u)
	return u, nil
}

func conflict(wl *kueue.Workload) error {
	return apierrors.NewConflict(schema.GroupResource{Group: kueue.SchemeGroupVersion.Group, Resource: "workloads"}, wl.Name,
		errors.New("the workload changed since the decision"))
}
