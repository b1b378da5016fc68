package world

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/world/hub"
	"plimsoll.dev/plimsoll/operator/internal/world/metrics"
)

// scoreName is the score of the policy by which OCM ranks.
const scoreName = "score"

// World is the state of everything around the operator: the hub's API server, Kueue, MultiKueue,
// OCM, the workers and the metrics store. The driver runs the operator against Hub and Transport, and
// the world's events by Loop.
type World struct {
	Spec  Spec
	Loop  *Loop
	Hub   *hub.Server
	Store *metrics.Store
	// Operator reports and changes the state of the operator; the driver sets it.
	Operator Operator

	loop     *Loop
	settings Settings
	dice     *dice
	start    time.Time
	closed   time.Duration
	// calmSince is when the last fault ended that disturbs all clusters.
	calmSince time.Time
	// leaderlessAt is when no process of the operator led for the last time.
	leaderlessAt time.Time
	// longestRun is the longest time for which a pod has stayed on a cluster.
	longestRun time.Duration
	// reclaims are the times within the last hour at which jobs returned to their queues, and moves those for which
	// others did.
	reclaims []time.Time
	moves    []move
	// profiles are the JobProfiles.
	profiles map[types.NamespacedName]*v1alpha1.JobProfile
	// quotaWrongSince is since when a measured quota has been wrong; reporting: the status of ClusterQueues is about to
	// be written.
	quotaWrongSince time.Time
	reporting       bool

	clusters   []*cluster
	kueue      *kueueControl
	multiKueue *multiKueue
	ocm        *ocm
	hubStore   *hubWorkloads
	objects    hub.Store
	config     *kueue.MultiKueueConfig
	mkClusters map[string]*kueue.MultiKueueCluster

	runs  map[types.NamespacedName]*Run
	order []*Run
	// unfinished are the runs that were not over at the last check, in order, and preemptors those for which a running
	// job was preempted.
	unfinished, preemptors []*Run
	checks                 int
	// quiet are the results of isQuiet while the state of the world does not change; nil = it may change.
	quiet map[*cluster]bool
	// doubted are the clusters that the operator doubts at the last check.
	doubted map[string]bool
	// workloads is the number of Workloads of the spec's jobs.
	workloads int
	jobs      map[types.NamespacedName]*batchJob

	metrics metricsState
	undo    map[FaultKind]func() // of faults that Begin started
	faults  faultState

	// Problems are the broken invariants.
	Problems []Problem
	log      []string
	// Verbose prints each line of the log.
	Verbose func(string)
	// Quiet: the world has no log.
	Quiet bool
}

// Operator is what the world knows of the operator.
type Operator interface {
	// Stop ends the process that leads without a chance to write, Start starts another one.
	Stop()
	Start()
	// CutOff cuts the process that leads off from the hub for a time.
	CutOff(lasts time.Duration)
	// Running reports whether a process leads that reaches the hub.
	Running() bool
	// Remaining describes what the operator still remembers of workloads; empty = nothing.
	Remaining() string
	// Holds are the workloads for which each cluster is held, at most one for each kind of device.
	Holds() map[string][]string
	// Doubted are the clusters that the operator takes for broken, because jobs have not started there.
	Doubted() map[string]bool
}

// New builds a world with an API server and a metrics store before its first event. now is the clock.
func New(spec Spec, scheme *runtime.Scheme, rules *metrics.Rules, now func() time.Time) (*World, error) {
	w := newWorld(spec, now)
	w.Hub = hub.NewServer(scheme, now)
	w.objects = w.Hub
	if err := w.metrics.open(w, rules); err != nil {
		return nil, err
	}
	w.open()
	return w, nil
}

// NewPlain builds a world without API server and metrics store. The hub's objects are in maps, and Candidates has
// the results of queries.
func NewPlain(spec Spec, now func() time.Time) *World {
	w := newWorld(spec, now)
	w.objects = hub.NewObjects(now, copyOf)
	w.open()
	return w
}

// copyOf is a copy of an object that may be changed.
func copyOf(obj client.Object) client.Object {
	if wl, ok := obj.(*kueue.Workload); ok {
		return copyOfWorkload(wl)
	}
	return obj.DeepCopyObject().(client.Object)
}

