package capacitypolicy

import (
	"context"
	"errors"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// The process ends in the round that lowers the quota, and no operator runs for four minutes. The next
// one must not return a quota that was lowered, for devices that do not exist.
func TestProcessEndsWhileTheQuotaIsLowered(t *testing.T) {
	for _, tc := range []struct {
		name string
		// endsAfter is the number of writes of the round before the process ends.
		endsAfter int
		// during and after the gap: the quota of the Cohort.
		during, after int64
	}{
		{"before the first write", 0, 24, 24}, // the gap restarts the clock of the decrease
		{"between the two writes", 1, 24, 16},
		{"after the second write", 2, 16, 16},
	} {
		t.Run(tc.name, func(t *testing.T) {
			left := -1 // writes until the process ends; negative = it runs
			write := func(do func() error) error {
				if left == 0 {
					return errors.New("the process ended")
				}
				left--
				return do()
			}
			h := newHubWith(t, interceptor.Funcs{
				SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
					return write(func() error { return c.SubResource(sub).Patch(ctx, obj, patch, opts...) })
				},
				Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
					return write(func() error { return c.Patch(ctx, obj, patch, opts...) })
				},
			}, nil)
			h.round()
			h.devices(usable, "c1", 8, "c2", 8)
			for range 5 {
				h.round()
			}
			left = tc.endsAfter
			h.now = h.now.Add(time.Minute)
			if _, err := h.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "gpus"}}); tc.endsAfter == 0 && err == nil {
				t.Fatal("the round wrote nothing, and returned no error")
			}
			left = -1
			if got := h.cohortQuota(); got != tc.during {
				t.Errorf("quota %d when the process ended, want %d", got, tc.during)
			}
			h.now = h.now.Add(4 * time.Minute)
			h.round()
			if got := h.cohortQuota(); got != tc.after {
				t.Errorf("quota %d after the gap, want %d", got, tc.after)
			}
		})
	}
}

// A Cohort that changed since it was read is written in the next round, with the recorded quota.
func TestChangedCohortIsWrittenInTheNextRound(t *testing.T) {
	var h *hub
	changes := false
	h = newHubWith(t, interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
		if changes {
			changes = false
			cohort := &kueue.Cohort{}
			if err := c.Get(ctx, client.ObjectKey{Name: "gpu-fleet"}, cohort); err != nil {
				return err
			}
			cohort.Spec.ParentName = "root"
			if err := c.Update(ctx, cohort); err != nil {
				return err
			}
		}
		return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
	}}, nil)
	h.round()
	h.devices(usable, "c1", 8, "c2", 24)
	h.round()
	changes, h.now = true, h.now.Add(time.Minute)
	result, err := h.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "gpus"}})
	if err != nil || result.RequeueAfter != rereadDelay || h.cohortQuota() != 24 {
		t.Errorf("%+v, error %v, quota %d", result, err, h.cohortQuota())
	}
	h.round()
	if got := h.cohortQuota(); got != 32 {
		t.Errorf("quota %d", got)
	}
}
