// Package engine takes workloads through gates: it keeps what the operator remembers of them, accounts for what
// has happened, lets package lifecycle decide the next step, and carries it out. It reads and writes workloads
// by an Edge: the Kubernetes API, or a model in memory.
package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
	"plimsoll.dev/plimsoll/operator/internal/admission/waitqueue"
)

// Edge reads and writes workloads.
type Edge interface {
	// Observe adds to what Begin returned all that the next step of the workload depends on.
	Observe(ctx context.Context, s *lifecycle.Situation) (*lifecycle.Situation, error)
	// Measure adds what a decision needs, by Engine.Measured.
	Measure(ctx context.Context, s *lifecycle.Situation) (*lifecycle.Situation, error)
	// Write sends one request and remembers it.
	Write(ctx context.Context, w *Writing, request lifecycle.Write) error
	// Notify reports an event of the workload.
	Notify(s *lifecycle.Situation, n lifecycle.Notice)
}

// Options of an engine.
type Options struct {
	Edge     Edge
	Registry *gatestate.Registry
	Ledger   *ledger.Ledger
	Waiting  *waitqueue.Queue
	// Nominates: the operator is Kueue's dispatcher.
	Nominates bool
	// Decide makes the decisions of gates; nil = as the inputs do.
	Decide gate.Decider
	Now    func() time.Time
}

// Engine is what the operator knows of all workloads at gates. It is safe for concurrent use, with one Step of a
// workload at a time.
type Engine struct {
	Options
	lag       dispatch.Lag
	evictions dispatch.EvictionLag
	histories *histories
}

// New returns an engine that knows no workload.
func New(o Options) *Engine { return &Engine{Options: o, histories: newHistories()} }

// Outcome is what a step did.
type Outcome struct {
	Situation *lifecycle.Situation
	// Step without the writes that failed.
	Step lifecycle.Step
	// DecidedAt is when the ledger had the step.
	DecidedAt time.Time
	// Admission that the step saw first; nil = none.
	Admission *Admission
	// ReadyAfter is the time from the reservation of quota until the check became Ready; nil = it did not.
	ReadyAfter *time.Duration
}

// Admission by a cluster.
type Admission struct {
	Cluster string
	// After the reservation of quota.
	After time.Duration
}

// Step takes one workload one step further. Nothing is remembered, debited or written before the check for a
// stale cache has passed.
func (e *Engine) Step(ctx context.Context, key types.NamespacedName) (*Outcome, error) {
	defer e.endTurnOnPanic(key)
	s, err := e.Edge.Observe(ctx, e.Begin(key))
	if err != nil {
		e.Waiting.EndTurn(key)
		return nil, err
	}
	if lifecycle.PhaseOf(s) == lifecycle.PhaseCacheStale {
		return &Outcome{Situation: s, Step: lifecycle.Next(s)}, nil
	}
	defer e.wakeAfterHold(key, e.Ledger.HeldFor(key.String()))
	out := e.Account(s)
	if out.Situation, err = e.Edge.Measure(ctx, out.Situation); err != nil {
		e.Waiting.EndTurn(key)
		return nil, err
	}
	out.Step = e.Reserve(out.Situation)
	out.DecidedAt = e.Now()
	return out, e.Apply(ctx, out)
}

// Begin returns a situation with what does not depend on the workload.
func (e *Engine) Begin(key types.NamespacedName) *lifecycle.Situation {
	return &lifecycle.Situation{Key: key, Now: e.Now(), Gate: lifecycle.Gate{Decide: e.Decide}, MultiKueue: lifecycle.MultiKueue{Nominates: e.Nominates},
		Room: lifecycle.Room{LedgerTTL: e.Ledger.TTL, HasTurn: e.Waiting.HasTurn(key)}}
}

// Recall adds the workload with what the engine remembers of it.
func (e *Engine) Recall(s *lifecycle.Situation, wl *kueue.Workload) {
	s.Workload = wl
	s.History, s.MultiKueue.Lag = e.histories.get(wl.UID), e.lag.At(s.Now)
	s.MultiKueue.EvictionLag = max(s.MultiKueue.Lag, e.evictions.At(s.Now))
	s.Record = lifecycle.DecodeRecord(wl, s.Now).AfterFailedStart(s.History.FailedStart)
}

// Measured returns the situation with query results of the job's facts, and the ledger's view.
func (e *Engine) Measured(s *lifecycle.Situation, key gatestate.QueryKey, clusters []gate.Candidate, fleet gate.Fleet) *lifecycle.Situation {
	e.Registry.SetDevices(s.Gate.Name, s.JobFacts(), clusters)
	s = s.Measured(clusters, fleet, e.view(s))
	s.Room.Key = key
	s.Room.Preceding, s.Room.Follows = e.Waiting.Preceding(s.WaitEntry(key))
	return s
}

