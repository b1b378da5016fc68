package gate

import (
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
)

func outside(c Candidate) Candidate {
	c.Outside = true
	return c
}

// A cluster that the MultiKueueConfig has no place for is requested only if no member can take
// the workload.
func TestClustersOutsideTheConfiguration(t *testing.T) {
	const joining = "cluster3 has room and joins the MultiKueueConfig as soon as that has a free place; no member can take the workload"
	member, full := cluster("cluster1", 1, 8, 8, 64), cluster("cluster2", 0, 4, 4, 64)
	free := outside(cluster("cluster3", 2, 16, 8, 64))
	for _, tc := range []struct {
		name       string
		candidates []Candidate
		state      State
		reason     string
		join       string
	}{
		{"a member has room", []Candidate{member, full, free}, Ready, ReasonPlaceable, ""},
		{"only the other has", []Candidate{full, free}, Pending, ReasonJoining, "cluster3"},
		{"the best of several others", []Candidate{full, outside(cluster("cluster4", 1, 8, 8, 1)), withScore(free, 50), outside(withScore(cluster("cluster5", 1, 8, 8, 1), 20))}, Pending, ReasonJoining, "cluster3"},
		{"none has", []Candidate{full, outside(cluster("cluster3", 0, 4, 4, 64))}, Pending, ReasonNoRoom, ""},
		{"the other has stale samples", []Candidate{full, sampledBefore(free, 200)}, Pending, ReasonNoRoom, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := Decide(job("a", 8, 1), tc.candidates, Fleet{}, ledger.View{}, scoreRules(nil), 1, t0)
			if d.State != tc.state || d.Reason != tc.reason || d.Join != tc.join {
				t.Errorf("%s %s %q joins %q, want %s %s and %q", d.State, d.Reason, d.Message, d.Join, tc.state, tc.reason, tc.join)
			}
			for i, v := range d.Verdicts {
				if tc.candidates[i].Outside && v.Rejection == RejectNone {
					t.Errorf("%s is eligible, although the configuration does not contain it", v.Cluster)
				}
			}
			if tc.reason == ReasonJoining && (d.Message != joining || d.NoRoomAnywhere) {
				t.Errorf("message %q, no room anywhere %t", d.Message, d.NoRoomAnywhere)
			}
		})
	}
}

// Only members are held: the configuration may never have a place for the others.
func TestOnlyMembersAreHeld(t *testing.T) {
	r := holdRules(v1alpha1.HoldEnforce, 1, time.Hour)
	d := Decide(job("a", 8, 1), []Candidate{full("cluster1", 8), outside(full("cluster2", 4))}, Fleet{}, ledger.View{}, r, 1, t0)
	if d.Hold == nil || d.Hold.Cluster != "cluster1" {
		t.Errorf("holds %+v, want cluster1", d.Hold)
	}
}
