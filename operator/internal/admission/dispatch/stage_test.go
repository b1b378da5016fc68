package dispatch

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestStage(t *testing.T) {
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
		{"widened", widened, 40, StageWait, 21 * time.Second},
		{"widened for another reason, and widening is due", Record{NominatedAt: t0, WidenedAt: after(10)}, 40, StageWiden, 30 * time.Second},
		{"widening is due again", widened, 61, StageWiden, 30 * time.Second},
		{"all clusters are due soon", nominated, 110, StageWiden, 10 * time.Second},
		{"widened just before all clusters are due", Record{NominatedAt: t0, WidenedAt: after(100)}, 110, StageWait, 10 * time.Second},
		{"all clusters are due", widened, 120, StageAll, 60 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if stage, next := tc.r.Stage(Pace{WidenAfterSeconds: 30}, after(tc.seconds)); stage != tc.stage || next != tc.next {
				t.Errorf("got %s for %s, want %s for %s", stage, next, tc.stage, tc.next)
			}
		})
	}
}

func TestWidenedList(t *testing.T) {
	var many []string
	for i := range 25 {
		many = append(many, fmt.Sprint("c", i))
	}
	usable := []string{"a", "b", "c", "d"}
	for _, tc := range []struct {
		name      string
		stage     Stage
		nominated []string
		order     []string
		usable    []string
		unknown   []string
		want      []string
	}{
		{"wait", StageWait, []string{"a"}, []string{"b"}, usable, nil, []string{"a"}},
		{"widen to all clusters with room", StageWiden, []string{"a"}, []string{"b", "a", "c"}, usable, nil, []string{"a", "b", "c"}},
		{"widen without room elsewhere", StageWiden, []string{"a"}, []string{"a"}, usable, nil, []string{"a"}},
		{"at last, clusters with room and clusters whose room is unknown", StageAll, []string{"a"}, []string{"d"}, usable, []string{"b", "deleted"}, []string{"a", "d", "b"}},
		{"at last, no cluster that is known to be full", StageAll, []string{"a"}, nil, usable, nil, []string{"a"}},
		{"a nominated cluster that is no longer usable stays", StageAll, []string{"lost"}, nil, usable, []string{"a"}, []string{"lost", "a"}},
		{"at most 20 clusters", StageAll, []string{"c0"}, nil, many, many, many[:MaxNominated]},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := WidenedList(tc.stage, tc.nominated, Clusters{WithRoom: tc.order, Unknown: tc.unknown, Usable: tc.usable})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("clusters (-want +got):\n%s", diff)
			}
		})
	}
}

// Each write triggers another reconcile. A stage must not widen once per reconcile, although more
// clusters have room by then.
func TestEachStageWidensOnce(t *testing.T) {
	pace := Pace{WidenAfterSeconds: 30}
	usable := []string{"a", "b", "c", "d", "e", "f"}
	r := Record{}.Begin([]string{"a"}, t0, "room", t0)
	// The steps build on each other.
	for _, tc := range []struct {
		seconds  int
		withRoom []string
		want     []string
	}{
		{31, []string{"a", "b"}, []string{"a", "b"}},
		{32, []string{"a", "b", "c"}, []string{"a", "b"}},
		{61, []string{"a", "b", "c"}, []string{"a", "b", "c"}},
		{62, []string{"a", "b", "c", "d"}, []string{"a", "b", "c"}},
		{90, []string{"a", "b", "c", "d"}, []string{"a", "b", "c"}},
		{91, []string{"a", "b", "c", "d"}, []string{"a", "b", "c", "d"}},
		{120, []string{"a", "b", "c", "d", "f"}, []string{"a", "b", "c", "d", "f"}},
	} {
		t.Run(fmt.Sprint("after ", tc.seconds, " s"), func(t *testing.T) {
			stage, _ := r.Stage(pace, after(tc.seconds))
			list := WidenedList(stage, r.Nominated, Clusters{WithRoom: tc.withRoom, Usable: usable})
			if len(list) > len(r.Nominated) {
				r = r.Widen(list, "late", after(tc.seconds))
			}
			if diff := cmp.Diff(tc.want, list); diff != "" {
				t.Errorf("clusters (-want +got):\n%s", diff)
			}
		})
	}
}
