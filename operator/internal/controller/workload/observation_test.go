package workload

import (
	"slices"
	"testing"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/querycache"
	"plimsoll.dev/plimsoll/operator/internal/admission/registry"
)

func TestDecides(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*observation)
		want   bool
	}{
		{"a waiting workload", func(*observation) {}, true},
		{"its gate was not read yet", func(o *observation) { o.gateKnown = false }, false},
		{"its gate has a problem", func(o *observation) { o.gate.Problem = "Placement gpu does not exist" }, false},
		{"it has two checks", func(o *observation) { o.checks = append(o.checks, "second") }, false},
		{"Kueue acts next", func(o *observation) { o.phase = PhaseIdle }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := observationWith(func(*observation) {})
			tc.change(o)
			if got := o.decides(); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
			if !tc.want && len(o.decision(1).Order) > 0 {
				t.Errorf("decided %+v", o.decision(1))
			}
		})
	}
}

// Samples of devices and of the quota have times of their own.
func TestCandidatesHaveTheTimesOfTheirSamples(t *testing.T) {
	o := observationWith(func(o *observation) { o.gate.Clusters = []registry.Cluster{{Name: "cluster1"}} })
	list := o.candidatesWith(map[string]querycache.ClusterResult{"cluster1": {SampledAt: noon, QuotaSampledAt: noon.Add(-time.Minute)}})
	i := slices.IndexFunc(list, func(c gate.Candidate) bool { return c.Name == "cluster1" })
	if i < 0 || !list[i].SampledAt.Equal(noon) || !list[i].QuotaSampledAt.Equal(noon.Add(-time.Minute)) {
		t.Errorf("candidates %+v", list)
	}
}

// Preemption concerns workers: a workload that MultiKueue does not copy preempts on the hub.
func TestOnlyCopiedWorkloadsPreemptOnWorkers(t *testing.T) {
	for multiKueue, want := range map[string]bool{"multikueue": true, "": false} {
		o := observationWith(func(o *observation) {
			o.multiKueue, o.canPreempt, o.reclaim = multiKueue, true, gate.Reclaim{Queues: []string{"lender"}}
		})
		if o.facts.Preempts != want || o.facts.Reclaims != want {
			t.Errorf("check %q: preempts %t, reclaims %t, want %t", multiKueue, o.facts.Preempts, o.facts.Reclaims, want)
		}
	}
}

// A workload that waits for its last copy does not stop its line.
func TestWaitAfter(t *testing.T) {
	o := observationWith(func(*observation) {})
	key := querycache.Key{Gate: "gpu", Facts: "two devices"}
	for _, tc := range []struct {
		reason  string
		want    querycache.Key
		hasRoom bool
	}{
		{gate.ReasonNoRoom, key, false},
		{gate.ReasonQueued, key, true},
		{gate.ReasonOrphanedCopy, querycache.Key{Gate: "gpu"}, false},
	} {
		e := o.waitAfter(gate.Decision{State: gate.Pending, Reason: tc.reason}, key)
		if e == nil || e.Key != tc.want || e.HasRoom != tc.hasRoom {
			t.Errorf("%s: %+v, want key %+v, has room: %t", tc.reason, e, tc.want, tc.hasRoom)
		}
	}
}

// Only a nomination that waits for an admission is widened, and ends without one.
func TestNominationsThatLastLong(t *testing.T) {
	for _, tc := range []struct {
		name           string
		change         func(*observation)
		widen, overdue bool
	}{
		{"a nomination", func(*observation) {}, true, false},
		{"a stuck eviction", func(o *observation) { o.phase = PhaseEvictionStuck }, false, false},
		{"after an hour", func(o *observation) { o.now = noon.Add(time.Hour) }, false, true},
		{"after an hour, and the gate is unknown", func(o *observation) { o.now, o.gateKnown = noon.Add(time.Hour), false }, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := observationWith(func(o *observation) {
				o.wl = withRecord(nominated(pendingWorkload(noon), "cluster1"), recordOf(noon, "cluster1"))
				o.now = noon.Add(30 * time.Second)
			})
			tc.change(o)
			if o.isWideningDue() != tc.widen || o.isOverdue() != tc.overdue {
				t.Errorf("phase %s: widening is due: %t, overdue: %t", o.phase, o.isWideningDue(), o.isOverdue())
			}
		})
	}
}

// Which requests follow a decision.
func TestWritesOfADecision(t *testing.T) {
	noRoom := gate.Decision{State: gate.Pending, Reason: gate.ReasonNoRoom, Message: "no room"}
	ready := gate.Decision{State: gate.Ready, Reason: gate.ReasonPlaceable, Message: "room", Order: []string{"cluster1"}}
	queued := gate.Decision{State: gate.Pending, Reason: gate.ReasonQueued, Message: "job b is decided first"}
	withoutMultiKueue := func(o *observation) { o.multiKueue = "" }
	for _, tc := range []struct {
		name                 string
		change               func(*observation)
		d                    gate.Decision
		record, check, event bool
	}{
		{"no room", func(*observation) {}, noRoom, false, true, true},
		{"queued for a round", func(*observation) {}, queued, false, false, false},
		{"queued after the check was Ready", setCheck(kueue.CheckStateReady), queued, false, true, true},
		{"no room again after the check was Ready", func(o *observation) {
			setCheck(kueue.CheckStateReady)(o)
			o.history.lastReason = gate.ReasonNoRoom
		}, noRoom, false, true, true},
		{"no room again", func(o *observation) { o.history.lastReason = gate.ReasonNoRoom }, noRoom, false, true, false},
		{"room, and the operator nominates next", func(*observation) {}, ready, false, true, true},
		{"room without MultiKueue", withoutMultiKueue, ready, true, true, true},
		{"room, and Kueue's dispatcher nominates", func(o *observation) { o.nominates = false }, ready, true, true, true},
		{"no room without MultiKueue", withoutMultiKueue, noRoom, false, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := observationWith(func(o *observation) { withRecord(o.wl, dispatch.Record{Yields: 1}) })
			tc.change(o)
			var record, check, event bool
			for _, w := range o.writeDecision(tc.d, o.record) {
				record, check, event = record || w.record != nil, check || w.check != nil, event || w.event != nil
			}
			if record != tc.record || check != tc.check || event != tc.event {
				t.Errorf("record: %t, check: %t, event: %t", record, check, event)
			}
		})
	}
}
