package workload

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
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
func (c chance) around() time.Time { return noon.Add(time.Duration(c.IntN(2400)-1200) * time.Second) }

func (c chance) record() dispatch.Record {
	r := dispatch.Record{Attempt: c.IntN(3), NominatedAt: c.around(), Nominated: c.clusters(), EverNominated: c.clusters(), Yields: c.IntN(3), Repair: c.oneIn(4)}
	if c.oneIn(2) {
		r.QuotaReservedAt = noon
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
		withSecondCheck(wl, c.state())
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
			setCondition(wl, condition.kind, c.around())
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
		wl.DeletionTimestamp = &metav1.Time{Time: noon}
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
func (c chance) observe(l *ledger.Ledger) *observation {
	return observationWith(func(o *observation) {
		o.ledgerTTL, o.now = l.TTL, noon.Add(time.Duration(c.IntN(1200))*time.Second)
		c.workload(o.wl)
		if c.oneIn(50) {
			o.wl = nil
			return
		}
		if c.oneIn(20) {
			staleCache(o)
			o.history.lastWrite.at = o.now
		}
		o.nominates = !c.oneIn(4)
		o.component = component{cluster: []string{"", "", "", "cluster1"}[c.IntN(4)]}
		if c.oneIn(4) {
			o.component.unplaced = []*kueue.Workload{replica(2)}
		}
		if c.oneIn(2) {
			o.component.primary = c.primary()
		}
		o.hasTurn, o.othersPending = c.oneIn(2), c.oneIn(2)
		if c.oneIn(4) {
			o.preceding = types.NamespacedName{Namespace: "team-b", Name: "first"}
		}
		if c.oneIn(8) {
			o.replacedSliceOn = c.clusters()
			o.runningSlice = readyFor(pendingWorkload(noon), "cluster2", noon)
		}
		o.workers.connected, o.workers.disconnected = c.clusters(), map[string]string{"cluster3": "is not connected by Kueue"}
		c.history(&o.history)
		c.gate(o)
		hasQuota := kueuestate.HoldsQuota(o.wl)
		if !hasQuota { // see Reconciler.observe
			o.gateKnown, o.gateExists, o.component = false, false, component{}
		}
		o.checks = nil
		for _, name := range []string{"plimsoll", "second"} {
			if kueuestate.FindCheck(o.wl, name) != nil {
				o.checks = append(o.checks, name)
			}
		}
		if kueuestate.FindCheck(o.wl, "multikueue") == nil {
			o.multiKueue, o.component, o.replacedSliceOn = "", component{}, nil
		} else {
			o.runningSlice = nil
		}
		if len(o.checks) == 0 {
			o.gateName, o.gateKnown, o.gateExists, o.gate.Problem = "", false, false, ""
		}
		if !hasQuota && len(o.outdatedChecks()) == 0 {
			o.forgetChecks()
		}
		o.view = l.View()
	})
}

// primary is a primary component with or without quota.
func (c chance) primary() *kueue.Workload {
	wl := replica(0)
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

func (c chance) history(h *history) {
	h.lateAttempt, h.lastReason = c.IntN(3), []string{"", gate.ReasonNoRoom}[c.IntN(2)]
	h.lastMessage.kind, h.lastMessage.at = h.lastReason, c.around()
	if c.oneIn(3) {
		h.nominatedSeen = c.clusters()
	}
	if c.oneIn(3) {
		h.copies = possibleCopies{clusters: c.clusters(), recorded: c.oneIn(2), lostAt: noon.Add(-time.Duration(c.IntN(20)) * time.Second)}
	}
}

func (c chance) gate(o *observation) {
	if c.oneIn(10) {
		o.gateKnown, o.gateExists = false, c.oneIn(2)
	}
	if c.oneIn(10) {
		o.gate.Problem = "no Placement"
	}
	after := int32(60)
	if c.oneIn(4) {
		o.gate.Spec.WhenUnplaceable.GiveUpAfterSeconds = &after
	}
	if c.oneIn(4) {
		o.gate.Spec.WhenUnplaceable.Mode, o.gate.Spec.WhenUnplaceable.YieldAfterSeconds = v1alpha1.UnplaceableYield, after
	}
	one := int32(1)
	if c.oneIn(2) {
		o.gate.Spec.Widen.By = &one
	}
	o.candidates = nil
	for _, name := range c.clusters() {
		candidate := gate.Candidate{Name: name, SampledAt: o.now.Add(-time.Duration(c.IntN(240)) * time.Second),
			Shapes: []gate.ShapeMetrics{{Fit: gate.Known(float64(c.IntN(3))), EmptyFit: gate.Known(4), Quota: gate.Known(float64(c.IntN(5)))}}}
		if !o.workers.isConnected(name) {
			candidate.Unusable = "is not connected by Kueue"
		}
		o.candidates = append(o.candidates, candidate)
	}
}

// carryOut changes the observation as the step's writes change the hub, and as the controller
// remembers them.
func carryOut(o *observation, s step, l *ledger.Ledger) error {
	if s.reservation != nil && !l.Commit(o.view, string(o.wl.UID), s.reservation.kept, s.reservation.entries, s.reservation.hold) {
		return fmt.Errorf("the ledger changed")
	}
	if s.lateAttempt > 0 {
		o.history.lateAttempt = s.lateAttempt
	}
	if s.podsLate != nil {
		o.history.podsLate = s.podsLate
	}
	for _, w := range s.writes {
		switch {
		case w.record != nil:
			annotations := maps.Clone(o.wl.Annotations)
			annotations[v1alpha1.DispatchAnnotation] = w.record.record.Encode()
			o.wl.Annotations = annotations
			if w.record.active != nil {
				o.wl.Spec.Active = w.record.active
			}
			if w.record.reason != "" {
				o.history.lastReason = w.record.reason
			}
		case w.nomination != nil:
			o.wl.Status.NominatedClusterNames = w.nomination.clusters
		default:
			for _, name := range w.check.names {
				entry := kueuestate.FindCheck(o.wl, name)
				if string(entry.State) != string(w.check.decision.State) {
					entry.LastTransitionTime = metav1.NewTime(o.now)
				}
				entry.State, entry.Message = kueue.CheckState(w.check.decision.State), w.check.decision.Message
				entry.PodSetUpdates = w.check.podSetUpdates
			}
			if w.check.rememberReason {
				o.history.lastReason = w.check.decision.Reason
			}
			if w.check.messageKind != "" {
				o.history.lastMessage.kind, o.history.lastMessage.at = w.check.messageKind, o.now
			}
		}
	}
	o.readRecord()
	if len(o.checks) > 0 && o.check().State == kueue.CheckStateReady && o.mayNominate() && kueuestate.AcceptsCheckUpdate(o.wl) {
		o.history = o.history.withNominations(o.wl.Status.NominatedClusterNames)
	}
	o.view, o.phase = l.View(), phaseOf(o)
	return nil
}

// forbidden returns what a step does that Kueue's state, or another owner, forbids.
func forbidden(o *observation, s step) error {
	switch {
	case len(s.writes) > 0 && (o.wl == nil || o.phase == PhaseCacheStale || kueuestate.IsFinished(o.wl) || !o.wl.DeletionTimestamp.IsZero()):
		return fmt.Errorf("writes to an object that is gone, finished or not up to date")
	case s.wait != nil && (o.wl == nil || !kueuestate.AcceptsCheckUpdate(o.wl) || len(o.checks) == 0):
		return fmt.Errorf("waits for a gate that may not decide")
	case s.requeueAfter < 0:
		return fmt.Errorf("looks again after %s", s.requeueAfter)
	}
	hasRecord, isReady := false, map[string]bool{}
	for _, w := range s.writes {
		var err error
		switch {
		case w.record != nil:
			hasRecord, err = true, forbiddenRecord(o, w.record)
		case w.check != nil:
			err = forbiddenCheck(o, w.check)
			for _, name := range w.check.names {
				isReady[name] = w.check.decision.State == gate.Ready
			}
		default:
			err = forbiddenNomination(o, w.nomination, isReady)
			if err == nil && !hasRecord && o.phase != PhaseUngated {
				err = fmt.Errorf("nominates without a record")
			}
		}
		if err != nil {
			return err
		}
	}
	return forbiddenHold(o, s)
}

func forbiddenRecord(o *observation, w *recordWrite) error {
	switch {
	case o.phase == PhaseReturning && (w.active == nil || *w.active) && w.record.SleepsUntil.IsZero():
		return nil
	case w.active != nil && !*w.active && o.component.cluster != "":
		return fmt.Errorf("deactivates a component, so that MultiKueue deletes those that run on %s", o.component.cluster)
	case w.active != nil && (*w.active || w.record.SleepsUntil.IsZero()):
		return fmt.Errorf("sets spec.active to %t and activates at %s", *w.active, w.record.SleepsUntil)
	case o.phase != PhaseEvictionStuck && !kueuestate.AcceptsCheckUpdate(o.wl), len(o.checks) == 0 && o.phase != PhaseEvictionStuck:
		return fmt.Errorf("writes the record of a workload that is not the gate's")
	}
	return nil
}

func forbiddenCheck(o *observation, w *checkWrite) error {
	isReset := o.phase == PhaseQuotaLost && w.decision.State == gate.Pending && !kueuestate.IsEvicted(o.wl) && kueuestate.IsActive(o.wl) && !kueuestate.IsAdmitted(o.wl)
	if len(w.names) == 0 || o.phase != PhaseEvictionStuck && !kueuestate.AcceptsCheckUpdate(o.wl) && !isReset {
		return fmt.Errorf("writes checks %v", w.names)
	}
	for _, name := range w.names {
		entry := kueuestate.FindCheck(o.wl, name)
		if entry == nil || !slices.Contains(o.checks, name) || o.phase != PhaseEvictionStuck && entry.State != kueue.CheckStatePending && entry.State != kueue.CheckStateReady {
			return fmt.Errorf("writes check %s: %+v", name, entry)
		}
	}
	if w.decision.State == gate.Rejected && o.component.cluster != "" {
		return fmt.Errorf("rejects a component, so that MultiKueue deletes those that run on %s", o.component.cluster)
	}
	if w.decision.State == gate.Rejected && o.gate.Spec.WhenUnplaceable.GiveUpAfterSeconds == nil || w.decision.State == gate.Retry {
		return fmt.Errorf("writes state %s", w.decision.State)
	}
	if len(w.podSetUpdates) > 0 && (w.decision.State != gate.Ready || o.multiKueue != "" && o.nominates) {
		return fmt.Errorf("writes updates of pods")
	}
	return nil
}

func forbiddenNomination(o *observation, w *nominationWrite, isReady map[string]bool) error {
	before := o.wl.Status.NominatedClusterNames
	switch {
	case !o.nominates || !kueuestate.WantsNomination(o.wl, o.multiKueue) || kueuestate.IsPinnedByKueue(o.wl):
		return fmt.Errorf("nominates although another component does")
	case o.phase != PhaseEvictionStuck && !kueuestate.AcceptsCheckUpdate(o.wl):
		return fmt.Errorf("nominates without quota")
	case len(w.clusters) == 0 || len(w.clusters) > dispatch.MaxNominated || len(slices.Compact(slices.Sorted(slices.Values(w.clusters)))) != len(w.clusters):
		return fmt.Errorf("nominates %v", w.clusters)
	}
	for _, c := range before {
		if !slices.Contains(w.clusters, c) {
			return fmt.Errorf("revokes %s", c)
		}
	}
	for _, c := range w.clusters {
		if !slices.Contains(before, c) && !o.workers.isConnected(c) {
			return fmt.Errorf("nominates %s, which Kueue is not connected to", c)
		}
	}
	for _, check := range o.wl.Status.AdmissionChecks {
		if name := string(check.Name); name != o.multiKueue && check.State != kueue.CheckStateReady && !isReady[name] {
			return fmt.Errorf("nominates before check %s is Ready", name)
		}
	}
	return nil
}

// forbiddenHold: a hold is for the workload itself, on a cluster with fresh samples and too little room.
func forbiddenHold(o *observation, s step) error {
	if s.reservation == nil || s.reservation.hold == nil {
		return nil
	}
	h := s.reservation.hold
	i := slices.IndexFunc(o.candidates, func(c gate.Candidate) bool { return c.Name == h.Cluster })
	if h.UID != string(o.wl.UID) || i < 0 || s.decision == nil || s.decision.State != gate.Pending {
		return fmt.Errorf("holds %s for %s", h.Cluster, h.UID)
	}
	if c := o.candidates[i]; o.now.Sub(c.SampledAt) > gate.RulesOf(&o.gate.Spec).MaxSampleAge || c.Unusable != "" {
		return fmt.Errorf("holds %s on old samples or without a connection", h.Cluster)
	}
	return nil
}
