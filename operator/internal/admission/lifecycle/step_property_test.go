package lifecycle

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
)

// chance is a source of random observations.
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
	r := dispatch.Record{Attempt: c.IntN(3), NominatedAt: c.around(), Nominated: c.clusters(), EverNominated: c.clusters(), Yields: c.IntN(3), Repair: c.oneIn(4)}
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
	// A seed must always give the same observation, so nothing ranges over a map.
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

// observe returns a random observation that rests on a ledger.
func (c chance) observe(l *ledger.Ledger) *Situation {
	return observationWith(func(o *Situation) {
		o.Room.LedgerTTL, o.Now = l.TTL, fixture.Noon.Add(time.Duration(c.IntN(1200))*time.Second)
		c.workload(o.Workload)
		if c.oneIn(50) {
			o.Workload = nil
			return
		}
		if c.oneIn(20) {
			staleCache(o)
			o.History.LastWrite.At = o.Now
		}
		o.MultiKueue.Nominates = !c.oneIn(4)
		o.Job.Cluster = []string{"", "", "", "cluster1"}[c.IntN(4)]
		if c.oneIn(4) {
			o.Job.Unplaced = []*kueue.Workload{fixture.Replica(2)}
		}
		if c.oneIn(2) {
			o.Job.Primary = c.primary()
		}
		o.Room.HasTurn, o.Room.OthersPending = c.oneIn(2), c.oneIn(2)
		if c.oneIn(4) {
			o.Room.Preceding = types.NamespacedName{Namespace: "team-b", Name: "first"}
		}
		if c.oneIn(8) {
			o.Job.SliceOn = c.clusters()
			o.Job.RunningSlice = fixture.ReadyFor(fixture.PendingWorkload(fixture.Noon), "cluster2", fixture.Noon)
		}
		o.MultiKueue.Connected, o.MultiKueue.Disconnected = c.clusters(), map[string]string{"cluster3": "is not connected by Kueue"}
		c.history(&o.History)
		c.gate(o)
		hasQuota := kueuestate.HoldsQuota(o.Workload)
		if !hasQuota { // see Reconciler.observe
			o.Gate.Known, o.Gate.Exists, o.Job.Cluster, o.Job.Unplaced, o.Job.Primary = false, false, "", nil, nil
		}
		o.Checks.Own = nil
		for _, name := range []string{"plimsoll", "second"} {
			if kueuestate.FindCheck(o.Workload, name) != nil {
				o.Checks.Own = append(o.Checks.Own, name)
			}
		}
		if kueuestate.FindCheck(o.Workload, "multikueue") == nil {
			o.Checks.MultiKueue, o.Job = "", Job{RunningSlice: o.Job.RunningSlice}
		} else {
			o.Job.RunningSlice = nil
		}
		if len(o.Checks.Own) == 0 {
			o.Gate.Name, o.Gate.Known, o.Gate.Exists, o.Gate.Problem = "", false, false, ""
		}
		if !hasQuota && len(o.OutdatedChecks()) == 0 {
			o.Checks, o.Gate.Name, o.MultiKueue.Config = Checks{}, "", ""
		}
		o.Room.View = l.View()
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
		h.Copies = possibleCopies{Clusters: c.clusters(), Recorded: c.oneIn(2), lostAt: fixture.Noon.Add(-time.Duration(c.IntN(20)) * time.Second)}
	}
}

func (c chance) gate(o *Situation) {
	if c.oneIn(10) {
		o.Gate.Known, o.Gate.Exists = false, c.oneIn(2)
	}
	if c.oneIn(10) {
		o.Gate.Problem = "no Placement"
	}
	after := int32(60)
	if c.oneIn(4) {
		o.Gate.Spec.WhenUnplaceable.GiveUpAfterSeconds = &after
	}
	if c.oneIn(4) {
		o.Gate.Spec.WhenUnplaceable.Mode, o.Gate.Spec.WhenUnplaceable.YieldAfterSeconds = v1alpha1.UnplaceableYield, after
	}
	one := int32(1)
	if c.oneIn(2) {
		o.Gate.Spec.Widen.By = &one
	}
	o.Room.Candidates = nil
	for _, name := range c.clusters() {
		candidate := gate.Candidate{Name: name, SampledAt: o.Now.Add(-time.Duration(c.IntN(240)) * time.Second),
			Shapes: []gate.ShapeMetrics{{Fit: gate.Known(float64(c.IntN(3))), EmptyFit: gate.Known(4), Quota: gate.Known(float64(c.IntN(5)))}}}
		if !o.MultiKueue.isConnected(name) {
			candidate.Unusable = "is not connected by Kueue"
		}
		o.Room.Candidates = append(o.Room.Candidates, candidate)
	}
}

// carryOut changes the observation as the step's writes change the hub, and as the controller
// remembers them.
func carryOut(o *Situation, s Step, l *ledger.Ledger) error {
	if s.Reservation != nil && !l.Commit(o.Room.View, string(o.Workload.UID), s.Reservation.Kept, s.Reservation.Entries, s.Reservation.Hold) {
		return fmt.Errorf("the ledger changed")
	}
	if s.LateAttempt > 0 {
		o.History.LateAttempt = s.LateAttempt
	}
	if s.PodsLate != nil {
		o.History.PodsLate = s.PodsLate
	}
	for _, w := range s.Writes {
		switch {
		case w.Record != nil:
			annotations := maps.Clone(o.Workload.Annotations)
			annotations[v1alpha1.DispatchAnnotation] = w.Record.Record.Encode()
			o.Workload.Annotations = annotations
			if w.Record.Active != nil {
				o.Workload.Spec.Active = w.Record.Active
			}
			if w.Record.Reason != "" {
				o.History.LastReason = w.Record.Reason
			}
		case w.Nomination != nil:
			o.Workload.Status.NominatedClusterNames = w.Nomination.Clusters
		default:
			for _, name := range w.Check.Names {
				entry := kueuestate.FindCheck(o.Workload, name)
				if string(entry.State) != string(w.Check.Decision.State) {
					entry.LastTransitionTime = metav1.NewTime(o.Now)
				}
				entry.State, entry.Message = kueue.CheckState(w.Check.Decision.State), w.Check.Decision.Message
				entry.PodSetUpdates = w.Check.PodSetUpdates
			}
			if w.Check.RememberReason {
				o.History.LastReason = w.Check.Decision.Reason
			}
			if w.Check.MessageKind != "" {
				o.History.LastMessage.Kind, o.History.LastMessage.At = w.Check.MessageKind, o.Now
			}
		}
	}
	o.Record = DecodeRecord(o.Workload, o.Now)
	if len(o.Checks.Own) > 0 && o.Check().State == kueue.CheckStateReady && o.MayNominate() && kueuestate.AcceptsCheckUpdate(o.Workload) {
		o.History = o.History.WithNominations(o.Workload.Status.NominatedClusterNames)
	}
	o.Room.View = l.View()
	return nil
}

// forbidden returns what a step does that Kueue's state, or another owner, forbids.
func forbidden(o *Situation, s Step) error {
	switch {
	case len(s.Writes) > 0 && (o.Workload == nil || PhaseOf(o) == PhaseCacheStale || kueuestate.IsFinished(o.Workload) || !o.Workload.DeletionTimestamp.IsZero()):
		return fmt.Errorf("writes to an object that is gone, finished or not up to date")
	case s.Wait != nil && (o.Workload == nil || !kueuestate.AcceptsCheckUpdate(o.Workload) || len(o.Checks.Own) == 0):
		return fmt.Errorf("waits for a gate that may not decide")
	case s.RequeueAfter < 0:
		return fmt.Errorf("looks again after %s", s.RequeueAfter)
	}
	hasRecord, isReady := false, map[string]bool{}
	for _, w := range s.Writes {
		var err error
		switch {
		case w.Record != nil:
			hasRecord, err = true, forbiddenRecord(o, w.Record)
		case w.Check != nil:
			err = forbiddenCheck(o, w.Check)
			for _, name := range w.Check.Names {
				isReady[name] = w.Check.Decision.State == gate.Ready
			}
		default:
			err = forbiddenNomination(o, w.Nomination, isReady)
			if err == nil && !hasRecord && PhaseOf(o) != PhaseUngated {
				err = fmt.Errorf("nominates without a record")
			}
		}
		if err != nil {
			return err
		}
	}
	return forbiddenHold(o, s)
}

func forbiddenRecord(o *Situation, w *RecordWrite) error {
	switch {
	case PhaseOf(o) == PhaseReturning && (w.Active == nil || *w.Active) && w.Record.SleepsUntil.IsZero():
		return nil
	case w.Active != nil && !*w.Active && o.Job.Cluster != "":
		return fmt.Errorf("deactivates a component, so that MultiKueue deletes those that run on %s", o.Job.Cluster)
	case w.Active != nil && (*w.Active || w.Record.SleepsUntil.IsZero()):
		return fmt.Errorf("sets spec.active to %t and activates at %s", *w.Active, w.Record.SleepsUntil)
	case PhaseOf(o) != PhaseEvictionStuck && !kueuestate.AcceptsCheckUpdate(o.Workload), len(o.Checks.Own) == 0 && PhaseOf(o) != PhaseEvictionStuck:
		return fmt.Errorf("writes the record of a workload that is not the gate's")
	}
	return nil
}

func forbiddenCheck(o *Situation, w *CheckWrite) error {
	isReset := PhaseOf(o) == PhaseQuotaLost && w.Decision.State == gate.Pending && !kueuestate.IsEvicted(o.Workload) && kueuestate.IsActive(o.Workload) && !kueuestate.IsAdmitted(o.Workload)
	if len(w.Names) == 0 || PhaseOf(o) != PhaseEvictionStuck && !kueuestate.AcceptsCheckUpdate(o.Workload) && !isReset {
		return fmt.Errorf("writes checks %v", w.Names)
	}
	for _, name := range w.Names {
		entry := kueuestate.FindCheck(o.Workload, name)
		if entry == nil || !slices.Contains(o.Checks.Own, name) || PhaseOf(o) != PhaseEvictionStuck && entry.State != kueue.CheckStatePending && entry.State != kueue.CheckStateReady {
			return fmt.Errorf("writes check %s: %+v", name, entry)
		}
	}
	if w.Decision.State == gate.Rejected && o.Job.Cluster != "" {
		return fmt.Errorf("rejects a component, so that MultiKueue deletes those that run on %s", o.Job.Cluster)
	}
	if w.Decision.State == gate.Rejected && o.Gate.Spec.WhenUnplaceable.GiveUpAfterSeconds == nil || w.Decision.State == gate.Retry {
		return fmt.Errorf("writes state %s", w.Decision.State)
	}
	if len(w.PodSetUpdates) > 0 && (w.Decision.State != gate.Ready || o.Checks.MultiKueue != "" && o.MultiKueue.Nominates) {
		return fmt.Errorf("writes updates of pods")
	}
	return nil
}

func forbiddenNomination(o *Situation, w *NominationWrite, isReady map[string]bool) error {
	before := o.Workload.Status.NominatedClusterNames
	switch {
	case !o.MultiKueue.Nominates || !kueuestate.WantsNomination(o.Workload, o.Checks.MultiKueue) || kueuestate.IsPinnedByKueue(o.Workload):
		return fmt.Errorf("nominates although another component does")
	case PhaseOf(o) != PhaseEvictionStuck && !kueuestate.AcceptsCheckUpdate(o.Workload):
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
		if !slices.Contains(before, c) && !o.MultiKueue.isConnected(c) {
			return fmt.Errorf("nominates %s, which Kueue is not connected to", c)
		}
	}
	for _, check := range o.Workload.Status.AdmissionChecks {
		if name := string(check.Name); name != o.Checks.MultiKueue && check.State != kueue.CheckStateReady && !isReady[name] {
			return fmt.Errorf("nominates before check %s is Ready", name)
		}
	}
	return nil
}

// forbiddenHold: a hold is for the workload itself, on a cluster with fresh samples and too little room.
func forbiddenHold(o *Situation, s Step) error {
	if s.Reservation == nil || s.Reservation.Hold == nil {
		return nil
	}
	h := s.Reservation.Hold
	i := slices.IndexFunc(o.Room.Candidates, func(c gate.Candidate) bool { return c.Name == h.Cluster })
	if h.UID != string(o.Workload.UID) || i < 0 || s.Decision == nil || s.Decision.State != gate.Pending {
		return fmt.Errorf("holds %s for %s", h.Cluster, h.UID)
	}
	if c := o.Room.Candidates[i]; o.Now.Sub(c.SampledAt) > gate.RulesOf(&o.Gate.Spec).MaxSampleAge || c.Unusable != "" {
		return fmt.Errorf("holds %s on old samples or without a connection", h.Cluster)
	}
	return nil
}

// Whatever the hub shows, the observation has a documented phase, the step is one that Kueue accepts,
// and carrying it out leads to a state that needs no further write.
func TestStepsOfRandomObservations(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates many cases")
	}
	const most = 8 // steps until nothing is left to write
	covered := map[Phase]int{}
	for seed := range uint64(40_000) {
		l := ledger.New(time.Second, time.Hour)
		o := chance{rand.New(rand.NewPCG(seed, 1))}.observe(l)
		for n := 0; ; n++ {
			covered[PhaseOf(o)]++
			s := Next(o)
			if err := forbidden(o, s); err != nil {
				t.Fatalf("seed %d, phase %s: %v", seed, PhaseOf(o), err)
			}
			to := s.LeadsTo(PhaseOf(o))
			if !isDocumented(PhaseOf(o), to) {
				t.Fatalf("seed %d: %s leads to %s, which is not documented", seed, PhaseOf(o), to)
			}
			if len(s.Writes) == 0 {
				break
			}
			if n == most {
				t.Fatalf("seed %d, phase %s: the step still writes %+v", seed, PhaseOf(o), s.Writes[0])
			}
			if err := carryOut(o, s, l); err != nil {
				t.Fatalf("seed %d, phase %s: %v", seed, PhaseOf(o), err)
			}
		}
	}
	for _, phase := range declaredPhases(t) {
		if covered[phase] == 0 {
			t.Errorf("phase %s was never observed", phase)
		}
	}
}
