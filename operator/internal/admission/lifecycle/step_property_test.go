package lifecycle

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
)

// chance is a source of random situations.
type chance struct{ *rand.Rand }

func (c chance) oneIn(n int) bool { return c.IntN(n) == 0 }

func (c chance) clusters() []string {
	return slices.DeleteFunc([]string{"cluster1", "cluster2", "cluster3"}, func(string) bool { return c.oneIn(2) })
}

func (c chance) state() kueue.CheckState {
	states := []kueue.CheckState{kueue.CheckStatePending, kueue.CheckStatePending, kueue.CheckStateReady, kueue.CheckStateReady, kueue.CheckStateRetry, kueue.CheckStateRejected}
	return states[c.IntN(len(states))]
}

// around is a time up to 20 minutes before or after noon.
func (c chance) around() time.Time {
	return fixture.Noon.Add(time.Duration(c.IntN(2400)-1200) * time.Second)
}

func (c chance) record() dispatch.Record {
	r := dispatch.Record{Attempt: c.IntN(3), NominatedAt: c.around(), Nominated: c.clusters(), Yields: c.IntN(3), Repair: c.oneIn(4)}
	for _, cluster := range c.clusters() {
		r.Preferences = append(r.Preferences, dispatch.Preference{Cluster: cluster, Avoid: c.oneIn(4), Until: c.around()})
	}
	if c.oneIn(2) {
		r.QuotaReservedAt = fixture.Noon
	}
	for _, at := range []*time.Time{&r.WidenedAt, &r.UnplacedSince, &r.LastYield, &r.WaitsSince, &r.SleepsUntil} {
		if c.oneIn(4) {
			*at = c.around()
		}
	}
	return r
}

// workload changes status, annotations and spec.active of a workload with checks.
func (c chance) workload(wl *kueue.Workload) {
	wl.Status.AdmissionChecks[0].State, wl.Status.AdmissionChecks[1].State = c.state(), c.state()
	if c.oneIn(4) {
		wl.Status.AdmissionChecks = append(wl.Status.AdmissionChecks, kueue.AdmissionCheckState{Name: "budget", State: c.state()})
	}
	if c.oneIn(8) {
		fixture.WithSecondCheck(wl, c.state())
	}
	if c.oneIn(8) {
		i := c.IntN(2)
		wl.Status.AdmissionChecks = slices.Delete(wl.Status.AdmissionChecks, i, i+1)
	}
	for i := range wl.Status.AdmissionChecks {
		wl.Status.AdmissionChecks[i].LastTransitionTime = metav1.NewTime(c.around())
	}
	// A seed must always give the same situation, so nothing ranges over a map.
	for _, condition := range []struct {
		kind string
		n    int
	}{{kueue.WorkloadEvicted, 4}, {kueue.WorkloadFinished, 20}, {kueue.WorkloadAdmitted, 4}} {
		if c.oneIn(condition.n) {
			fixture.SetCondition(wl, condition.kind, c.around())
		}
	}
	if c.oneIn(3) {
		wl.Status.NominatedClusterNames = c.clusters()
	}
	if c.oneIn(5) {
		name := []string{"cluster1", "cluster2", "cluster3"}[c.IntN(3)]
		wl.Status.ClusterName = &name
	}
	if c.oneIn(5) {
		active := c.oneIn(3)
		wl.Spec.Active = &active
	}
	if c.oneIn(20) {
		wl.DeletionTimestamp = &metav1.Time{Time: fixture.Noon}
	}
	if c.oneIn(10) {
		wl.Status.Admission = nil
		c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
		c.Status = metav1.ConditionFalse
	}
	wl.Annotations = map[string]string{}
	if c.oneIn(2) {
		wl.Annotations[v1alpha1.DispatchAnnotation] = c.record().Encode()
	}
	for _, annotation := range []struct {
		key    string
		values [2]string
	}{
		{v1alpha1.DispatchAnnotation, [2]string{"{", `{"attempt": -1}`}},
		{kueuestate.ComponentAnnotation, [2]string{"0", "1"}},
		{"kueue.x-k8s.io/elastic-job", [2]string{"true", "false"}},
		{kueuestate.ClusterNamesAnnotation, [2]string{"cluster2", ""}},
	} {
		if c.oneIn(8) {
			wl.Annotations[annotation.key] = annotation.values[c.IntN(2)]
		}
	}
}

