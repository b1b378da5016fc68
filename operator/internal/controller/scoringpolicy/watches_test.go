package scoringpolicy

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/event"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/condition"
)

// A changed source starts a round when its new client is registered. Before, the round would read the
// old server, and the next one would follow a period later.
func TestSourceChanged(t *testing.T) {
	source := func(generation, observed int64, reachable bool) *v1alpha1.MetricsSource {
		s := &v1alpha1.MetricsSource{}
		s.Generation, s.Status.ObservedGeneration = generation, observed
		d := condition.False("Timeout", "no response")
		if reachable {
			d = condition.True("QuerySucceeded", "the server responds")
		}
		condition.Set(&s.Status.Conditions, v1alpha1.ConditionReachable, d, observed)
		return s
	}
	for _, tc := range []struct {
		name          string
		before, after *v1alpha1.MetricsSource
		want          bool
	}{
		{"the spec changes", source(1, 1, true), source(2, 1, true), false},
		{"the client of the new spec is registered", source(2, 1, true), source(2, 2, true), true},
		{"the source becomes unreachable", source(2, 2, true), source(2, 2, false), true},
		{"nothing changes", source(2, 2, true), source(2, 2, true), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := sourceChanged().Update(event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after}); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}
