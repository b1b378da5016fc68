package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
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
	"plimsoll.dev/plimsoll/operator/internal/admission/engine"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
)

// Field managers of the controller.
const (
	// checkOwner owns the gate's check entry, the annotation and spec.active.
	checkOwner = client.FieldOwner("plimsoll-gate")
	// admissionOwner is Kueue's manager of admission. Kueue can't clear nominations of any
	// other manager, unless config/nomination's policy does.
	admissionOwner = client.FieldOwner("kueue-admission")
	// dispatchOwner owns nominations if a policy of the hub clears them.
	dispatchOwner = client.FieldOwner("plimsoll-dispatch")
)

// patchOperation is an operation of a JSON patch, RFC 6902.
type patchOperation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// writeCheck patches the gate's fields of its own entries at the resourceVersion that the
// decision rests on. A conflict means that the decision is out of date. A JSON patch costs the
// API server a fraction of a server-side apply.
func (r *Reconciler) writeCheck(ctx context.Context, s *engine.Writing, w lifecycle.CheckWrite) error {
	text, err := json.Marshal(checkPatch(s.Workload, w, metav1.NewTime(r.now())))
	if err != nil {
		return err
	}
	patched := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: s.Workload.Namespace, Name: s.Workload.Name}}
	err = r.client.Status().Patch(ctx, patched, client.RawPatch(types.JSONPatchType, text), checkOwner)
	if apierrors.IsInvalid(err) {
		err = r.conflictIfChanged(ctx, s.Workload, err)
	}
	if err != nil {
		return fmt.Errorf("write check %s of workload %s: %w", strings.Join(w.Names, ", "), s.Key, err)
	}
	rememberWrite(s, patched, r.now())
	s.Stored = nil
	return nil
}

func checkPatch(wl *kueue.Workload, w lifecycle.CheckWrite, now metav1.Time) []patchOperation {
	patch := []patchOperation{{"replace", "/metadata/resourceVersion", wl.ResourceVersion}}
	for _, name := range w.Names {
		i := slices.IndexFunc(wl.Status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool { return string(c.Name) == name })
		entry, path := wl.Status.AdmissionChecks[i], fmt.Sprintf("/status/admissionChecks/%d/", i)
		if string(entry.State) != string(w.Decision.State) {
			patch = append(patch, patchOperation{"add", path + "state", w.Decision.State}, patchOperation{"add", path + "lastTransitionTime", now})
		}
		patch = append(patch, patchOperation{"add", path + "message", w.Decision.Message})
		switch {
		case w.Decision.State == gate.Ready && len(w.PodSetUpdates) > 0:
			patch = append(patch, patchOperation{"add", path + "podSetUpdates", w.PodSetUpdates})
		case len(entry.PodSetUpdates) > 0:
			patch = append(patch, patchOperation{Op: "remove", Path: path + "podSetUpdates"})
		}
	}
	return patch
}

// conflictIfChanged turns an error into a conflict if the workload is no longer as it was
// decided upon. The API server refuses a patch of a removed entry before it compares the
// resourceVersion.
func (r *Reconciler) conflictIfChanged(ctx context.Context, wl *kueue.Workload, invalid error) error {
	live := workloadPatch(wl, "")
	err := r.live.Get(ctx, client.ObjectKeyFromObject(wl), live)
	switch {
	case apierrors.IsNotFound(err), err == nil && live.GetResourceVersion() != wl.ResourceVersion:
		return newConflict(wl)
	case err != nil:
		return errors.Join(invalid, err)
	}
	return invalid
}

// writeRecord patches the annotation and, if active is set, spec.active. It keeps the
// workload as the API server has it afterwards, with managedFields.
func (r *Reconciler) writeRecord(ctx context.Context, s *engine.Writing, w lifecycle.RecordWrite) error {
	patch, err := w.Record.Patch(s.Workload.ResourceVersion, w.Active)
	if err != nil {
		return err
	}
	live := workloadPatch(s.Workload, "")
	if err := r.client.Patch(ctx, live, client.RawPatch(types.MergePatchType, patch), checkOwner); err != nil {
		return fmt.Errorf("write annotation %s of workload %s: %w", v1alpha1.DispatchAnnotation, s.Key, err)
	}
	s.Workload.Annotations = live.GetAnnotations()
	if w.Active != nil {
		s.Workload.Spec.Active = w.Active
	}
	rememberWrite(s, live, r.now())
	s.Stored = live
	return nil
}

// mayBeStored reports whether a write that failed may be stored all the same: the API server did not refuse it.
func mayBeStored(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	code := status.Status().Code
	return code < http.StatusBadRequest || code >= http.StatusInternalServerError
}

// isRefused reports whether the API server would refuse the same write again.
func isRefused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// readUnknownWrite reads the version of a workload whose last write may be stored. A decision on a cache
// without that write would take back what the ledger holds for the workload.
func (r *Reconciler) readUnknownWrite(ctx context.Context, s *lifecycle.Situation) (*lifecycle.Situation, error) {
	if s.Workload == nil || !s.History.LastWrite.MayBeStored {
		return s, nil
	}
	live := workloadPatch(s.Workload, "")
	if err := r.live.Get(ctx, s.Key, live); err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read workload %s after a write that failed: %w", s.Key, err)
	}
	h := s.History
	h.LastWrite.Version, h.LastWrite.At, h.LastWrite.MayBeStored = live.GetResourceVersion(), r.now(), false
	r.engine.Remember(s.Workload.UID, h)
	return s.WithHistory(h), nil
}

// rememberWrite keeps the version of a write, until the cache shows it.
func rememberWrite(s *engine.Writing, written client.Object, now time.Time) {
	s.Workload.ResourceVersion = written.GetResourceVersion()
	s.History.LastWrite.Version, s.History.LastWrite.At = s.Workload.ResourceVersion, now
}

// workloadPatch is an object with the identity that a patch or an apply needs.
func workloadPatch(wl client.Object, resourceVersion string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(kueue.SchemeGroupVersion.WithKind("Workload"))
	u.SetNamespace(wl.GetNamespace())
	u.SetName(wl.GetName())
	u.SetResourceVersion(resourceVersion)
	return u
}

func newConflict(wl *kueue.Workload) error {
	return apierrors.NewConflict(schema.GroupResource{Group: kueue.SchemeGroupVersion.Group, Resource: "workloads"}, wl.Name,
		errors.New("the workload changed since the decision"))
}
