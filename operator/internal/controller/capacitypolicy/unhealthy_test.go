package capacitypolicy

import (
	"errors"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// Devices that broke before the policy could see them are no new ones: a decrease beside them has
// another cause, and takes its time.
func TestOldBrokenDevicesAreNotNew(t *testing.T) {
	setQuery := func(h *hub, expr string) {
		policy := &v1alpha1.CapacityPolicy{}
		if err := h.Get(t.Context(), client.ObjectKey{Name: "gpus"}, policy); err != nil {
			t.Fatal(err)
		}
		policy.Spec.Quotas[0].UnhealthyQuery = expr
		policy.Generation++
		if err := h.Update(t.Context(), policy); err != nil {
			t.Fatal(err)
		}
	}
	connect := func(h *hub, name string, connected bool) {
		if err := errors.Join(h.Delete(t.Context(), managedCluster(name, true)), h.Create(t.Context(), managedCluster(name, connected))); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name   string
		cohort *kueue.Cohort // that exists before the first round
		before func(*hub)
		want   int64
	}{
		{"a cluster connects again", nil, func(h *hub) {
			h.devices(usable, "c1", 8, "c2", 56)
			h.devices("broken", "c2", 8)
			h.round()
			connect(h, "c2", false)
			h.round()
			h.round()
			connect(h, "c2", true)
		}, 64},
		{"a cluster has a number again", nil, func(h *hub) {
			h.devices(usable, "c1", 8, "c2", 56)
			h.devices("broken", "c2", 8)
			h.round()
			h.devices(usable, "c1", 8)
			h.devices("broken")
			h.round()
		}, 64},
		{"the endpoint of a cluster fails for a round", nil, func(h *hub) {
			h.devices(usable, "c1", 8, "c2", 56)
			h.devices("broken", "c2", 8)
			h.round()
			h.responses["broken"] = query.Result{Failed: map[string]string{"c2": "timeout"}}
			if got := h.round().Status.Quotas[0].Unhealthy; got != 8 {
				t.Errorf("%d broken devices while the endpoint fails, want 8", got)
			}
		}, 64},
		{"the query is added", nil, func(h *hub) {
			h.devices(usable, "c1", 8, "c2", 56)
			setQuery(h, "")
			h.round()
			setQuery(h, "broken")
		}, 64},
		{"the policy is created again", cohort("gpu-fleet", "", "gpus", 64), func(*hub) {}, 64},
		{"they are new", nil, func(h *hub) {
			h.devices(usable, "c1", 8, "c2", 56)
			h.round()
		}, 56},
		{"they are new, and the query failed meanwhile", nil, func(h *hub) {
			h.devices(usable, "c1", 8, "c2", 56)
			h.round()
			delete(h.responses, "broken")
			h.round()
		}, 56},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var objects []client.Object
			if tc.cohort != nil {
				objects = append(objects, tc.cohort)
			}
			h := newHub(t, nil, objects...)
			tc.before(h)
			h.devices(usable, "c1", 8, "c2", 48)
			h.devices("broken", "c2", 8)
			policy := h.round()
			if got := h.cohortQuota(); got != tc.want {
				t.Errorf("quota %d, want %d", got, tc.want)
			}
			if got := policy.Status.Quotas[0].Unhealthy; got != 8 {
				t.Errorf("%d broken devices, want 8", got)
			}
			setQuery(h, "")
			if got := h.round().Status.Quotas[0].Unhealthy; got != 0 {
				t.Errorf("%d broken devices without a query", got)
			}
		})
	}
}
