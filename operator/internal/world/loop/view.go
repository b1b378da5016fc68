package loop

import (
	"context"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
	"plimsoll.dev/plimsoll/operator/internal/timing"
	"plimsoll.dev/plimsoll/operator/internal/world/hub"
)

// hubView is the hub as a process sees it: workloads arrive after the delay of their watch, the few other objects at
// once.
type hubView struct {
	store     hub.Store
	process   *process
	options   hub.ViewOptions
	lastEvent time.Time
	workloads map[types.NamespacedName]*kueue.Workload
	// workers is the state of the MultiKueueConfig's clusters; nil = it has changed.
	workers *lifecycle.MultiKueue
}

func newHubView(d *Driver, p *process) *hubView {
	v := &hubView{store: d.Objects(), process: p, options: d.ViewOptions(nil), workloads: map[types.NamespacedName]*kueue.Workload{}}
	v.createMembers(d)
	for _, wl := range d.Workloads() {
		v.workloads[client.ObjectKeyFromObject(wl)] = wl
	}
	v.store.OnChange(v.receive)
	return v
}

// createMembers creates the MultiKueueConfig and its clusters as the gate's controller does.
func (v *hubView) createMembers(d *Driver) {
	config := &kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: d.ConfigName()}, Spec: kueue.MultiKueueConfigSpec{Clusters: d.Decided()}}
	if v.store.Add(config, "plimsoll-operator") != nil {
		return // an earlier process did
	}
	for _, name := range config.Spec.Clusters {
		if err := v.store.Add(&kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}, "plimsoll-operator"); err != nil {
			panic(err)
		}
	}
}

// receive takes an event of the hub. Events of workloads come in their order.
func (v *hubView) receive(e hub.Event) {
	if v.process.stopped {
		return
	}
	obj := e.New
	if obj == nil {
		obj = e.Old
	}
	switch obj.(type) {
	case *kueue.Workload:
		now := v.process.now()
		at := now.Add(v.options.Delay(workloadKind, e.Key, e.Version))
		if at.Before(v.lastEvent) {
			at = v.lastEvent
		}
		v.lastEvent = at
		v.process.after(at.Sub(now), func() { v.deliver(e) })
	case *kueue.MultiKueueCluster, *kueue.MultiKueueConfig:
		v.workers = nil
		v.process.after(v.process.driver.Between(2*time.Millisecond, 400*time.Millisecond, "watch workers"), v.enqueueUnplaced)
	}
}

var workloadKind = kueue.SchemeGroupVersion.WithKind("Workload")

func (v *hubView) deliver(e hub.Event) {
	old, next := v.workloads[e.Key], (*kueue.Workload)(nil)
	if e.New != nil {
		next = e.New.(*kueue.Workload)
		v.workloads[e.Key] = next
	} else {
		delete(v.workloads, e.Key)
	}
	if next == nil || lifecycle.MayNeedStep(next) || old != nil && lifecycle.MayNeedStep(old) {
		v.process.enqueue(e.Key)
	}
}