// observe returns a random situation that rests on a ledger.
func (c chance) observe(l *ledger.Ledger) *Situation {
	return situationWith(func(s *Situation) {
		s.Room.LedgerTTL, s.Now = l.TTL, fixture.Noon.Add(time.Duration(c.IntN(1200))*time.Second)
		c.workload(s.Workload)
		if c.oneIn(50) {
			s.Workload = nil
			return
		}
		if c.oneIn(20) {
			staleCache(s)
			s.History.LastWrite.At = s.Now
		}
		s.MultiKueue.Nominates = !c.oneIn(4)
		s.Job.Cluster = []string{"", "", "", "cluster1"}[c.IntN(4)]
		if c.oneIn(4) {
			s.Job.Unplaced = []*kueue.Workload{fixture.Replica(2)}
		}
		if c.oneIn(2) {
			s.Job.Primary = c.primary()
		}
		s.Room.HasTurn, s.Room.OthersPending = c.oneIn(2), c.oneIn(2)
		if c.oneIn(4) {
			s.Room.Preceding = types.NamespacedName{Namespace: "team-b", Name: "first"}
		}
		if c.oneIn(8) {
			s.Job.SliceOn = c.clusters()
			s.Job.RunningSlice = fixture.ReadyFor(fixture.PendingWorkload(fixture.Noon), "cluster2", fixture.Noon)
		}
		s.MultiKueue.Connected, s.MultiKueue.Disconnected = c.clusters(), map[string]string{"cluster3": "is not connected by Kueue"}
		c.history(&s.History)
		awaitsRoom := c.oneIn(10)
		if away := time.Duration(c.IntN(3600)) * time.Second; awaitsRoom {
			[]func(time.Duration) func(*Situation){yieldedByPreemptor, parked}[c.IntN(2)](away)(s)
		}
		if c.oneIn(8) {
			inOrder(neverFits, neverFor(time.Duration(c.IntN(1200))*time.Second))(s)
		}
		isDecidedFirst := !awaitsRoom && c.oneIn(10)
		if isDecidedFirst {
			decidedFirst(c.oneIn(2))(s)
			releasedAgo(time.Duration(c.IntN(120)) * time.Second)(s)
		}
		if c.oneIn(20) {
			s.History.Refusal = &Refusal{At: s.Now.Add(-time.Duration(c.IntN(80)) * time.Second), Message: "refused", OfCheck: c.oneIn(4)}
		}
		c.gate(s)
		hasQuota := kueuestate.HoldsQuota(s.Workload) || awaitsRoom || isDecidedFirst
		if !hasQuota { // see Reconciler.observe
			s.Gate.Known, s.Gate.Exists, s.Job.Cluster, s.Job.Unplaced, s.Job.Primary = false, false, "", nil, nil
		}
		s.Checks.Own = nil
		for _, name := range []string{"plimsoll", "second"} {
			if kueuestate.FindCheck(s.Workload, name) != nil {
				s.Checks.Own = append(s.Checks.Own, name)
			}
		}
		if kueuestate.FindCheck(s.Workload, "multikueue") == nil {
			s.Checks.MultiKueue, s.Job = "", Job{RunningSlice: s.Job.RunningSlice}
		} else {
			s.Job.RunningSlice = nil
		}
		if len(s.Checks.Own) == 0 {
			s.Gate.Name, s.Gate.Known, s.Gate.Exists, s.Gate.Problem = "", false, false, ""
		}
		if !hasQuota && len(s.OutdatedChecks()) == 0 {
			s.Checks, s.Gate.Name = kueuestate.Checks{}, ""
		}
		s.Room.View = l.View()
	})
}

// primary is a primary component with or without quota.
func (c chance) primary() *kueue.Workload {
	wl := fixture.Replica(0)
	wl.Status.AdmissionChecks[0].State = c.state()
	if c.oneIn(2) {
		active := c.oneIn(2)
		wl.Spec.Active = &active
	}
	if c.oneIn(2) {
		wl.Status.Admission = nil
	}
	if c.oneIn(2) {
		wl.Annotations[v1alpha1.DispatchAnnotation] = c.record().Encode()
	}
	return wl
}

func (c chance) history(h *History) {
	h.LateAttempt, h.LastReason = c.IntN(3), []string{"", gate.ReasonNoRoom}[c.IntN(2)]
	h.LastMessage.Kind, h.LastMessage.At = h.LastReason, c.around()
	if c.oneIn(3) {
		h.NominatedSeen = c.clusters()
	}
	if c.oneIn(3) {
		h.Copies = possibleCopies{Clusters: c.clusters(), Recorded: c.oneIn(2), LostAt: fixture.Noon.Add(-time.Duration(c.IntN(20)) * time.Second)}
	}
}

