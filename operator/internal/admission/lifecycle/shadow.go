package lifecycle

import (
	"fmt"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/shadow"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// A gate in mode Shadow lets every workload pass at once, so that it changes nothing, and decides afterwards what it
// would have done:
//  1. The check becomes Ready, and the operator nominates every connected cluster if it is Kueue's dispatcher.
//  2. The gate decides as if the workload still waited, until a decision sends it somewhere or its pods are ready.
//  3. The record keeps the decision. Package shadow compares it with where the workload went, and whether it started.
//
// Each decision rests on what the clusters really run, and not on what they would run if the gate had decided before.

// Reasons of events about workloads at a gate in mode Shadow.
const (
	ReasonShadow    = "Shadow"
	ReasonWouldSend = "WouldSend"
	ReasonWouldWait = "WouldWait"
)

// IsShadow reports whether the gate lets every workload pass.
func (s *Situation) IsShadow() bool {
	return s.Gate.Exists && s.Gate.Spec.Mode == v1alpha1.ModeShadow && len(s.Checks.Own) == 1
}

// enforced limits a condition to gates in mode Enforce.
func enforced(when func(*Situation) bool) func(*Situation) bool {
	return func(s *Situation) bool { return !s.IsShadow() && when(s) }
}

// isPassing reports whether the workload has yet to pass, or a cluster has connected since.
func isPassing(s *Situation) bool {
	return s.IsShadow() && kueuestate.AcceptsCheckUpdate(s.Workload) && (isPending(s) || isReady(s) && len(s.passList()) > len(s.Workload.Status.NominatedClusterNames))
}

// passList are all clusters that the workload may go to, if it is the operator's turn to nominate.
func (s *Situation) passList() []string {
	if !s.MayNominate() {
		return nil
	}
	nominated := s.Workload.Status.NominatedClusterNames
	staying := s.MultiKueue
	staying.Connected = slices.DeleteFunc(slices.Clone(staying.Connected), func(c string) bool { return s.Gate.isGoing(c, nominated) })
	return staying.everyCluster(nominated)
}

// isGoing reports whether a cluster leaves the MultiKueueConfig that the gate maintains, or would if no workload used it.
func (g Gate) isGoing(cluster string, nominated []string) bool {
	isDecided := slices.ContainsFunc(g.Clusters, func(c gatestate.Cluster) bool { return c.Name == cluster })
	return g.isLeaving(cluster, nominated) || g.Spec.MultiKueue != nil && len(g.Clusters) > 0 && !isDecided && !slices.Contains(nominated, cluster)
}

// stepPass lets the workload pass.
func stepPass(s *Situation) Step {
	next := Step{}
	message := "gate " + s.Gate.Name + " is in mode Shadow and lets every workload pass"
	if isPending(s) {
		next.Writes = []Write{{Check: &CheckWrite{Names: s.Checks.Own, Decision: gate.Decision{State: gate.Ready, Reason: ReasonShadow, Message: message}, RememberReason: true}}}
	}
	clusters, nominated := s.passList(), s.Workload.Status.NominatedClusterNames
	if len(clusters) <= len(nominated) {
		if reserved := kueuestate.QuotaReservedAt(s.Workload); len(clusters) > 0 && isPending(s) && !isRefused(s) && !s.Record.IsCurrent(reserved) {
			next.Writes = append(next.Writes, Write{Record: &RecordWrite{Record: s.Record.Adopt(nominated, reserved, s.Now)}}) // from before the gate had the queue
		}
		return next
	}
	record := s.Record.Widen(clusters, message, s.Now)
	if reserved := kueuestate.QuotaReservedAt(s.Workload); !s.Record.IsCurrent(reserved) || s.Record.Err != nil {
		record = s.Record.Begin(clusters, reserved, message, s.Now)
	}
	recorded := &record
	if isRefused(s) { // the workload passes without a record
		recorded = nil
	}
	next.Writes = append(next.Writes, Nominate(clusters, recorded, ReasonNominated, message)...)
	return next
}

// passedUnrecorded reports whether the operator nominated the workload without a record, which the API server refused.
func passedUnrecorded(s *Situation) bool {
	return s.IsShadow() && !s.History.NominatedAt.IsZero() && !s.Record.IsCurrent(kueuestate.QuotaReservedAt(s.Workload))
}

// hasPassed reports whether the gate has let the workload pass.
func hasPassed(s *Situation) bool {
	return s.IsShadow() && kueuestate.AcceptsCheckUpdate(s.Workload) && isReady(s) && s.Record.Err == nil
}

// isCompared reports whether the gate has yet to say where it would have sent a workload that has passed, and all other
// checks, too. It does not say so of a workload that follows another one of its job, or that ran before it passed, nor
// after the pods have started.
func isCompared(s *Situation) bool {
	if !hasPassed(s) || isRefused(s) || s.Checks.Awaited(s.Workload) != "" || kueuestate.FollowsPrimary(s.Workload) || kueuestate.ReplacedSlice(s.Workload) != "" {
		return false
	}
	p := s.passed()
	if p == nil {
		at := s.admittedAt()
		return at.IsZero() || !at.Before(s.Check().LastTransitionTime.Time)
	}
	isPlacedJob := kueuestate.IsComponent(s.Workload) && s.History.Running != nil // the other components are there, too
	return p.Cluster == "" && p.Outcome == "" && !isPlacedJob && s.startedAt().IsZero()
}

// passed is what the gate would have done with the workload; nil = it has not decided.
func (s *Situation) passed() *dispatch.Passed {
	return s.Record.PassedUnder(kueuestate.QuotaReservedAt(s.Workload))
}

// WouldBeOn is the cluster whose devices are reserved for a workload that has passed, and since when; empty = none is.
func (s *Situation) WouldBeOn() (string, time.Time) {
	if p := s.passed(); s.IsShadow() && p != nil && !p.HasWaited() {
		return p.Cluster, p.At
	}
	return "", time.Time{}
}

// stepCompare decides as if the workload still waited. The first decision reserves the devices of a workload that no
// cluster has admitted yet, so that a burst is not decided as if all of it went to one cluster.
func stepCompare(s *Situation) Step {
	next := stepIdle(s)
	if !s.Gate.Known {
		next.RequeueAfter = time.Second
		return next
	}
	next.RequeueAfter = earliest(next.RequeueAfter, gate.PeriodOf(&s.Gate.Spec))
	if why := undecidedPassage(s); why != "" {
		next.Writes = append(next.Writes, recordPassage(s, gate.Decision{State: gate.Pending, Reason: gate.ReasonGateNotReady, Message: gate.Truncate(why)})...)
		return next
	}
	as := s.AsWaiting()
	d, clusters, _ := Decide(as)
	if d.Reason == gate.ReasonQueued { // for quota of the other components
		next.RequeueAfter = timing.JobQuotaGrace
		return next
	}
	if s.passed() == nil && s.History.Running == nil {
		next.Reservation = reserveInShadow(as, clusters, d)
	}
	next.Writes = append(next.Writes, recordPassage(s, d)...)
	return next
}

// undecidedPassage is why the gate does not decide what it would have done; empty = it decides.
func undecidedPassage(s *Situation) string {
	switch {
	case !s.startedAt().IsZero():
		return "its pods were ready before the gate decided"
	case !s.AsWaiting().Decides():
		return "PlacementGate " + s.Gate.Name + " is not ready: " + s.Gate.Problem
	}
	return ""
}

// recordPassage writes what the gate would have done to the record, if that is not there.
func recordPassage(s *Situation, d gate.Decision) []Write {
	cluster, event := "", &Notice{Reason: ReasonWouldWait, Message: gate.Truncate("gate " + s.Gate.Name + " would keep it waiting: " + d.Message)}
	if d.State == gate.Ready {
		cluster = d.Order[0]
		event = &Notice{Reason: ReasonWouldSend, Message: gate.Truncate("gate " + s.Gate.Name + " would send it to " + cluster + ": " + d.Message)}
	}
	record := s.Record.WithPassed(cluster, d.Reason, gate.Truncate(d.Message), s.devices(), kueuestate.QuotaReservedAt(s.Workload), s.Now)
	if old := s.passed(); old != nil && *old == *record.Passed {
		return nil
	}
	return []Write{{Record: &RecordWrite{Record: record}, Event: event}}
}

// reserveInShadow reserves the devices for decisions in mode Shadow only.
func reserveInShadow(s *Situation, clusters []string, d gate.Decision) *Reservation {
	res := Reserve(s, clusters, d)
	for i := range res.Entries {
		res.Entries[i].Shadow = true
	}
	return res
}

// devices of the workload, and of other components of its job that are placed with it.
func (s *Situation) devices() (n int64) {
	for _, set := range s.JobFacts().PodSets {
		n += set.Devices()
	}
	return n
}

// AsWaiting is the situation as if the gate were in mode Enforce and had decided nothing about the workload.
func (s *Situation) AsWaiting() *Situation {
	as, wl := *s, *s.Workload
	wl.Status.NominatedClusterNames, wl.Status.ClusterName = nil, nil
	wl.Status.AdmissionChecks = append([]kueue.AdmissionCheckState(nil), wl.Status.AdmissionChecks...)
	for i, check := range wl.Status.AdmissionChecks {
		if name := string(check.Name); name == s.Checks.Own[0] || name == s.Checks.MultiKueue {
			wl.Status.AdmissionChecks[i].State = kueue.CheckStatePending
		}
	}
	wl.Status.Conditions = append(wl.Status.Conditions[:0:0], wl.Status.Conditions...)
	for _, ofWorker := range []string{kueue.WorkloadAdmitted, kueue.WorkloadPodsReady} {
		apimeta.RemoveStatusCondition(&wl.Status.Conditions, ofWorker)
	}
	as.Workload, as.Job.Cluster = &wl, ""
	as.Gate.Spec.Mode = v1alpha1.ModeEnforce
	as.Record = Record{Record: dispatch.Record{Attempt: s.Record.Attempt, Preferences: s.Record.Avoided(s.Now)}}
	as.History.Running, as.History.NominatedSeen, as.History.Refusal, as.History.Copies = nil, nil, nil, possibleCopies{}
	return &as
}

// admittedAt is when a cluster admitted the workload or, without MultiKueue, Kueue did; zero = not yet.
func (s *Situation) admittedAt() time.Time {
	if ran := s.History.Running; ran != nil {
		return ran.DebitedAt
	}
	c := apimeta.FindStatusCondition(s.Workload.Status.Conditions, kueue.WorkloadAdmitted)
	if c == nil || c.Status != metav1.ConditionTrue || s.Dispatch() != Local {
		return time.Time{}
	}
	return c.LastTransitionTime.Time
}

// startedAt is when the pods were ready under the present quota; zero = they are not, or the hub does not say so yet.
// A workload of which Kueue never says it counts as started with its admission.
func (s *Situation) startedAt() time.Time {
	admitted := s.admittedAt()
	switch {
	case admitted.IsZero():
		return time.Time{}
	case !s.History.StartedAt.IsZero():
		return s.History.StartedAt
	case !kueuestate.ReportsPodsReady(s.Workload) && s.Now.Sub(admitted) >= timing.HangsAfter:
		return admitted
	case s.Dispatch() == Local:
		since, _ := kueuestate.PodsReadySince(s.Workload, admitted)
		return since
	}
	return time.Time{}
}

// stepFollow records the outcome of a passage once the workload has started.
func stepFollow(s *Situation) Step {
	next := stepIdle(s)
	p := s.Passage()
	switch {
	case p == nil || p.Would.Outcome != "" || isRefused(s):
	case !p.StartedAt.IsZero():
		outcome := p.Settle()
		next.Writes = append(next.Writes, Write{Record: &RecordWrite{Record: s.Record.Settled(outcome)},
			Event: &Notice{Reason: ReasonShadow, Message: fmt.Sprintf("compared with gate %s: %s", s.Gate.Name, outcome)}})
	case !p.AdmittedAt.IsZero():
		next.RequeueAfter = earliest(next.RequeueAfter, max(0, p.AdmittedAt.Add(timing.HangsAfter).Sub(s.Now)))
	}
	return next
}

// Passage is what is known of the passage of a workload through a gate in mode Shadow; nil = the gate has not decided
// what it would have done.
func (s *Situation) Passage() *shadow.Passage {
	if s.Workload == nil || !hasPassed(s) || s.passed() == nil {
		return nil
	}
	p := &shadow.Passage{UID: string(s.Workload.UID), Workload: s.Key.String(), Gate: s.Gate.Name, Would: *s.passed(),
		AdmittedAt: s.admittedAt(), StartedAt: s.startedAt(), ReportsPodsReady: kueuestate.ReportsPodsReady(s.Workload)}
	if ran := s.History.Running; ran != nil {
		p.Went = ran.Cluster
	}
	return p
}