// enqueueUnplaced looks at the workloads that wait for a cluster.
func (v *hubView) enqueueUnplaced() {
	var keys []types.NamespacedName
	for key, wl := range v.workloads {
		if kueuestate.HoldsQuota(wl) && wl.Status.ClusterName == nil {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, compareNames)
	for _, key := range keys {
		v.process.enqueue(key)
	}
}

// Observe implements engine.Edge.
func (p *process) Observe(_ context.Context, s *lifecycle.Situation) (*lifecycle.Situation, error) {
	wl := p.workloads[s.Key]
	if wl == nil {
		return s, nil
	}
	p.engine.Recall(s, wl)
	if s.History.LastWrite.MayBeStored {
		s = p.readUnknownWrite(s)
	}
	if lifecycle.PhaseOf(s) == lifecycle.PhaseCacheStale {
		return s, nil
	}
	if held := s.WithQuota(); held != nil {
		s.Workload = held
		p.observeWorkload(s)
		return s, nil
	}
	if slices.ContainsFunc(wl.Status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool { return c.State == kueue.CheckStateReady }) {
		p.observeChecks(s)
		if len(s.OutdatedChecks()) == 0 {
			s.Checks, s.Gate.Name = kueuestate.Checks{}, ""
		}
	}
	return s, nil
}

// observeWorkload reads what the next step of a workload with quota depends on. Components and slices of jobs are not
// read.
func (p *process) observeWorkload(s *lifecycle.Situation) {
	p.observeChecks(s)
	s.Request.Flavors = map[string]kueue.ResourceFlavorSpec{}
	for _, name := range s.Job.AssignedFlavors(s.Workload) {
		if f := hub.Get[*kueue.ResourceFlavor](p.store, types.NamespacedName{Name: name}); f != nil {
			s.Request.Flavors[name] = f.Spec
		}
	}
	p.observeQueue(s)
	p.observeWorkers(s)
	if len(s.Checks.Own) > 0 {
		s.Gate.Gate, s.Gate.Known = p.engine.Registry.Get(s.Gate.Name)
		s.Gate.Exists = s.Gate.Known
	}
	s.Request.Facts = s.FactsUnder(s.Workload, &s.Gate.Spec)
	s.Gate.TotalWaiting = p.engine.Registry.TotalWaiting()
	s.Gate.Conflict = p.engine.Registry.Conflict(s.Gate.Name, s.Now)
}

func (v *hubView) observeChecks(s *lifecycle.Situation) {
	checks, _ := kueuestate.ChecksOf(s.Workload, func(name string) (*kueue.AdmissionCheck, error) {
		return hub.Get[*kueue.AdmissionCheck](v.store, types.NamespacedName{Name: name}), nil
	})
	s.Checks, s.Gate.Name = checks, checks.Gate()
}

func (v *hubView) observeQueue(s *lifecycle.Situation) {
	queue := hub.Get[*kueue.ClusterQueue](v.store, types.NamespacedName{Name: string(s.Workload.Status.Admission.ClusterQueue)})
	s.Queue.LacksChecks = kueuestate.LacksChecks(queue, s.Workload)
	if policy := queue.Spec.Preemption; policy != nil {
		s.Queue.PreemptsLowerPriority = kueuestate.IsPreempting(policy.WithinClusterQueue)
		s.Queue.CanPreempt = s.Queue.PreemptsLowerPriority
	}
}

// observeWorkers adds the state of the workers. Situations share it while it does not change.
func (v *hubView) observeWorkers(s *lifecycle.Situation) {
	if v.workers == nil {
		v.workers = v.readWorkers(s.Checks.Config)
	}
	s.MultiKueue.Connected, s.MultiKueue.ConnectedSince, s.MultiKueue.Disconnected = v.workers.Connected, v.workers.ConnectedSince, v.workers.Disconnected
}

func (v *hubView) readWorkers(name string) *lifecycle.MultiKueue {
	m := &lifecycle.MultiKueue{ConnectedSince: map[string]time.Time{}, Disconnected: map[string]string{}}
	config := hub.Get[*kueue.MultiKueueConfig](v.store, types.NamespacedName{Name: name})
	if config == nil {
		return m
	}
	for _, name := range config.Spec.Clusters {
		cluster := hub.Get[*kueue.MultiKueueCluster](v.store, types.NamespacedName{Name: name})
		if why := kueuestate.DisconnectedReason(config, name, cluster); why != "" {
			m.Disconnected[name] = why
			continue
		}
		m.Connected = append(m.Connected, name)
		m.ConnectedSince[name] = apimeta.FindStatusCondition(cluster.Status.Conditions, kueue.MultiKueueClusterActive).LastTransitionTime.Time
	}
	return m
}

// pendingWorkloads are the workloads that wait for quota, counted once in a while.
type pendingWorkloads struct {
	listedAt time.Time
	byQueue  map[kueue.LocalQueueName]map[types.UID]bool
}

// hasOther reports whether another workload waits for quota of the workload's queue.
func (p *pendingWorkloads) hasOther(v *hubView, wl *kueue.Workload) bool {
	if now := v.process.now(); now.Sub(p.listedAt) >= timing.PendingListTTL {
		p.listedAt, p.byQueue = now, map[kueue.LocalQueueName]map[types.UID]bool{}
		for _, other := range v.workloads {
			if kueuestate.WaitsForQuota(other) {
				if p.byQueue[other.Spec.QueueName] == nil {
					p.byQueue[other.Spec.QueueName] = map[types.UID]bool{}
				}
				p.byQueue[other.Spec.QueueName][other.UID] = true
			}
		}
	}
	pending := p.byQueue[wl.Spec.QueueName]
	return len(pending) > 1 || len(pending) == 1 && !pending[wl.UID]
}