func (c chance) gate(s *Situation) {
	if c.oneIn(10) {
		s.Gate.Known, s.Gate.Exists = false, c.oneIn(2)
	}
	if c.oneIn(10) {
		s.Gate.Problem = "no Placement"
	}
	after := int32(60)
	if c.oneIn(4) {
		s.Gate.Spec.WhenUnplaceable.GiveUpAfterSeconds = &after
	}
	if c.oneIn(4) {
		s.Gate.Spec.WhenUnplaceable.Mode, s.Gate.Spec.WhenUnplaceable.YieldAfterSeconds = v1alpha1.UnplaceableYield, after
	}
	s.Room.Candidates = nil
	for _, name := range c.clusters() {
		candidate := gate.Candidate{Name: name, SampledAt: s.Now.Add(-time.Duration(c.IntN(240)) * time.Second),
			Shapes: []gate.ShapeMetrics{{Fit: gate.Known(float64(c.IntN(3))), EmptyFit: gate.Known(4), Quota: gate.Known(float64(c.IntN(5)))}}}
		if !s.MultiKueue.isConnected(name) {
			candidate.Exclude(gate.RejectDisconnected, "is not connected by Kueue")
		}
		s.Room.Candidates = append(s.Room.Candidates, candidate)
	}
	if c.oneIn(5) {
		s.Gate.Spec.Mode = v1alpha1.ModeShadow
	}
}

// carryOut changes the situation as the step's writes change the hub, and as the controller
// remembers them.
func carryOut(s *Situation, next Step, l *ledger.Ledger) error {
	if next.Reservation != nil && !l.Commit(s.Room.View, string(s.Workload.UID), next.Reservation.Kept, next.Reservation.Entries, next.Reservation.Hold) {
		return fmt.Errorf("the ledger changed")
	}
	if next.LateAttempt > 0 {
		s.History.LateAttempt = next.LateAttempt
	}
	if next.PodsLate != nil {
		s.History.PodsLate = next.PodsLate
	}
	for _, w := range next.Writes {
		switch {
		case w.Record != nil:
			annotations := maps.Clone(s.Workload.Annotations)
			annotations[v1alpha1.DispatchAnnotation] = w.Record.Record.Encode()
			s.Workload.Annotations = annotations
			if w.Record.Active != nil {
				s.Workload.Spec.Active = w.Record.Active
			}
			if w.Record.Reason != "" {
				s.History.LastReason = w.Record.Reason
			}
		case w.Nomination != nil:
			s.Workload.Status.NominatedClusterNames = w.Nomination.Clusters
		default:
			for _, name := range w.Check.Names {
				entry := kueuestate.FindCheck(s.Workload, name)
				if string(entry.State) != string(w.Check.Decision.State) {
					entry.LastTransitionTime = metav1.NewTime(s.Now)
				}
				entry.State, entry.Message = kueue.CheckState(w.Check.Decision.State), w.Check.Decision.Message
				entry.PodSetUpdates = w.Check.PodSetUpdates
			}
			if w.Check.RememberReason {
				s.History.LastReason = w.Check.Decision.Reason
			}
			if w.Check.MessageKind != "" {
				s.History.LastMessage.Kind, s.History.LastMessage.At = w.Check.MessageKind, s.Now
			}
		}
	}
	s.Record = DecodeRecord(s.Workload, s.Now)
	if len(s.Checks.Own) > 0 && s.Check().State == kueue.CheckStateReady && s.MayNominate() && kueuestate.AcceptsCheckUpdate(s.Workload) {
		s.History = s.History.WithNominations(s.Workload.Status.NominatedClusterNames)
	}
	s.Room.View = l.View()
	return nil
}

