package world

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
)

// KindSet is a LeaderWorkerSet of Components replicas. Kueue makes a Workload of each.
const KindSet JobKind = "LeaderWorkerSet"

// Together holds if the components of a job have pods on one cluster, unless one of their clusters is
// unreachable.
const Together Invariant = "Together"

// setGVK is the kind of a set's owner.
var setGVK = schema.GroupVersionKind{Group: "leaderworkerset.x-k8s.io", Version: "v1", Kind: string(KindSet)}

// setPatience is for how long a user keeps a set longer than it was to run, from when a cluster first
// admitted one of its components.
const setPatience = 30 * time.Minute

// componentSet is a job of several Workloads. It serves until its user deletes it.
type componentSet struct {
	name    string
	uid     types.UID
	members []*Run
	// placed: a cluster has admitted a component. ran: all of them ran at the same time.
	placed, ran bool
}

// allPods are the pods of all components of a job.
func (j *Job) allPods() int64 {
	if j.Kind == KindSet {
		return j.Pods * j.Components
	}
	return j.Pods
}

// submitSet creates the Workloads of a LeaderWorkerSet.
func (w *World) submitSet(j *Job) {
	set := &componentSet{name: j.Name, uid: types.UID(j.Name + "-" + strconv.FormatUint(w.Spec.Seed, 10))}
	for i := range j.Components {
		own := *j
		own.Name = fmt.Sprintf("%s-%d", j.Name, i)
		r := w.newRun(&own)
		r.set = set
		set.members = append(set.members, r)
		wl := workloadOf(&own, r.Key, r.UID)
		wl.OwnerReferences = []metav1.OwnerReference{{APIVersion: setGVK.GroupVersion().String(), Kind: setGVK.Kind, Name: set.name, UID: set.uid}}
		wl.Annotations = map[string]string{kueuestate.ComponentAnnotation: strconv.FormatInt(i, 10), "kueue.x-k8s.io/job-owner-gvk": setGVK.String(), "kueue.x-k8s.io/job-owner-name": set.name}
		w.createHeldBack(wl)
	}
}

// holdsQuota reports whether all components have quota.
func (s *componentSet) holdsQuota() bool {
	return !slices.ContainsFunc(s.members, func(m *Run) bool {
		wl := m.world.kueue.workloads.get(m.Key)
		return wl == nil || !kueuestate.HoldsQuota(wl)
	})
}

// siblings are the other components of a Workload's set.
func (w *World) siblings(key types.NamespacedName) []*Run {
	r := w.runs[key]
	if r == nil || r.set == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(r.set.members), func(other *Run) bool { return other == r })
}

// clusterOfSiblings is where the other components are; empty = nowhere.
func (w *World) clusterOfSiblings(key types.NamespacedName) (cluster string, isOne bool) {
	isOne = true
	for _, r := range w.siblings(key) {
		if wl := w.kueue.workloads.get(r.Key); wl != nil && wl.Status.ClusterName != nil {
			isOne = isOne && (cluster == "" || cluster == *wl.Status.ClusterName)
			cluster = *wl.Status.ClusterName
		}
	}
	return cluster, isOne
}

// nominateComponent nominates the cluster of the other components, as step 8 of MultiKueue does. It reports
// whether the component may be copied to the clusters that are nominated then.
func (m *multiKueue) nominateComponent(key types.NamespacedName, names []string) bool {
	r := m.world.runs[key]
	if r.set == nil {
		return true
	}
	m.wakeSiblings(key)
	cluster, isOne := m.world.clusterOfSiblings(key)
	switch {
	case !isOne || cluster != "" && !slices.Contains(names, cluster):
		m.changed(key, errorDelay)
		return false
	case cluster == "":
		return r == r.set.members[0]
	}
	m.world.kueue.workloads.update(key, func(wl *kueue.Workload) bool {
		if slices.Contains(wl.Status.NominatedClusterNames, cluster) || wl.Status.Admission == nil {
			return false
		}
		wl.Status.NominatedClusterNames = []string{cluster}
		return true
	})
	return true
}

// wakeSiblings looks at the other components of a job.
func (m *multiKueue) wakeSiblings(key types.NamespacedName) {
	for _, r := range m.world.siblings(key) {
		m.changed(r.Key, batchPeriod)
	}
}

// createSet creates the jobs of the other components: they are one object.
func (c *cluster) createSet(key types.NamespacedName) {
	for _, r := range c.world.siblings(key) {
		if c.jobFor(r.Key) == nil {
			c.addJob(&remoteJob{batchJob: batchJob{spec: r.Job, key: r.Key, suspended: true}, on: c, run: r})
		}
	}
}

// deleteSet deletes the jobs of the other components. Their copies, which the pods own, are deleted after them.
func (c *cluster) deleteSet(key types.NamespacedName) {
	for _, r := range c.world.siblings(key) {
		if c.jobFor(r.Key) == nil {
			continue
		}
		c.endJob(r.Key)
		c.world.loop.After(c.world.dice.between(500*time.Millisecond, 3*time.Second, "collect "+r.Key.Name), func() {
			if c.jobFor(r.Key) == nil {
				c.kueue.workloads.remove(r.Key)
			}
		})
	}
}