func newWorld(spec Spec, now func() time.Time) *World {
	spec = complete(spec)
	w := &World{Spec: spec, Loop: NewLoop(now), settings: spec.Settings, dice: newDice(spec.Seed), start: now(),
		runs: map[types.NamespacedName]*Run{}, jobs: map[types.NamespacedName]*batchJob{}, mkClusters: map[string]*kueue.MultiKueueCluster{}, undo: map[FaultKind]func(){}, profiles: map[types.NamespacedName]*v1alpha1.JobProfile{},
		faults: faultState{lost: map[string]string{}, lies: map[string]int64{}}}
	w.loop, w.workloads = w.Loop, spec.workloads()
	flavors := spec.flavors()
	for i := range spec.Clusters {
		w.clusters = append(w.clusters, newCluster(w, &w.Spec.Clusters[i]))
	}
	w.hubStore = &hubWorkloads{liveWorkloads: newLiveWorkloads()}
	w.kueue = w.newHubKueue(flavors)
	w.multiKueue = &multiKueue{world: w, check: multiKueueAC, remotes: map[string]*remote{}, pending: map[types.NamespacedName]time.Time{}, deleted: map[types.NamespacedName]*kueue.Workload{}}
	w.kueue.then = func(key types.NamespacedName) { w.multiKueue.changed(key, 0) }
	w.ocm = &ocm{world: w, lostAt: map[string]time.Time{}}
	for _, c := range w.clusters {
		c.kueue = c.newWorkerKueue(flavors)
		w.multiKueue.remotes[c.spec.Name] = &remote{cluster: c, tokens: clientBurst, at: now()}
	}
	return w
}

// open creates what the hub has in the beginning, and schedules what will happen.
func (w *World) open() {
	w.hubStore.store = w.objects
	w.objects.OnChange(w.onHubChange)
	w.createHub()
	w.metrics.start(w)
	w.plan()
	w.loop.After(collectInterval, w.multiKueue.collect)
}

func (w *World) newHubKueue(flavors []flavor) *kueueControl {
	k := &kueueControl{world: w, name: "hub", workloads: w.hubStore, pending: map[types.NamespacedName]bool{}, timers: map[types.NamespacedName]time.Time{},
		quota: newQuota(w.Spec.Queues, flavors), podsReadyTimeout: w.settings.HubPodsReadyTimeout}
	k.jobOf = func(key types.NamespacedName) *batchJob { return w.jobs[key] }
	k.checksOf = func(queue string) []string {
		q := k.quota.queues[queue]
		if q == nil {
			return nil
		}
		checks := []string{multiKueueAC}
		if !q.spec.NoGate {
			checks = []string{checkName, multiKueueAC}
		}
		if q.spec.OtherCheck {
			checks = append(checks, "other")
		}
		if w.settings.tries(queue) {
			checks = append(checks, trialCheck)
		}
		return checks
	}
	k.startJob = func(key types.NamespacedName, _ *kueue.Workload) {
		if w.runs[key].set == nil { // pods of a set stay gated on the hub
			w.jobs[key].suspended = false
			k.changed(key)
		}
	}
	k.stopJob = func(key types.NamespacedName, _ *kueue.Workload) {
		if j := w.jobs[key]; !j.suspended {
			j.suspended = true
			k.changed(key)
		}
	}
	return k
}

// byFlavor are devices by the flavors that the queue has for their models.
func (q *Queue) byFlavor(byModel map[string]int64) map[string]int64 {
	sum := map[string]int64{}
	for model, n := range byModel {
		if q.AnyModel {
			model = anyModel
		}
		sum[FlavorOf(model)] += n
	}
	return sum
}

// anyModel is the name of the flavor for the devices of all models.
const anyModel = "any-model"

// flavors are those of all queues.
func (s *Spec) flavors() []flavor {
	list := flavorsOf(s.Clusters)
	if slices.ContainsFunc(s.Queues, func(q Queue) bool { return q.AnyModel }) {
		list = append(list, flavor{name: anyModel, resource: defaultResource})
	}
	return list
}

// flavorsOf are the flavors of all device models, in the order of the pools.
func flavorsOf(clusters []Cluster) []flavor {
	var list []flavor
	for i := range clusters {
		for _, p := range clusters[i].Pools {
			f := flavor{FlavorOf(p.Model), p.Model, p.Resource}
			if !slices.Contains(list, f) {
				list = append(list, f)
			}
		}
	}
	return list
}

// onHubChange passes the writes of everybody on to Kueue, MultiKueue and OCM. It may run on a goroutine of
// the operator, so that it only schedules.
func (w *World) onHubChange(e hub.Event) {
	if wl, isWorkload := e.New.(*kueue.Workload); isWorkload && e.Type != hub.Deleted {
		w.hubStore.put(types.NamespacedName{Namespace: wl.Namespace, Name: wl.Name}, wl)
	} else if wl, isWorkload := e.Old.(*kueue.Workload); isWorkload {
		w.hubStore.put(types.NamespacedName{Namespace: wl.Namespace, Name: wl.Name}, nil)
	}
	w.loop.After(0, func() { w.handle(e) })
}

