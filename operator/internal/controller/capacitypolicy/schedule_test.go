package capacitypolicy

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// A round follows when a keep time ends or a decrease is due, however long the period is.
func TestNextRound(t *testing.T) {
	for _, tc := range []struct {
		name string
		// fault happens before the second round, an hour after the first one.
		fault func(*hub)
		lasts time.Duration // of the second round
		want  []time.Duration
		// fails is true if the source fails from the third round on.
		fails bool
		quota int64 // after the last round
	}{
		{"nothing changes", func(*hub) {}, 0, []time.Duration{time.Hour, time.Hour}, false, 24},
		{"a cluster is silent", func(h *hub) { h.devices(usable, "c1", 8) }, 0, []time.Duration{time.Minute, 5 * time.Minute, 54 * time.Minute, time.Hour}, false, 8},
		{"the keep time ends during the round", func(h *hub) { h.devices(usable, "c1", 8) }, 2 * time.Minute, []time.Duration{rereadDelay, 5 * time.Minute, 53*time.Minute - rereadDelay, time.Hour}, false, 8},
		{"fewer devices", func(h *hub) { h.devices(usable, "c1", 8, "c2", 8) }, 0, []time.Duration{5 * time.Minute, 55 * time.Minute, time.Hour}, false, 16},
		{"fewer devices, then the source fails", func(h *hub) { h.devices(usable, "c1", 8, "c2", 8) }, 0, []time.Duration{5 * time.Minute, 55 * time.Minute, time.Hour}, true, 24},
		{"a cluster is silent, then the source fails", func(h *hub) { h.devices(usable, "c1", 8) }, 0, []time.Duration{time.Minute, 59 * time.Minute}, true, 24},
		{"more devices", func(h *hub) { h.devices(usable, "c1", 8, "c2", 24) }, 0, []time.Duration{time.Hour, time.Hour}, false, 32},
		{"the source fails", func(h *hub) { delete(h.responses, usable) }, 0, []time.Duration{time.Hour, time.Hour}, false, 24},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHub(t, func(s *v1alpha1.CapacityPolicySpec) {
				s.PeriodSeconds, s.Advanced.KeepLastSeconds = 3600, new(int32(60))
			})
			next := func() time.Duration {
				result, err := h.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "gpus"}})
				if err != nil {
					t.Fatal(err)
				}
				return result.RequeueAfter
			}
			h.now = h.now.Add(next())
			tc.fault(h)
			h.r.sources.Set(query.SourceInfo{Name: "thanos", ClusterLabel: "cluster", Match: "Name"}, query.QuerierFunc(func(ctx context.Context, expr string, at time.Time) (query.Result, error) {
				h.now, tc.lasts = h.now.Add(tc.lasts), 0
				return h.query(ctx, expr, at)
			}))
			for i, want := range tc.want {
				if tc.fails && i == 1 {
					delete(h.responses, usable)
				}
				wait := next()
				if wait != want {
					t.Errorf("round %d: the next one after %v, want %v", i+2, wait, want)
				}
				h.now = h.now.Add(wait)
			}
			if got := h.cohortQuota(); got != tc.quota {
				t.Errorf("quota %d, want %d", got, tc.quota)
			}
		})
	}
}

// The liveness probe restarts the operator if a round lasts 5 minutes.
func TestRoundEndsBeforeTheLivenessProbeFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, func(s *v1alpha1.CapacityPolicySpec) { s.PeriodSeconds = 3600 })
		h.round()
		h.r.sources.Set(query.SourceInfo{Name: "thanos", ClusterLabel: "cluster", Match: "Name"}, query.QuerierFunc(func(ctx context.Context, _ string, _ time.Time) (query.Result, error) {
			<-ctx.Done()
			return query.Result{}, ctx.Err()
		}))
		start := time.Now()
		policy := h.round()
		if took := time.Since(start); took != timing.MaxRound {
			t.Errorf("the round took %v, want %v", took, timing.MaxRound)
		}
		if got := describe(policy, v1alpha1.ConditionMeasured); !strings.HasPrefix(got, "False SourceFailed") {
			t.Errorf("Measured is %s", got)
		}
	})
}