// forbidden returns what a step does that Kueue's state, or another owner, forbids.
func forbidden(s *Situation, next Step) error {
	switch {
	case len(next.Writes) > 0 && (s.Workload == nil || PhaseOf(s) == PhaseCacheStale || kueuestate.IsFinished(s.Workload) || !s.Workload.DeletionTimestamp.IsZero()):
		return fmt.Errorf("writes to an object that is gone, finished or not up to date")
	case next.Wait != nil && !next.Wait.Parked && (s.Workload == nil || !kueuestate.AcceptsCheckUpdate(s.Workload) || len(s.Checks.Own) == 0):
		return fmt.Errorf("waits for a gate that may not decide")
	case next.RequeueAfter < 0:
		return fmt.Errorf("looks again after %s", next.RequeueAfter)
	}
	if err := forbiddenInShadow(s, next); err != nil {
		return err
	}
	hasRecord, isReady := false, map[string]bool{}
	for _, w := range next.Writes {
		var err error
		switch {
		case w.Record != nil:
			hasRecord, err = true, forbiddenRecord(s, w.Record)
		case w.Check != nil:
			err = forbiddenCheck(s, w.Check)
			for _, name := range w.Check.Names {
				isReady[name] = w.Check.Decision.State == gate.Ready
			}
		default:
			err = forbiddenNomination(s, w.Nomination, isReady)
			if err == nil && !hasRecord && PhaseOf(s) != PhaseUngated && (PhaseOf(s) != PhasePassing || s.History.Refusal == nil) {
				err = fmt.Errorf("nominates without a record")
			}
		}
		if err != nil {
			return err
		}
	}
	return forbiddenHold(s, next)
}

// forbiddenInShadow: a gate in mode Shadow keeps nothing waiting, and returns nothing to its queue.
func forbiddenInShadow(s *Situation, next Step) error {
	if s.Workload == nil || !s.IsShadow() {
		return nil
	}
	if next.Wait != nil || next.Decision != nil || next.Reservation != nil && next.Reservation.Hold != nil {
		return fmt.Errorf("waits, counts a decision or holds a cluster in mode Shadow")
	}
	for _, w := range next.Writes {
		if w.Record != nil && w.Record.Active != nil && !*w.Record.Active {
			return fmt.Errorf("deactivates a workload in mode Shadow")
		}
		if w.Check != nil && w.Check.Decision.State != gate.Ready && PhaseOf(s) != PhaseQuotaLost {
			return fmt.Errorf("sets the check %s in mode Shadow", w.Check.Decision.State)
		}
	}
	if len(next.Writes) == 0 && kueuestate.AcceptsCheckUpdate(s.Workload) && PhaseOf(s) != PhaseCacheStale && s.Check().State == kueue.CheckStatePending {
		return fmt.Errorf("leaves the check Pending in mode Shadow")
	}
	return nil
}

func forbiddenRecord(s *Situation, w *RecordWrite) error {
	switch {
	case (PhaseOf(s) == PhaseReturning || PhaseOf(s) == PhaseAwaitingRoom || PhaseOf(s) == PhaseParked || PhaseOf(s) == PhaseHeldBack) && (w.Active == nil || *w.Active) && w.Record.SleepsUntil.IsZero():
		return nil
	case w.Active != nil && !*w.Active && s.Job.Cluster != "":
		return fmt.Errorf("deactivates a component, so that MultiKueue deletes those that run on %s", s.Job.Cluster)
	case w.Active != nil && (*w.Active || w.Record.SleepsUntil.IsZero()):
		return fmt.Errorf("sets spec.active to %t and activates at %s", *w.Active, w.Record.SleepsUntil)
	case PhaseOf(s) == PhaseReleased && w.Active != nil: // it has no quota
	case PhaseOf(s) == PhaseHeldBack && w.Active == nil: // the record of a failed start
	case PhaseOf(s) != PhaseEvictionStuck && !kueuestate.AcceptsCheckUpdate(s.Workload), len(s.Checks.Own) == 0 && PhaseOf(s) != PhaseEvictionStuck:
		return fmt.Errorf("writes the record of a workload that is not the gate's")
	}
	return nil
}

func forbiddenCheck(s *Situation, w *CheckWrite) error {
	isReset := PhaseOf(s) == PhaseQuotaLost && w.Decision.State == gate.Pending && !kueuestate.IsEvicted(s.Workload) && kueuestate.IsActive(s.Workload) && !kueuestate.IsAdmitted(s.Workload) || PhaseOf(s) == PhaseHeldBack && w.Decision.State == gate.Pending
	if len(w.Names) == 0 || PhaseOf(s) != PhaseEvictionStuck && !kueuestate.AcceptsCheckUpdate(s.Workload) && !isReset {
		return fmt.Errorf("writes checks %v", w.Names)
	}
	for _, name := range w.Names {
		entry := kueuestate.FindCheck(s.Workload, name)
		if entry == nil || !slices.Contains(s.Checks.Own, name) || PhaseOf(s) != PhaseEvictionStuck && entry.State != kueue.CheckStatePending && entry.State != kueue.CheckStateReady {
			return fmt.Errorf("writes check %s: %+v", name, entry)
		}
	}
	if w.Decision.State == gate.Rejected && s.Job.Cluster != "" {
		return fmt.Errorf("rejects a component, so that MultiKueue deletes those that run on %s", s.Job.Cluster)
	}
	if w.Decision.State == gate.Rejected && s.Gate.Spec.WhenUnplaceable.GiveUpAfterSeconds == nil || w.Decision.State == gate.Retry {
		return fmt.Errorf("writes state %s", w.Decision.State)
	}
	if len(w.PodSetUpdates) > 0 && (w.Decision.State != gate.Ready || s.Checks.MultiKueue != "" && s.MultiKueue.Nominates) {
		return fmt.Errorf("writes updates of pods")
	}
	return nil
}

