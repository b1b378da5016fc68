package reclaimpolicy

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// refuseWritesTo makes the API server refuse every write to the workloads of these jobs.
func refuseWritesTo(jobs ...string) interceptor.Funcs {
	return interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
		if _, ok := obj.(*kueue.Workload); ok && slices.Contains(jobs, strings.TrimPrefix(obj.GetName(), "job-")) {
			return apierrors.NewForbidden(schema.GroupResource{Group: "kueue.x-k8s.io", Resource: "workloads"}, obj.GetName(), errors.New("by a policy"))
		}
		return c.Patch(ctx, obj, patch, opts...)
	}}
}

// A workload that the API server protects from writes does not keep the others of its Cohort
// from being reclaimed. It is tried again after an hour, and comes last then.
func TestRefusedWorkloadIsPassedOver(t *testing.T) {
	h := newHubWith(t, refuseWritesTo("a"), nil, running("a"), running("b"))
	h.idle["a"], h.idle["b"] = []float64{3600, 3600}, []float64{3600, 3600}
	if s := h.round().Status.IdleWorkloads; len(s) != 2 || s[0].State != v1alpha1.IdleLimited || !strings.Contains(s[0].Reason, "refused the write") {
		t.Errorf("idle workloads after the first round %+v", s)
	}
	policy := h.round()
	if active, _ := h.isActive("b"); active {
		t.Errorf("b is not reclaimed in the second round: %+v", policy.Status.IdleWorkloads)
	}
	if s := policy.Status.Refused; len(s) != 1 || s[0].UID != "uid-a" || !s[0].Time.Time.Equal(noon.Add(time.Minute)) {
		t.Errorf("refused %+v", s)
	}
	if err := h.Delete(t.Context(), running("b")); err != nil { // its return is complete
		t.Fatal(err)
	}
	h.events()
	h.round()
	if got := h.events(); slices.ContainsFunc(got, func(e string) bool { return strings.HasPrefix(e, "Warning WriteFailed") }) {
		t.Errorf("a is written again within the hour: %q", got)
	}
	h.now = h.now.Add(time.Hour)
	policy = h.round()
	if s := policy.Status.Refused; len(s) != 1 || !s[0].Time.Time.Equal(h.now) {
		t.Errorf("refused after an hour %+v", s)
	}
	if err := h.Delete(t.Context(), running("a")); err != nil {
		t.Fatal(err)
	}
	if s := h.round().Status.Refused; len(s) > 0 {
		t.Errorf("refused after its end %+v", s)
	}
}

// A workload that the API server protects from writes does not keep others from moving.
func TestRefusedMoveIsPassedOver(t *testing.T) {
	h, _ := newStuckHub(t, refuseWritesTo("small"), v1alpha1.ModeEnforce)
	h.round()
	if m := h.round().Status.Moves; len(m) != 1 || m[0].State != v1alpha1.MoveNone {
		t.Errorf("moves %+v", m)
	}
}
