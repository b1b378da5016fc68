package dispatch

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

func TestStage(t *testing.T) {
	widen := v1alpha1.Widen{AfterSeconds: 30}
	nominated := Record{NominatedAt: t0}
	widened := Record{NominatedAt: t0, WidenedAt: after(31)}
	for _, tc := range []struct {
		name    string
		r       Record
		seconds int
		stage   Stage
		next    time.Duration
	}{
		{"at the nomination", nominated, 0, StageWait, 30 * time.Second},
		{"just before widening", nominated, 29, StageWait, time.Second},
		{"widening is due", nominated, 30, StageWiden, 30 * time.Second},
		{"widened", widened, 40, StageWait, 20 * time.Second},
		{"widened for another reason, and widening is due", Record{NominatedAt: t0, WidenedAt: after(10)}, 40, StageWiden, 20 * time.Second},
		{"healing is due", widened, 60, StageHeal, 60 * time.Second},
		{"all clusters are due", widened, 120, StageAll, 60 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if stage, next := tc.r.Stage(Pace{Widen: widen}, after(tc.seconds)); stage != tc.stage || next != tc.next {
				t.Errorf("got %s for %s, want %s for %s", stage, next, tc.stage, tc.next)
			}
		})
	}
}

func TestWidenedList(t *testing.T) {
	byOne, byNine := int32(1), int32(9)
	var many []string
	for i := range 25 {
		many = append(many, fmt.Sprint("c", i))
	}
	usable := []string{"a", "b", "c", "d"}
	for _, tc := range []struct {
		name      string
		stage     Stage
		ever      []string
		nominated []string
		order     []string
		usable    []string
		unknown   []string
		by        *int32
		want      []string
	}{
		{"wait", StageWait, []string{"d"}, []string{"a"}, []string{"b"}, usable, nil, nil, []string{"a"}},
		{"widen to all clusters with room", StageWiden, nil, []string{"a"}, []string{"b", "a", "c"}, usable, nil, nil, []string{"a", "b", "c"}},
		{"widen by one cluster", StageWiden, nil, []string{"a"}, []string{"b", "a", "c"}, usable, nil, &byOne, []string{"a", "b"}},
		{"widen by more clusters than have room", StageWiden, nil, []string{"a"}, []string{"b", "a", "c"}, usable, nil, &byNine, []string{"a", "b", "c"}},
		{"widen without room elsewhere", StageWiden, []string{"d"}, []string{"a"}, []string{"a"}, usable, nil, nil, []string{"a"}},
		{"heal nominates earlier clusters without room, if usable", StageHeal, []string{"d", "deleted"}, []string{"a"}, nil, usable, nil, nil, []string{"a", "d"}},
		{"heal does not nominate an earlier cluster that is ruled out", StageHeal, []string{"b", "d"}, []string{"a"}, nil, usable, nil, nil, []string{"a", "d"}},
		{"heal also widens by one cluster", StageHeal, []string{"d"}, []string{"a"}, []string{"b", "c"}, usable, nil, &byOne, []string{"a", "d", "b"}},
		{"at last, clusters with room and clusters whose room is unknown", StageAll, []string{"c"}, []string{"a"}, []string{"d"}, usable, []string{"b", "deleted"}, nil, []string{"a", "d", "b"}},
		{"at last, no cluster that is known to be full", StageAll, []string{"c"}, []string{"a"}, nil, usable, nil, nil, []string{"a"}},
		{"a nominated cluster that is no longer usable stays", StageAll, nil, []string{"lost"}, nil, usable, []string{"a"}, nil, []string{"lost", "a"}},
		{"at most 20 clusters", StageAll, nil, []string{"c0"}, nil, many, many, nil, many[:MaxNominated]},
	} {
		t.Run(tc.name, func(t *testing.T) {
			clusters := Clusters{WithRoom: tc.order, Unknown: tc.unknown, MayHoldCopy: []string{"c", "d", "deleted"}, Usable: tc.usable}
			got := Record{EverNominated: tc.ever}.WidenedList(tc.stage, tc.nominated, clusters, Pace{Widen: v1alpha1.Widen{By: tc.by}})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("clusters (-want +got):\n%s", diff)
			}
		})
	}
}

// Each write triggers another reconcile. A stage must not widen once per reconcile.
func TestEachStageWidensOnce(t *testing.T) {
	byOne := int32(1)
	pace := Pace{Widen: v1alpha1.Widen{AfterSeconds: 30, By: &byOne}}
	order := []string{"a", "b", "c", "d", "e", "f"}
	r := Record{EverNominated: []string{"e"}}.Begin([]string{"a"}, t0, "room", t0)
	// The steps build on each other.
	for _, tc := range []struct {
		seconds int
		want    []string
	}{
		{31, []string{"a", "b"}},
		{61, []string{"a", "b", "e", "c"}},
		{62, []string{"a", "b", "e", "c"}},
		{90, []string{"a", "b", "e", "c"}},
		{120, []string{"a", "b", "e", "c", "d", "f"}},
	} {
		t.Run(fmt.Sprint("after ", tc.seconds, " s"), func(t *testing.T) {
			stage, _ := r.Stage(pace, after(tc.seconds))
			list := r.WidenedList(stage, r.Nominated, Clusters{WithRoom: order, MayHoldCopy: order, Usable: order}, pace)
			if len(list) > len(r.Nominated) {
				r = r.Widen(list, "late", after(tc.seconds))
			}
			if diff := cmp.Diff(tc.want, list); diff != "" {
				t.Errorf("clusters (-want +got):\n%s", diff)
			}
		})
	}
}
