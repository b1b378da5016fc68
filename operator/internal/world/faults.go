package world

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/world/hub"
)

// Kinds of faults.
const (
	// Unreachable: the hub does not reach the cluster; its jobs run on.
	Unreachable FaultKind = "Unreachable"
	// Leaves: OCM loses the cluster's agent. Its placement decides the cluster for Settings.Toleration.
	Leaves FaultKind = "Leaves"
	// NodeLost: Amount nodes of the cluster stop with their pods, which start elsewhere.
	NodeLost FaultKind = "NodeLost"
	// DeviceLost: Amount devices of a node become unusable, which its exporter reports.
	DeviceLost FaultKind = "DeviceLost"
	// SchedulerDead: kube-scheduler of the cluster places no pod.
	SchedulerDead FaultKind = "SchedulerDead"
	// StartsFail: pods on the cluster never become ready, such as with an image that can't be pulled.
	StartsFail FaultKind = "StartsFail"
	// MetricsLost: no series of the cluster are scraped. StoreLost: the metrics store does not respond
	// for the cluster, and says so if Amount is 0.
	MetricsLost FaultKind = "MetricsLost"
	StoreLost   FaultKind = "StoreLost"
	// KueueMetricsLost: the series of the cluster's Kueue are not scraped.
	KueueMetricsLost FaultKind = "KueueMetricsLost"
	// PrometheusDown: queries fail. PrometheusSlow: each takes Amount milliseconds more.
	PrometheusDown FaultKind = "PrometheusDown"
	PrometheusSlow FaultKind = "PrometheusSlow"
	// Lies: the exporters of the cluster report Amount more free devices than there are.
	Lies FaultKind = "Lies"
	// OperatorDown: the operator is killed, and another process starts after Lasts.
	OperatorDown FaultKind = "OperatorDown"
	// LeaderCut: the process of the operator that leads does not reach the hub.
	LeaderCut FaultKind = "LeaderCut"
	// WritesFail: Amount of 1000 writes of the operator fail, half of them after the API server has
	// stored them.
	WritesFail FaultKind = "WritesFail"
	// HubSlow: each request of the operator takes Amount milliseconds.
	HubSlow FaultKind = "HubSlow"
	// KueueDown: Kueue and MultiKueue on the hub are down.
	KueueDown FaultKind = "KueueDown"
	// QueueStopped: the ClusterQueue of Job's queue is stopped; it drains if Amount is 1.
	QueueStopped FaultKind = "QueueStopped"
	// Deactivated: a user deactivates the job, and activates it again after Lasts.
	Deactivated FaultKind = "Deactivated"
	// Preempted: Kueue on the hub evicts the job.
	Preempted FaultKind = "Preempted"
	// CopyLost: the copies of the job are deleted on the workers.
	CopyLost FaultKind = "CopyLost"
	// Deleted: the user deletes the job.
	Deleted FaultKind = "Deleted"
	// Filled: annotations of the job's Workload leave no room for others; the user removes them after Lasts.
	Filled FaultKind = "Filled"
	// Renominated: another component clears the nominations of the job.
	Renominated FaultKind = "Renominated"
)

// faultState are the faults of the operator's surroundings at present.
type faultState struct {
	mu          sync.Mutex // requests of the operator read what follows
	promDown    int
	promSlow    time.Duration
	writesFail  int64
	hubSlow     time.Duration
	lost        map[string]string // metrics of a cluster: "scrape", "store", "silent store", "kueue"
	lies        map[string]int64
	operatorOff int
}

// begin starts a fault and schedules its end.
func (w *World) begin(f *Fault) {
	w.note("fault %s %s%s %d for %s", f.Kind, f.Cluster, f.Job, f.Amount, f.Lasts)
	undo := w.apply(f)
	if undo != nil && f.Lasts > 0 {
		w.loop.After(f.Lasts, func() {
			w.note("end of fault %s %s%s", f.Kind, f.Cluster, f.Job)
			undo()
		})
	}
}

