package ui

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/cli/explanation"
)

func TestPlaceText(t *testing.T) {
	known := explanation.State{Gate: &v1alpha1.PlacementGate{}}
	for want, tc := range map[string]struct {
		waiting   waiting
		namespace string
	}{
		"2 of 3 at gate gpu, after a/x":    {waiting{State: known, gateName: "gpu", place: 2, places: 3, after: "a/x"}, ""},
		"1 of 1 of those in b at gate gpu": {waiting{State: known, gateName: "gpu", place: 1, places: 1}, "b"},
		"?":                                {waiting{gateName: "gpu", place: 2, places: 3, after: "a/x"}, ""}, // the gate can't be read
	} {
		if got := tc.waiting.placeText(tc.namespace); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestStartText(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for want, at := range map[string]time.Time{"by 2026-03-01 12:01:00Z on c1, which is held": now.Add(time.Minute), "? on c1, which is held": now.Add(-time.Minute)} {
		g := &v1alpha1.PlacementGate{}
		g.Status.Holds = []v1alpha1.HeldCluster{{Workload: "", Cluster: "c1", StartsBy: &metav1.Time{Time: at}}}
		w := waiting{State: explanation.State{Gate: g}}
		if got := w.startText(now); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
