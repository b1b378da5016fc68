package lifecycle

import (
	"slices"
	"testing"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
)

func TestDecides(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Situation)
		want   bool
	}{
		{"a waiting workload", func(*Situation) {}, true},
		{"its gate was not read yet", func(s *Situation) { s.Gate.Known = false }, false},
		{"its gate has a problem", func(s *Situation) { s.Gate.Problem = "Placement gpu does not exist" }, false},
		{"it has two checks", func(s *Situation) { s.Checks.Own = append(s.Checks.Own, "second") }, false},
		{"Kueue acts next", setCheck(kueue.CheckStateRetry), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := situationWith(func(*Situation) {})
			tc.change(s)
			if got := s.Decides(); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
			if !tc.want && len(s.Decision(1).Order) > 0 {
				t.Errorf("decided %+v", s.Decision(1))
			}
		})
	}
}

// Samples of devices and of the quota have times of their own.
func TestCandidatesHaveTheTimesOfTheirSamples(t *testing.T) {
	s := situationWith(func(s *Situation) { s.Gate.Clusters = []gatestate.Cluster{{Name: "cluster1"}} })
	list := usable(s, []gate.Candidate{{Name: "cluster1", SampledAt: fixture.Noon, QuotaSampledAt: fixture.Noon.Add(-time.Minute)}})
	i := slices.IndexFunc(list, func(c gate.Candidate) bool { return c.Name == "cluster1" })
	if i < 0 || !list[i].SampledAt.Equal(fixture.Noon) || !list[i].QuotaSampledAt.Equal(fixture.Noon.Add(-time.Minute)) {
		t.Errorf("candidates %+v", list)
	}
}

// Preemption concerns workers: a workload that MultiKueue does not copy preempts on the hub.
func TestOnlyCopiedWorkloadsPreemptOnWorkers(t *testing.T) {
	for multiKueue, want := range map[string]bool{"multikueue": true, "": false} {
		s := situationWith(func(s *Situation) {
			s.Checks.MultiKueue, s.Queue.CanPreempt, s.Queue.Reclaim = multiKueue, true, gate.Reclaim{Queues: []string{"lender"}}
		})
		if s.Request.Facts.Preempts != want || s.Request.Facts.Reclaims != want {
			t.Errorf("check %q: preempts %t, reclaims %t, want %t", multiKueue, s.Request.Facts.Preempts, s.Request.Facts.Reclaims, want)
		}
	}
}

// A workload that waits for its last copy does not stop its line.
func TestWaitAfter(t *testing.T) {
	s := situationWith(func(*Situation) {})
	key := gatestate.QueryKey{Gate: "gpu", Facts: "two devices"}
	for _, tc := range []struct {
		reason  string
		want    gatestate.QueryKey
		hasRoom bool
	}{
		{gate.ReasonNoRoom, key, false},
		{gate.ReasonQueued, key, true},
		{gate.ReasonOrphanedCopy, gatestate.QueryKey{Gate: "gpu"}, false},
	} {
		e := waitAfter(s, gate.Decision{State: gate.Pending, Reason: tc.reason}, key)
		if e == nil || e.Key != tc.want || e.HasRoom != tc.hasRoom {
			t.Errorf("%s: %+v, want key %+v, has room: %t", tc.reason, e, tc.want, tc.hasRoom)
		}
	}
}

// Only a nomination that waits for an admission is widened, and ends without one.
func TestNominationsThatLastLong(t *testing.T) {
	for _, tc := range []struct {
		name           string
		change         func(*Situation)
		widen, overdue bool
	}{
		{"a nomination", func(*Situation) {}, true, false},
		{"a stuck eviction", func(s *Situation) {
			fixture.SetCondition(s.Workload, kueue.WorkloadEvicted, fixture.Noon.Add(-time.Hour))
			s.Workload.Status.AdmissionChecks[1].State = kueue.CheckStatePending
		}, false, false},
		{"after an hour", func(s *Situation) { s.Now = fixture.Noon.Add(time.Hour) }, false, true},
		{"after an hour, and the gate is unknown", func(s *Situation) { s.Now, s.Gate.Known = fixture.Noon.Add(time.Hour), false }, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := situationWith(func(s *Situation) {
				s.Workload = fixture.WithRecord(fixture.Nominated(fixture.PendingWorkload(fixture.Noon), "cluster1"), fixture.RecordOf(fixture.Noon, "cluster1"))
				s.Now = fixture.Noon.Add(30 * time.Second)
			})
			tc.change(s)
			if s.IsWideningDue() != tc.widen || isOverdue(s) != tc.overdue {
				t.Errorf("phase %s: widening is due: %t, overdue: %t", PhaseOf(s), s.IsWideningDue(), isOverdue(s))
			}
		})
	}
}

// Which requests follow a decision.
func TestWritesOfADecision(t *testing.T) {
	noRoom := gate.Decision{State: gate.Pending, Reason: gate.ReasonNoRoom, Message: "no room"}
	ready := gate.Decision{State: gate.Ready, Reason: gate.ReasonPlaceable, Message: "room", Order: []string{"cluster1"}}
	queued := gate.Decision{State: gate.Pending, Reason: gate.ReasonQueued, Message: "job b is decided first"}
	withoutMultiKueue := func(s *Situation) { s.Checks.MultiKueue = "" }
	for _, tc := range []struct {
		name                 string
		change               func(*Situation)
		d                    gate.Decision
		record, check, event bool
	}{
		{"no room", func(*Situation) {}, noRoom, false, true, true},
		{"queued for a wake-up", func(*Situation) {}, queued, false, false, false},
		{"queued after the check was Ready", setCheck(kueue.CheckStateReady), queued, false, true, true},
		{"no room again after the check was Ready", func(s *Situation) {
			setCheck(kueue.CheckStateReady)(s)
			s.History.LastReason = gate.ReasonNoRoom
		}, noRoom, false, true, true},
		{"no room again", func(s *Situation) { s.History.LastReason = gate.ReasonNoRoom }, noRoom, false, true, false},
		{"room, and the operator nominates next", func(*Situation) {}, ready, false, true, true},
		{"room without MultiKueue", withoutMultiKueue, ready, true, true, true},
		{"room, and Kueue's dispatcher nominates", func(s *Situation) { s.MultiKueue.Nominates = false }, ready, true, true, true},
		{"no room without MultiKueue", withoutMultiKueue, noRoom, false, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := situationWith(func(s *Situation) { fixture.WithRecord(s.Workload, dispatch.Record{Yields: 1}) })
			tc.change(s)
			var record, check, event bool
			for _, w := range WriteDecision(s, tc.d, s.Record.Record) {
				record, check, event = record || w.Record != nil, check || w.Check != nil, event || w.Event != nil
			}
			if record != tc.record || check != tc.check || event != tc.event {
				t.Errorf("record: %t, check: %t, event: %t", record, check, event)
			}
		})
	}
}