// view is the ledger without the reservations of the components that the workload decides for: an earlier
// decision made them.
func (e *Engine) view(s *lifecycle.Situation) ledger.View {
	view := e.Ledger.View()
	if !s.IsShadow() {
		view = view.Enforced()
	}
	if !s.Job.IsPlacedWith(s.Workload) {
		return view
	}
	var uids []string
	for _, other := range s.Job.Unplaced {
		uids = append(uids, string(other.UID))
	}
	return view.Without(uids)
}

// endTurnOnPanic ends the workload's turn, so that a panic, which controller-runtime logs and retries, does not
// stop the other workloads of the gate.
func (e *Engine) endTurnOnPanic(workload types.NamespacedName) {
	if cause := recover(); cause != nil {
		e.Waiting.EndTurn(workload)
		panic(cause)
	}
}

// wakeAfterHold requests a wake-up for the workloads that a hold kept waiting, if the cluster is no longer held for
// the workload.
func (e *Engine) wakeAfterHold(workload types.NamespacedName, held string) {
	if held != "" && e.Ledger.HeldFor(workload.String()) != held {
		e.Waiting.MarkDirty(e.Registry.GatesOf(held)...)
	}
}

// Reserve computes the next step and debits the ledger with what the step sends. It computes the step again if
// another workload debited the ledger in between, so that a burst does not send every workload to one cluster.
func (e *Engine) Reserve(s *lifecycle.Situation) lifecycle.Step {
	for {
		next := lifecycle.Next(s)
		if next.Reservation == nil || e.commit(s.Room.View, string(s.Workload.UID), *next.Reservation) {
			return next
		}
		s = s.WithView(e.view(s))
	}
}

// commit replaces the reservation of a workload, unless the ledger has changed since the view. Workloads that wait
// for the clusters where it reserves nothing any more are decided again.
func (e *Engine) commit(view ledger.View, uid string, res lifecycle.Reservation) bool {
	before, podSets := e.Ledger.Reserved(uid)
	if !e.Ledger.Commit(view, uid, res.Kept, res.Entries, res.Hold) {
		return false
	}
	after, _ := e.Ledger.Reserved(uid)
	if freed := slices.DeleteFunc(before, func(c string) bool { return slices.Contains(after, c) }); len(freed) > 0 {
		e.Waiting.MarkFreed(podSets, e.Registry.GatesOf(freed...)...)
	}
	return true
}

// History is what the engine remembers of a workload.
func (e *Engine) History(uid types.UID) lifecycle.History { return e.histories.get(uid) }

// Remember replaces what the engine remembers of a workload.
func (e *Engine) Remember(uid types.UID, h lifecycle.History) { e.histories.put(uid, h) }

// Histories is the number of workloads that the engine remembers.
func (e *Engine) Histories() int { return e.histories.count() }

// Remembered describes what is still remembered of workloads: devices in the ledger, holds, waiting workloads, passages
// and histories. It is empty if there are no workloads.
func (e *Engine) Remembered() []string {
	var list []string
	for cluster, devices := range e.Ledger.DevicesByCluster() {
		if devices != 0 {
			list = append(list, fmt.Sprintf("%d devices on %s in the ledger", devices, cluster))
		}
	}
	for _, h := range e.Ledger.View().Holds() {
		list = append(list, fmt.Sprintf("%s is held for %s", h.Cluster, h.Workload))
	}
	for gateName, kinds := range e.Waiting.Devices() {
		list = append(list, fmt.Sprintf("workloads wait at gate %s: %v", gateName, kinds))
	}
	if n := e.Registry.Shadow.Open(); n > 0 {
		list = append(list, fmt.Sprintf("%d passages through gates in mode Shadow", n))
	}
	if n := e.Histories(); n > 0 {
		list = append(list, fmt.Sprintf("%d histories of workloads", n))
	}
	slices.Sort(list)
	return list
}

// LateAdmissions are the numbers of workloads whose pods are not ready in time, by gate and cluster.
func (e *Engine) LateAdmissions() map[lifecycle.LateAdmission]int {
	return e.histories.countLateAdmissions()
}

// ObserveLag adds the times of a nomination and of the admission that followed.
func (e *Engine) ObserveLag(nominated, admitted time.Time) { e.lag.Observe(nominated, admitted) }

// Lag is how long MultiKueue takes now to act on a nomination.
func (e *Engine) Lag() time.Duration { return e.lag.At(e.Now()) }