func forbiddenNomination(s *Situation, w *NominationWrite, isReady map[string]bool) error {
	before := s.Workload.Status.NominatedClusterNames
	switch {
	case !s.MultiKueue.Nominates || !kueuestate.WantsNomination(s.Workload, s.Checks.MultiKueue) || kueuestate.IsPinnedByKueue(s.Workload):
		return fmt.Errorf("nominates although another component does")
	case PhaseOf(s) != PhaseEvictionStuck && !kueuestate.AcceptsCheckUpdate(s.Workload):
		return fmt.Errorf("nominates without quota")
	case len(w.Clusters) == 0 || len(w.Clusters) > dispatch.MaxNominated || len(slices.Compact(slices.Sorted(slices.Values(w.Clusters)))) != len(w.Clusters):
		return fmt.Errorf("nominates %v", w.Clusters)
	}
	for _, c := range before {
		if !slices.Contains(w.Clusters, c) {
			return fmt.Errorf("revokes %s", c)
		}
	}
	for _, c := range w.Clusters {
		if !slices.Contains(before, c) && !s.MultiKueue.isConnected(c) {
			return fmt.Errorf("nominates %s, which Kueue is not connected to", c)
		}
	}
	for _, check := range s.Workload.Status.AdmissionChecks {
		if name := string(check.Name); name != s.Checks.MultiKueue && check.State != kueue.CheckStateReady && !isReady[name] {
			return fmt.Errorf("nominates before check %s is Ready", name)
		}
	}
	return nil
}

// forbiddenHold: a hold is for the workload itself, on a cluster with fresh samples and too little room.
func forbiddenHold(s *Situation, next Step) error {
	if next.Reservation == nil || next.Reservation.Hold == nil {
		return nil
	}
	h := next.Reservation.Hold
	i := slices.IndexFunc(s.Room.Candidates, func(c gate.Candidate) bool { return c.Name == h.Cluster })
	if h.UID != string(s.Workload.UID) || i < 0 || next.Decision == nil || next.Decision.State != gate.Pending {
		return fmt.Errorf("holds %s for %s", h.Cluster, h.UID)
	}
	if c := s.Room.Candidates[i]; s.Now.Sub(c.SampledAt) > gate.RulesOf(&s.Gate.Spec).MaxSampleAge || len(c.Excluded) > 0 {
		return fmt.Errorf("holds %s on old samples or without a connection", h.Cluster)
	}
	return nil
}

// Whatever the hub shows, the situation has a documented phase, the step is one that Kueue accepts,
// and carrying it out leads to a state that needs no further write.
func TestStepsOfRandomObservations(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates many cases")
	}
	const most = 8 // steps until nothing is left to write
	covered := map[Phase]int{}
	for seed := range uint64(40_000) {
		l := ledger.New(time.Second, time.Hour)
		s := chance{rand.New(rand.NewPCG(seed, 1))}.observe(l)
		for n := 0; ; n++ {
			covered[PhaseOf(s)]++
			next := Next(s)
			if err := forbidden(s, next); err != nil {
				t.Fatalf("seed %d, phase %s: %v", seed, PhaseOf(s), err)
			}
			to := next.LeadsTo(PhaseOf(s))
			if !isDocumented(PhaseOf(s), to) {
				t.Fatalf("seed %d: %s leads to %s, which is not documented", seed, PhaseOf(s), to)
			}
			if len(next.Writes) == 0 {
				break
			}
			if n == most {
				t.Fatalf("seed %d, phase %s: the step still writes %+v", seed, PhaseOf(s), next.Writes[0])
			}
			if err := carryOut(s, next, l); err != nil {
				t.Fatalf("seed %d, phase %s: %v", seed, PhaseOf(s), err)
			}
		}
	}
	for _, phase := range declaredPhases(t) {
		if covered[phase] == 0 {
			t.Errorf("phase %s was never observed", phase)
		}
	}
}
