package lifecycle

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
)

func TestWouldPreempt(t *testing.T) {
	lower, reclaims := Queue{PreemptsLowerPriority: true}, Queue{Reclaim: gate.Reclaim{Queues: []string{"neighbor"}}}
	newerToo, reclaimsAny, borrows := lower, reclaims, reclaims
	newerToo.PreemptsNewerEqual, reclaimsAny.Reclaim.AnyPriority, borrows.Borrows = true, true, true
	for _, tc := range []struct {
		name  string
		queue Queue
		other PendingWorkload
		want  bool
	}{
		{"lower priority", lower, PendingWorkload{"gpu", 4, fixture.Noon}, true},
		{"lower priority, a queue that does not preempt", Queue{}, PendingWorkload{"gpu", 4, fixture.Noon}, false},
		{"lower priority of another queue", lower, PendingWorkload{"neighbor", 4, fixture.Noon}, false},
		{"equal priority", lower, PendingWorkload{"gpu", 5, fixture.Noon.Add(time.Hour)}, false},
		{"equal priority, newer", newerToo, PendingWorkload{"gpu", 5, fixture.Noon.Add(time.Hour)}, true},
		{"equal priority, older", newerToo, PendingWorkload{"gpu", 5, fixture.Noon.Add(-time.Hour)}, false},
		{"higher priority, newer", newerToo, PendingWorkload{"gpu", 6, fixture.Noon.Add(time.Hour)}, false},
		{"cohort, lower priority", reclaims, PendingWorkload{"neighbor", 4, fixture.Noon}, true},
		{"cohort, equal priority", reclaims, PendingWorkload{"neighbor", 5, fixture.Noon}, false},
		{"cohort, any priority", reclaimsAny, PendingWorkload{"neighbor", 9, fixture.Noon}, true},
		{"cohort, of which the own queue borrows", borrows, PendingWorkload{"neighbor", 4, fixture.Noon}, false},
		{"same queue, which only reclaims", reclaimsAny, PendingWorkload{"gpu", 4, fixture.Noon}, false},
		{"queue that can't be reclaimed from", reclaimsAny, PendingWorkload{"cousin", 4, fixture.Noon}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := situationWith(func(s *Situation) {
				s.Workload.Spec.Priority, s.Workload.CreationTimestamp = new(int32(5)), metav1.NewTime(fixture.Noon)
				s.Queue = tc.queue
			})
			if got := s.WouldPreempt(tc.other); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}