// set changes the state that requests of the operator read.
func (s *faultState) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// apply makes a fault and returns what ends it.
func (w *World) apply(f *Fault) (undo func()) {
	if c := w.clusterOf(f.Cluster); c != nil {
		if undo, isOfCluster := w.applyToCluster(f, c); isOfCluster {
			return undo
		}
	}
	if run := w.targetOf(f); run != nil {
		return w.applyToJob(f, run)
	}
	s := &w.faults
	switch f.Kind {
	case PrometheusDown:
		s.set(func() { s.promDown++ })
		return func() { s.set(func() { s.promDown-- }) }
	case PrometheusSlow:
		s.set(func() { s.promSlow += time.Duration(f.Amount) * time.Millisecond })
		return func() { s.set(func() { s.promSlow -= time.Duration(f.Amount) * time.Millisecond }) }
	case WritesFail:
		s.set(func() { s.writesFail += f.Amount })
		return func() { s.set(func() { s.writesFail -= f.Amount }) }
	case HubSlow:
		s.set(func() { s.hubSlow += time.Duration(f.Amount) * time.Millisecond })
		return func() { s.set(func() { s.hubSlow -= time.Duration(f.Amount) * time.Millisecond }) }
	case OperatorDown:
		w.leaderlessAt = w.loop.Now()
		if s.operatorOff++; s.operatorOff == 1 {
			w.Operator.Stop()
		}
		return func() {
			if s.operatorOff--; s.operatorOff == 0 {
				w.Operator.Start()
			}
		}
	case LeaderCut:
		w.Operator.CutOff(f.Lasts)
		return func() {}
	case KueueDown:
		w.kueue.paused, w.multiKueue.paused = true, true
		return func() {
			w.multiKueue.paused = false
			w.kueue.resume()
			for _, c := range w.clusters {
				w.multiKueue.watch(c.spec.Name)
			}
		}
	default: // kinds of another part of the world
	}
	return nil
}

func (w *World) applyToCluster(f *Fault, c *cluster) (undo func(), isOfCluster bool) {
	s, name := &w.faults, c.spec.Name
	switch f.Kind {
	case Unreachable:
		c.reachable = false
		// Kueue notices a broken watch within 15 s.
		w.loop.After(w.dice.between(100*time.Millisecond, 15*time.Second, "lost "+name), func() { w.multiKueue.watch(name) })
		return func() {
			c.reachable, c.foundAt = true, w.loop.Now()
			w.loop.After(w.dice.between(time.Second, 5*time.Second, "found "+name), func() { w.multiKueue.watch(name) })
		}, true
	case Leaves:
		w.ocm.setAvailable(name, false)
		return func() { w.ocm.setAvailable(name, true) }, true
	case NodeLost:
		lost := c.loseNodes(f.Amount)
		return func() {
			for _, n := range lost {
				n.ready = true
			}
			c.schedulePods()
		}, true
	case DeviceLost:
		n := c.nodes[rand.New(rand.NewPCG(w.Spec.Seed, uint64(f.At))).IntN(len(c.nodes))]
		lost := min(f.Amount, n.pool.Devices)
		n.unusable = lost
		return func() { n.unusable = 0; c.schedulePods() }, true
	case NodeAdded:
		c.addLarger(f.Amount)
		return nil, true
	case SchedulerDead:
		c.schedulerDead = true
		return func() { c.schedulerDead = false; c.schedulePods() }, true
	case StartsFail:
		c.startsFail = true
		return func() {
			c.startsFail = false
			for _, p := range slices.SortedFunc(c.bound.all(), func(a, b *pod) int { return a.serial - b.serial }) {
				if !p.ready {
					c.startPod(p)
				}
			}
		}, true
	case MetricsLost, StoreLost, KueueMetricsLost:
		kind := map[FaultKind]string{MetricsLost: "scrape", KueueMetricsLost: "kueue", StoreLost: "store"}[f.Kind]
		if f.Kind == StoreLost && f.Amount != 0 {
			kind = "silent store"
		}
		s.set(func() { s.lost[name] = kind })
		return func() { s.set(func() { delete(s.lost, name) }); c.metricsFoundAt = w.loop.Now() }, true
	case Lies:
		s.lies[name] = f.Amount
		return func() { delete(s.lies, name); c.metricsFoundAt = w.loop.Now() }, true
	default: // kinds of another part of the world
	}
	return nil, false
}

