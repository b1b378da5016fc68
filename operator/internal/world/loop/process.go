package loop

import (
	"context"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/engine"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
	"plimsoll.dev/plimsoll/operator/internal/admission/waitqueue"
	"plimsoll.dev/plimsoll/operator/internal/timing"
	"plimsoll.dev/plimsoll/operator/internal/world/hub"
)

const (
	// ledgerSettle and ledgerTTL are those of the product.
	ledgerSettle = 15 * time.Second
	ledgerTTL    = 10 * time.Minute
	// retryDelay is the wait after a step that failed.
	retryDelay = 100 * time.Millisecond
)

// process is one run of the operator, with one workload at a time.
type process struct {
	*hubView
	driver  *Driver
	engine  *engine.Engine
	results *results

	queue  []types.NamespacedName
	queued map[types.NamespacedName]bool
	// timers are the next looks at workloads.
	timers map[types.NamespacedName]time.Time
	// busy: the process works on a workload. restored: it knows what happened before it started.
	busy, restored, stopped bool
	pending                 pendingWorkloads
}

func newProcess(d *Driver) *process {
	p := &process{driver: d, queued: map[types.NamespacedName]bool{}, timers: map[types.NamespacedName]time.Time{}}
	p.hubView = newHubView(d, p)
	gates, reservations := gatestate.New(), ledger.New(ledgerSettle, ledgerTTL)
	p.results = newResults(p, reservations)
	waiting := waitqueue.New(gates, p.now, p.results.refresh)
	p.results.onRefreshed = waiting.Refreshed
	waiting.SetEnqueuer(p.enqueue)
	gates.OnChange(func(name string) { waiting.MarkDirty(name) })
	p.engine = engine.New(engine.Options{Edge: p, Registry: gates, Ledger: reservations, Waiting: waiting, Nominates: true, Decide: d.decide, Now: p.now})
	p.readGate()
	p.every(timing.WakeTick, waiting.StartWakeUps)
	p.every(timing.CleanupInterval, p.results.cleanUp)
	p.every(timing.HolderInterval, p.results.refreshHolders)
	for _, wl := range d.Workloads() {
		if lifecycle.MayNeedStep(wl) {
			p.enqueue(client.ObjectKeyFromObject(wl))
		}
	}
	return p
}

func (p *process) now() time.Time { return p.driver.now }

// after runs a function after a time, unless the process has ended by then.
func (p *process) after(wait time.Duration, do func()) {
	p.driver.Loop.After(wait, func() {
		if !p.stopped {
			do()
		}
	})
}

// every runs a function now and after each interval.
func (p *process) every(interval time.Duration, do func()) {
	p.after(0, func() {
		do()
		p.after(interval, func() { p.every(interval, do) })
	})
}

// readGate registers the gate as its controller does.
func (p *process) readGate() {
	pg := hub.Get[*v1alpha1.PlacementGate](p.store, types.NamespacedName{Name: p.driver.GateName()})
	g := gatestate.Gate{Name: pg.Name, Spec: pg.Spec, UID: pg.UID, Generation: pg.Generation}
	for _, name := range p.driver.Decided() {
		g.Clusters = append(g.Clusters, gatestate.Cluster{Name: name})
	}
	p.engine.Registry.Put(g)
}

// enqueue asks for a step of a workload.
func (p *process) enqueue(key types.NamespacedName) {
	if !p.queued[key] {
		p.queued[key] = true
		p.queue = append(p.queue, key)
	}
}

// enqueueAfter asks for a step of a workload after a time, if it does not have an earlier one.
func (p *process) enqueueAfter(key types.NamespacedName, wait time.Duration) {
	at := p.now().Add(wait)
	if planned, ok := p.timers[key]; ok && !planned.After(at) {
		return
	}
	p.timers[key] = at
	p.after(wait, func() {
		if p.timers[key].Equal(at) {
			delete(p.timers, key)
			p.enqueue(key)
		}
	})
}

// work takes the workloads in the queue a step further.
func (p *process) work() {
	for len(p.queue) > 0 && !p.busy && !p.stopped {
		key := p.queue[0]
		p.queue = p.queue[1:]
		delete(p.queued, key)
		p.busy = true
		p.step(key)
		p.busy = false
	}
}

// step takes one workload a step further, as the workload controller does.
func (p *process) step(key types.NamespacedName) {
	if !p.restored {
		p.restore()
	}
	out, err := p.engine.Step(context.Background(), key)
	switch {
	case p.stopped:
	case out != nil && (apierrors.IsConflict(err) || apierrors.IsNotFound(err)):
		p.enqueueAfter(key, timing.RereadDelay)
	case err != nil:
		p.enqueueAfter(key, retryDelay)
	case out.Step.RequeueAfter > 0:
		p.enqueueAfter(key, out.Step.RequeueAfter)
	}
}

// restore fills the ledger, the histories and the wait queue before the first step.
func (p *process) restore() {
	p.restored = true
	var waiting []waitqueue.Entry
	for _, key := range slices.SortedFunc(maps.Keys(p.workloads), compareNames) {
		wl := p.workloads[key]
		if !kueuestate.HoldsQuota(wl) {
			continue
		}
		s := p.engine.Begin(key)
		p.engine.Recall(s, wl)
		p.observeWorkload(s)
		if s = p.engine.Restore(s); s.AwaitsDecision() {
			waiting = append(waiting, s.WaitEntry(p.keyOf(s)))
		}
	}
	p.engine.RestoreOrder(waiting)
}

// keyOf is the key of the query results of a situation.
func (p *process) keyOf(s *lifecycle.Situation) gatestate.QueryKey {
	f := s.JobFacts()
	return gatestate.QueryKey{Gate: s.Gate.Name, Namespace: f.Namespace, Version: gatestate.Version{UID: s.Gate.UID, Generation: s.Gate.Generation}, Facts: f.EquivalenceKey()}
}

// Measure implements engine.Edge.
func (p *process) Measure(_ context.Context, s *lifecycle.Situation) (*lifecycle.Situation, error) {
	switch {
	case s.Decides():
		key := p.keyOf(s)
		s = p.engine.Measured(s, key, p.results.candidates(s.Gate.Gate, key, s.JobFacts()), gate.Fleet{})
		if owners := s.Request.Owners(s.Workload); s.IsWideningDue() && len(owners) > 0 {
			s.Room.HoldingOn = p.holdingOn(s.Workload, owners)
		}
	case lifecycle.PhaseOf(s) == lifecycle.PhaseGateUnknown && s.Gate.Exists:
		s.Room.Key = p.keyOf(s)
	}
	if (s.Decides() || lifecycle.PhaseOf(s) == lifecycle.PhaseAwaitingPrimary) && s.MayYield() {
		s.Room.OthersPending = p.pending.hasOther(p.hubView, s.Workload)
	}
	return s, nil
}

// holdingOn are the nominated clusters where pods of the owners hold devices.
func (p *process) holdingOn(wl *kueue.Workload, owners []ledger.Owner) (list []string) {
	holders := p.driver.Holders(owners)
	for _, name := range wl.Status.NominatedClusterNames {
		for _, owner := range owners {
			if holders[name][owner] > 0 {
				list = append(list, name)
				break
			}
		}
	}
	return list
}
