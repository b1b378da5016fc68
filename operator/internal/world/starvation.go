package world

import (
	"slices"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
)

// wait is a job's wait for a cluster.
type wait struct {
	// since is the first quota reservation since a cluster admitted the job for the last time. A yield does not
	// change it.
	since time.Time
	// yields: the operator deactivated the job.
	yields bool
	// agedAt is when the job had aged and nothing but jobs that wait for longer could delay it. ahead is their number
	// at that time.
	agedAt time.Time
	ahead  int
}

// followWait follows the wait of a job by a change of its Workload.
func (r *Run) followWait(old, wl *kueue.Workload, isOperator bool) {
	if kueuestate.IsActive(old) && !kueuestate.IsActive(wl) {
		r.wait.yields = isOperator
	}
	switch {
	case wl.Status.ClusterName != nil:
		r.wait = wait{}
	case old.Status.Admission == nil && wl.Status.Admission != nil && r.wait.since.IsZero():
		r.wait.since = r.world.loop.Now()
	case old.Status.Admission != nil && wl.Status.Admission == nil && !r.wait.yields:
		r.wait = wait{}
	}
}

// checkStarvation reports a job that waits for longer than operator/docs/order.md permits: each of the jobs that
// wait for longer, and then the job itself, needs at most one hold.
func (w *World) checkStarvation(r *Run, isCalm bool) {
	wl, hold := w.kueue.workloads.get(r.Key), gate.RulesOf(&w.settings.Gate).Hold
	if !isCalm || wl == nil || hold.Mode != v1alpha1.HoldEnforce || !r.waitsForGate(wl) || !r.fitsEmptyCluster(wl) {
		r.wait.agedAt = time.Time{}
		return
	}
	if w.loop.Now().Sub(r.wait.since) < hold.Aging {
		return
	}
	if r.wait.agedAt.IsZero() {
		r.wait.agedAt, r.wait.ahead = w.loop.Now(), w.aheadOf(r)
	}
	bound := time.Duration(r.wait.ahead+1) * (hold.After + w.longestRun + time.Minute)
	if waited := w.loop.Now().Sub(r.wait.agedAt); waited > bound {
		check := kueuestate.FindCheck(wl, checkName)
		w.broken(NoStarvation, r.Name, "%s has waited for %s since it aged, behind %d jobs, while none ran for longer than %s: %s %q",
			r.Name, waited.Round(time.Second), r.wait.ahead, w.longestRun.Round(time.Second), check.State, check.Message)
	}
}

// waitsForGate reports whether nothing but the gate keeps the job waiting.
func (r *Run) waitsForGate(wl *kueue.Workload) bool {
	if !kueuestate.HoldsQuota(wl) || !kueuestate.IsActive(wl) || kueuestate.IsEvicted(wl) || wl.Status.ClusterName != nil || r.wait.since.IsZero() {
		return false
	}
	if awaitsOthers(wl) {
		return false
	}
	return r.set == nil || r == r.set.members[0] && r.set.holdsQuota()
}

// fitsEmptyCluster reports whether an empty cluster of the gate takes the job.
func (r *Run) fitsEmptyCluster(wl *kueue.Workload) bool {
	return slices.ContainsFunc(r.world.clusters, func(c *cluster) bool {
		job := r.mayGoTo(c, r.asAssigned(wl))
		return job != nil && emptyCluster(c.spec).placeable(job, job.Pods) >= job.Pods && c.kueue.quota.takes(job, job.Pods*job.Devices)
	})
}

// aheadOf is the number of jobs that have waited for longer than a job, for the same devices.
func (w *World) aheadOf(r *Run) int {
	n := 0
	for _, other := range w.order {
		if other != r && other.Done.IsZero() && !other.Deleted && !other.wait.since.IsZero() && !other.wait.since.After(r.wait.since) && other.Resource == r.Resource &&
			(other.Model == "" || r.Model == "" || other.Model == r.Model) {
			n++
		}
	}
	return n
}

// isCalm reports whether each cluster is as its metrics say and takes jobs.
func (w *World) isCalm() bool {
	if w.disturbed() {
		return false
	}
	return !slices.ContainsFunc(w.clusters, func(c *cluster) bool {
		return w.doubted[c.spec.Name] || !w.settled(c) || !c.reachable || !w.multiKueue.remotes[c.spec.Name].connected || !slices.Contains(w.ocm.decided, c.spec.Name) || c.schedulerDead || c.startsFail ||
			slices.ContainsFunc(c.nodes, func(n *node) bool { return !n.ready || n.unusable > 0 })
	})
}

// measureRuns keeps the longest time for which a pod stayed on a cluster.
func (w *World) measureRuns() {
	for _, c := range w.clusters {
		for _, list := range []*podList{&c.bound, &c.waiting} {
			for p := range list.all() {
				w.longestRun = max(w.longestRun, w.loop.Now().Sub(p.created))
			}
		}
	}
}