// loseNodes stops nodes. Their pods are replaced.
func (c *cluster) loseNodes(n int64) []*node {
	var lost []*node
	for _, node := range c.nodes {
		if int64(len(lost)) == n {
			break
		}
		if !node.ready {
			continue
		}
		node.ready = false
		lost = append(lost, node)
		for _, p := range slices.Clone(node.pods) {
			job := p.job
			job.pods = slices.DeleteFunc(job.pods, func(other *pod) bool { return other == p })
			p.deleting, p.ready = true, false
			c.removePod(p)
			if job.finished == "" && !job.suspended {
				if !job.endsAt.IsZero() {
					job.endsAt = time.Time{}
					job.run.stopped(c.spec.Name)
				}
				if !job.losesPod() {
					job.start(job.batchJob.pods)
				}
				job.podsChanged()
			}
		}
	}
	return lost
}

func (w *World) runOf(name string) *Run {
	for _, r := range w.order {
		if r.Name == name || r.set != nil && r.set.name == name {
			return r
		}
	}
	return nil
}

func (w *World) applyToJob(f *Fault, run *Run) (undo func()) {
	key := run.Key
	if f.Kind == Preempted {
		key = w.holderOf(run)
	}
	wl := w.kueue.workloads.get(key)
	if wl == nil || kueuestate.IsFinished(wl) {
		return nil
	}
	switch f.Kind {
	case Deactivated:
		if !kueuestate.IsActive(wl) {
			return nil
		}
		w.setActive(key, false)
		return func() { w.setActive(key, true) }
	case Preempted:
		if kueuestate.HoldsQuota(wl) {
			w.kueue.evict(key, kueue.WorkloadEvictedByPreemption, "Preempted", nil)
		}
	case Filled:
		w.fill(key, 262_140)
		return func() { w.fill(key, 0) }
	case CopyLost:
		for _, c := range w.clusters {
			c.loseCopy(key)
		}
	case Deleted:
		w.removeJob(run)
	case Resized:
		w.resize(run, f.Amount)
	case QueueStopped:
		cq := w.kueue.quota.queues[run.Queue]
		cq.stop = kueue.Hold
		if f.Amount == 1 {
			cq.stop = kueue.HoldAndDrain
		}
		for _, key := range w.kueue.workloads.keys() {
			w.kueue.changed(key)
		}
		return func() {
			cq.stop = kueue.None
			w.kueue.resume()
		}
	case Renominated:
		w.kueue.workloads.update(key, func(wl *kueue.Workload) bool {
			if len(wl.Status.NominatedClusterNames) == 0 {
				return false
			}
			wl.Status.NominatedClusterNames = nil
			return true
		})
	default: // kinds of another part of the world
	}
	return nil
}

func (w *World) setActive(key types.NamespacedName, active bool) {
	_, _ = hub.Update(w.objects, key, "user", func(wl *kueue.Workload) bool {
		wl.Spec.Active = &active
		return true
	})
}

// notesAnnotation is an annotation of users.
const notesAnnotation = "notes"

// fill sets an annotation of a user so that all have a size in bytes; 0 = removes it.
func (w *World) fill(key types.NamespacedName, size int) {
	_, _ = hub.Update(w.objects, key, "user", func(wl *kueue.Workload) bool {
		wl.Annotations = maps.Clone(wl.Annotations)
		if wl.Annotations == nil {
			wl.Annotations = map[string]string{}
		}
		delete(wl.Annotations, notesAnnotation)
		for key, value := range wl.Annotations {
			size -= len(key) + len(value)
		}
		if size > len(notesAnnotation) {
			wl.Annotations[notesAnnotation] = strings.Repeat("x", size-len(notesAnnotation))
		}
		return true
	})
}

// deleteAll deletes all Workloads, as users do in the end.
func (w *World) deleteAll() {
	for _, key := range w.kueue.workloads.keys() {
		_ = client.IgnoreNotFound(w.objects.Remove(&kueue.Workload{}, key, "user"))
	}
}

// workloadGone ends the job of a deleted Workload.
func (w *World) workloadGone(key types.NamespacedName) {
	delete(w.jobs, key)
	if r := w.runs[key]; r != nil && r.Done.IsZero() {
		r.Deleted = true
	}
}