// componentRuns notes that all pods of a component run. When all components did for the set's duration, its user
// deletes it.
func (r *remoteJob) componentRuns() {
	set, w := r.run.set, r.on.world
	if set.ran || slices.ContainsFunc(set.members, func(m *Run) bool { return len(m.running) == 0 }) {
		return
	}
	set.ran = true
	w.note("all components of %s run", set.name)
	w.loop.After(r.spec.Duration, func() { w.endSet(set, true) })
}

// componentPlaced begins the time after which the user gives the set up.
func (w *World) componentPlaced(r *Run) {
	if r.set == nil || r.set.placed {
		return
	}
	r.set.placed = true
	w.loop.After(r.Duration+setPatience, func() { w.endSet(r.set, false) })
}

// endSet deletes a set, which is done or given up.
func (w *World) endSet(set *componentSet, done bool) {
	for _, r := range set.members {
		if done && r.Done.IsZero() {
			r.Done, r.ended = w.loop.Now(), true
		}
	}
	w.removeJob(set.members[0])
	w.note("%s is deleted", set.name)
}

// ownerGone is the time from the end of a Workload whose job was deleted until it is deleted, too.
const ownerGone = 300 * time.Millisecond

// removeJob deletes a job with all its Workloads.
func (w *World) removeJob(r *Run) {
	for _, m := range append(w.siblings(r.Key), r) {
		m.Deleted = m.Deleted || m.Done.IsZero()
		for _, key := range m.keys() {
			w.removeWorkload(key)
		}
		w.removeTried(m)
	}
}

// removeWorkload deletes a Workload whose job was deleted. Kueue finishes it before.
func (w *World) removeWorkload(key types.NamespacedName) {
	if wl := w.kueue.workloads.get(key); wl == nil || kueuestate.IsFinished(wl) {
		w.kueue.workloads.remove(key)
		return
	}
	w.kueue.workloads.update(key, func(wl *kueue.Workload) bool {
		return w.kueue.condition(wl, kueue.WorkloadFinished, true, kueue.WorkloadFinishedReasonOwnerNotFound, "")
	})
	w.loop.After(ownerGone, func() { w.kueue.workloads.remove(key) })
}

// targetOf is the job that a fault concerns. Of a set, it is the component that the time of the fault selects.
func (w *World) targetOf(f *Fault) *Run {
	r := w.runOf(f.Job)
	if r != nil && r.set != nil {
		return r.set.members[int(f.At/time.Second)%len(r.set.members)]
	}
	return r
}

// workloads is the number of Workloads of all jobs, without the slices to which jobs are resized.
func (s *Spec) workloads() int {
	n := 0
	for _, j := range s.Jobs {
		if j.Kind == KindSet {
			n += int(j.Components) - 1
		}
		n++
	}
	return n
}

// checkTogether tests the invariant Together.
func (w *World) checkTogether(r *Run) {
	if r.set == nil || r != r.set.members[0] {
		return
	}
	var on []string
	excused := false
	for _, c := range w.clusters {
		if slices.ContainsFunc(r.set.members, func(m *Run) bool { return c.hasPods(m) }) {
			on = append(on, c.spec.Name)
			excused = excused || w.isExcused(c)
		}
	}
	if len(on) > 1 && !excused && !w.kueue.paused {
		w.broken(Together, r.set.name, "components of %s have pods on %s", r.set.name, strings.Join(on, " and "))
	}
}

// mayGoTo is what must fit on a cluster that a job is sent to; nil = it can't be sent there. Component 0 goes
// where all components fit, and the others follow it.
func (r *Run) mayGoTo(c *cluster, j *Job) *Job {
	if r.set == nil {
		return j
	}
	switch cluster, _ := r.world.clusterOfSiblings(r.Key); {
	case cluster == c.spec.Name:
		return j
	case cluster != "" || r != r.set.members[0]:
		return nil
	}
	return r.whole(j)
}

// whole is the job with the pods of all components of its set.
func (r *Run) whole(j *Job) *Job {
	if r.set == nil {
		return j
	}
	whole := *j
	whole.Pods *= r.Components
	return &whole
}

// makeSets turns some jobs into LeaderWorkerSets.
func (g generator) makeSets(s *Spec) {
	for i := range s.Jobs {
		j := &s.Jobs[i]
		if j.Kind != "" || j.MinPods > 0 || j.Limit || j.Elastic || j.Behavior != Succeeds || !g.chance(.05) {
			continue
		}
		former := *j
		j.Kind, j.Components, j.Duration = KindSet, 2+g.Int64N(3), min(j.Duration, 20*time.Minute)
		if !fit(s, j) {
			*j = former
		}
	}
}
