package world

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// batchJob is a job on one API server, with the part of its status that Kueue reads.
type batchJob struct {
	spec      *Job
	key       types.NamespacedName // of its Workload
	suspended bool
	active    int64
	ready     int64
	finished  string // "", Succeeded or Failed
	pods      int64  // that the job runs: fewer with partial admission
}

// isActive is Kueue's word for a job whose pods run.
func (j *batchJob) isActive() bool { return j.active > 0 }

// podsReady reports whether all pods of the job are ready or have succeeded.
func (j *batchJob) podsReady() bool {
	return j.finished == "Succeeded" || j.ready >= j.pods && j.pods > 0
}

// remoteJob is a job on a worker, with its pods.
type remoteJob struct {
	batchJob
	on   *cluster
	run  *Run
	pods []*pod
	// endsAt is set when all pods run.
	endsAt  time.Time
	serial  int
	deleted bool
	// domain of the topology that the job requires, as Kueue assigned it; empty = any.
	domain string
}

// start creates the pods of a job whose Workload the worker admitted.
func (r *remoteJob) start(count int64) {
	r.suspended = false
	r.batchJob.pods = count
	for int64(len(r.pods)) < count {
		r.serial++
		p := &pod{name: fmt.Sprintf("%s-%d", r.run.keys()[0].Name, r.serial), job: r, created: r.on.world.loop.Now(),
			devices: r.spec.Devices, cpu: effectiveCPU(r.spec), memory: r.spec.Memory}
		r.pods = append(r.pods, p)
		r.on.createPod(p)
	}
	r.active = count
	r.on.schedulePods()
}

// stop deletes the pods. The job does not count pods as active that terminate.
func (r *remoteJob) stop() {
	wasRunning := !r.endsAt.IsZero() && r.finished == ""
	for _, p := range r.pods {
		r.on.deletePod(p)
	}
	r.active = 0
	for _, p := range r.pods {
		r.ends(p)
	}
	r.pods, r.ready, r.endsAt = nil, 0, time.Time{}
	r.suspended = true
	if wasRunning {
		r.run.stopped(r.on.spec.Name)
	}
}

// podsChanged counts the ready pods. When all of them run, the job's duration begins.
func (r *remoteJob) podsChanged() {
	ready := int64(0)
	for _, p := range r.pods {
		if p.ready {
			ready++
		}
	}
	r.ready = ready
	w := r.on.world
	if ready == r.batchJob.pods && r.endsAt.IsZero() && r.finished == "" {
		r.endsAt = w.loop.Now().Add(r.spec.Duration)
		r.run.startedOn(r.on.spec.Name)
		if r.run.set != nil {
			r.componentRuns()
			r.on.kueue.changed(r.key)
			return
		}
		endsAt := r.endsAt
		w.loop.After(r.spec.Duration, func() {
			if r.endsAt.Equal(endsAt) && r.finished == "" && !r.deleted {
				r.finish()
			}
		})
	}
	r.on.kueue.changed(r.key)
}

func (r *remoteJob) finish() {
	r.finished = "Succeeded"
	if r.spec.Behavior == Fails {
		r.finished = "Failed"
	}
	for _, p := range r.pods {
		p.ended = true
		if r.spec.Lingers > 0 {
			r.on.world.loop.After(r.spec.Lingers, func() { r.on.removePod(p) })
		} else {
			r.on.removePod(p)
		}
	}
	r.pods, r.active, r.ready = nil, 0, 0
	r.run.finishedOn(r.on.spec.Name)
	r.on.kueue.changed(r.key)
}

// Run is the truth about one job: what happened to it, wherever.
type Run struct {
	*Job
	world *World
	// serial is the number of the run in the world.
	serial int
	// Key is the Workload; of an elastic job, the slice on which Kueue acts.
	Key types.NamespacedName
	// slices are all Workloads of an elastic job.
	slices []types.NamespacedName
	// set is the job whose component this is; nil = none.
	set *componentSet
	UID types.UID
	// Submitted, Started (first time that all its pods ran) and Done (the hub knows that it ended).
	Submitted, Started, Done time.Time
	// Nominated are the lists of clusters that it was nominated to, in their order.
	Nominated []string
	// Deleted by its user.
	Deleted bool
	// Where it runs now, by cluster, since when.
	running map[string]time.Time
	// jobs is the number of clusters with a job of the run.
	jobs int
	// ended is set once a copy has finished.
	ended bool
	// Failures are the placements that ended before all pods ran.
	placements []placement
	// writes of the operator, and attempts: reservations of quota on the hub.
	writes, attempts int
	// killers are the jobs for which this one was preempted while it ran.
	killers map[string]int
	// killedAt is when killed, which ran, was preempted for this job by the Kueue of killedBy.
	killedAt         time.Time
	killed, killedBy string
	vainReported     bool
	// misled: the metrics of a cluster that it is nominated to are wrong.
	misled bool
	// falseSince is since when statements of its message are false.
	falseSince map[string]time.Time
	// neverSince is since when the waiting job fits on no empty cluster, mayReturnSince since when the parked one fits on one.
	neverSince, mayReturnSince time.Time
	// heldSince is since when a gate in mode Shadow keeps the job waiting.
	heldSince time.Time
	// fitsSince is since when a cluster is free for the waiting job.
	fitsSince time.Time
	wait      wait
	// findsEnd is the result of mayEnd for a job that is not elastic; nil = not known yet.
	findsEnd *bool
	// waitedAt is the number of the last check of the invariants at which the gate had not decided the job.
	waitedAt int
}

// isOver reports whether the job is done or deleted.
func (r *Run) isOver() bool { return !r.Done.IsZero() || r.Deleted }

// placement is one time that a cluster admitted a job for the hub.
type placement struct {
	cluster string
	at      time.Time
	// startedAt is when all pods ran for the first time.
	startedAt time.Time
	endedAt   time.Time
	why       string
	unseen    bool // ended while no operator ran
}

// Hung is how often a cluster admitted the job and did not start all its pods for a time.
func (r *Run) Hung(d time.Duration) (n int) {
	for _, p := range r.placements {
		end := cmp.Or(p.startedAt, p.endedAt, r.world.loop.Now())
		if end.Sub(p.at) >= d {
			n++
		}
	}
	return n
}

func (r *Run) startedOn(cluster string) {
	now := r.world.loop.Now()
	r.running[cluster] = now
	if r.Started.IsZero() {
		r.Started = now
	}
	if n := len(r.placements); n > 0 && r.placements[n-1].cluster == cluster && r.placements[n-1].startedAt.IsZero() {
		r.placements[n-1].startedAt = now
	}
	r.world.note("%s runs on %s", r.Name, cluster)
}

func (r *Run) stopped(cluster string) {
	delete(r.running, cluster)
	r.world.note("%s was stopped on %s", r.Name, cluster)
}

func (r *Run) finishedOn(cluster string) {
	delete(r.running, cluster)
	r.ended = true
	r.world.note("%s finished on %s", r.Name, cluster)
}
