package lifecycle

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
)

// The slice that is replaced had its turn. The new one does not wait for others that rank before it.
func TestSliceDoesNotWaitForItsTurn(t *testing.T) {
	slice := func(seenOn ...string) *Situation {
		return situationWith(inOrder(noRoom, func(s *Situation) {
			s.Room.Preceding, s.Job.SliceOn, s.Job.SliceSeenOn = types.NamespacedName{Namespace: "team-b", Name: "first"}, []string{"cluster2"}, seenOn
		}))
	}
	if d, clusters, _ := Decide(slice("cluster2")); d.State != gate.Ready || len(clusters) != 1 || clusters[0] != "cluster2" {
		t.Errorf("%s %q for %v, want cluster2", d.State, d.Message, clusters)
	}
	if d, clusters, _ := Decide(slice()); d.Reason != gate.ReasonQueued || len(clusters) > 0 {
		t.Errorf("only a record names the cluster: %s %q for %v, want Queued", d.State, d.Message, clusters)
	}
}

// Devices that are held for another workload go to a slice only if Kueue's status shows that its job was
// sent there. A user can write a record.
func TestRecordOfASliceGivesNoHeldDevices(t *testing.T) {
	held := gate.Decision{State: gate.Pending, Reason: gate.ReasonHeld, Verdicts: []gate.Verdict{{Cluster: "cluster2", Rejection: gate.RejectHeld}}}
	s := &Situation{Job: Job{SliceOn: []string{"cluster2"}}}
	if d := followReplacedSlice(s, held); d.State != gate.Pending {
		t.Errorf("%s for %v, want Pending", d.State, d.Order)
	}
	s.Job.SliceSeenOn = []string{"cluster2"}
	if d := followReplacedSlice(s, held); d.State != gate.Ready {
		t.Errorf("%s, want Ready", d.State)
	}
}