func (w *World) handle(e hub.Event) {
	obj := e.New
	if e.Type == hub.Deleted {
		obj = e.Old
	}
	switch o := obj.(type) {
	case *kueue.Workload:
		key := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
		if e.Type == hub.Deleted {
			w.multiKueue.deleted[key] = o
			w.workloadGone(key)
		}
		w.workloadChanged(key, e)
		w.kueue.changed(key)
		w.reportReservations()
	case *kueue.MultiKueueConfig:
		if e.Type != hub.Deleted {
			w.config = o
		}
		w.loop.After(batchPeriod, func() {
			for _, key := range w.kueue.workloads.keys() {
				w.multiKueue.changed(key, 0)
			}
		})
	case *kueue.MultiKueueCluster:
		w.mkClusters[o.Name] = o
		if e.Type == hub.Added {
			w.loop.After(w.dice.between(500*time.Millisecond, 3*time.Second, "connect "+o.Name), func() { w.multiKueue.watch(o.Name) })
		}
	case *v1alpha1.JobProfile:
		w.profileChanged(e, o)
	case *kueue.Cohort:
		w.cohortChanged(o)
	case *batchv1.Job:
		w.copyChanged(e, o)
	case *clusterv1alpha1.AddOnPlacementScore:
		w.ocm.changed()
	}
}

// note adds a line to the world's log.
func (w *World) note(format string, args ...any) {
	if w.Quiet {
		return
	}
	line := fmt.Sprintf("%8.3fs ", w.loop.Now().Sub(w.start).Seconds()) + fmt.Sprintf(format, args...)
	w.log = append(w.log, line)
	if w.Verbose != nil {
		w.Verbose(line)
	}
}

// Log is what happened, a line for each event.
func (w *World) Log() string { return strings.Join(w.log, "\n") }

// Elapsed is the time since the start, until the world was closed.
func (w *World) Elapsed() time.Duration {
	if w.closed > 0 {
		return w.closed
	}
	return w.loop.Now().Sub(w.start)
}

// Close ends the world's time.
func (w *World) Close() { w.closed = w.Elapsed() }

// Runs are the jobs that were submitted, in that order.
func (w *World) Runs() []*Run { return w.order }

// Transport serves queries.
func (w *World) Transport() http.RoundTripper { return w.metrics.transport }

// clusterOf is the cluster of a name; nil = none.
func (w *World) clusterOf(name string) *cluster {
	for _, c := range w.clusters {
		if c.spec.Name == name {
			return c
		}
	}
	return nil
}

// plan schedules the arrivals and the faults.
func (w *World) plan() {
	for i := range w.Spec.Jobs {
		j := &w.Spec.Jobs[i]
		w.loop.After(j.At, func() { w.submit(j) })
	}
	for i := range w.Spec.Faults {
		f := &w.Spec.Faults[i]
		w.loop.After(f.At, func() { w.begin(f) })
	}
	w.loop.After(w.settings.CheckInterval, w.check)
}

// NoteLater adds a line to the log from any goroutine.
func (w *World) NoteLater(line string) { w.loop.After(0, func() { w.note("%s", line) }) }

// Between is the next random duration of a subject.
func (w *World) Between(low, high time.Duration, subject string) time.Duration {
	return w.dice.between(low, high, subject)
}

// ViewOptions are those of the hub's caches in a process of the operator.
func (w *World) ViewOptions(transform toolscache.TransformFunc) hub.ViewOptions {
	return hub.ViewOptions{
		Schedule: w.loop.After,
		Delay: func(gvk schema.GroupVersionKind, key types.NamespacedName, _ string) time.Duration {
			return w.dice.between(2*time.Millisecond, w.settings.WatchDelay, "watch "+gvk.Kind+" "+key.Name)
		},
		Transform: transform,
		Intercept: w.interceptRequest,
	}
}

// interceptRequest applies the faults of the hub to a request of the operator.
func (w *World) interceptRequest(r hub.Request) hub.Fault {
	subject := "request " + r.Verb + " " + r.Kind.Kind + " " + r.Key.Name
	w.faults.mu.Lock()
	slow, failing := w.faults.hubSlow, w.faults.writesFail
	w.faults.mu.Unlock()
	f := hub.Fault{}
	if isRead := r.Verb == "get" || r.Verb == "list"; isRead {
		return f
	}
	f.Latency = w.dice.between(3*time.Millisecond, 15*time.Millisecond, subject) + slow
	if w.dice.chance(float64(failing)/1000, subject) {
		err := apierrors.NewServerTimeout(schema.GroupResource{Group: r.Kind.Group, Resource: strings.ToLower(r.Kind.Kind)}, r.Verb, 1)
		if w.dice.chance(0.5, subject) {
			f.After = err
		} else {
			f.Before = err
		}
	}
	return f
}
