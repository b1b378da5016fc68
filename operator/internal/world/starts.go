package world

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
)

// checkStart reports a job that waits although a cluster is free for it.
func (w *World) checkStart(r *Run, holds map[string][]string) {
	wl := w.kueue.workloads.get(r.Key)
	if wl == nil || !kueuestate.HoldsQuota(wl) || !kueuestate.IsActive(wl) || kueuestate.IsEvicted(wl) || wl.Status.ClusterName != nil || len(wl.Status.NominatedClusterNames) > 0 {
		r.fitsSince = time.Time{}
		return
	}
	if wl.Annotations[notesAnnotation] != "" {
		r.fitsSince = time.Time{} // there is no room for the gate's annotation
		return
	}
	if awaitsOthers(wl) {
		return
	}
	if r.set != nil && r != r.set.members[0] {
		return // others of its set may wait for the same devices, and it could not run without them
	}
	if r.set != nil && !r.set.holdsQuota() {
		r.fitsSince = time.Time{} // MultiKueue would delete it again
		return
	}
	if r.MinPods > 0 {
		return // the number of pods that start depends on the worker's quota
	}
	c := w.freeFor(r, wl, holds)
	switch {
	case c == nil:
		r.fitsSince = time.Time{}
	case r.fitsSince.IsZero():
		r.fitsSince = w.loop.Now()
	case w.loop.Now().Sub(r.fitsSince) > startBound:
		check := kueuestate.FindCheck(wl, checkName)
		w.broken(StartsInTime, r.Name, "%s has waited for %s although it fits on %s: %s %q", r.Name, w.loop.Now().Sub(r.fitsSince).Round(time.Second), c.describe(), check.State, check.Message)
	}
}

// freeFor is a cluster that the job fits on by the world's truth, and that the operator can know of, does not hold for
// another job, and does not avoid because jobs have not started there; nil = there is none.
func (w *World) freeFor(r *Run, wl *kueue.Workload, holds map[string][]string) *cluster {
	isOther := func(workload string) bool { return workload != r.Key.String() }
	avoided := avoidedBy(wl, w.loop.Now())
	for _, c := range w.clusters {
		if slices.ContainsFunc(holds[c.spec.Name], isOther) || w.doubted[c.spec.Name] || slices.Contains(avoided, c.spec.Name) || w.faults.lost[c.spec.Name] != "" {
			continue
		}
		if job := r.mayGoTo(c, r.asAssigned(wl)); job != nil && w.isQuiet(c) && w.settled(c) && c.takes(job) {
			return c
		}
	}
	return nil
}

// noteDoubts asks the operator which clusters it doubts.
func (w *World) noteDoubts() {
	doubted := w.Operator.Doubted()
	for _, c := range w.clusters {
		if name := c.spec.Name; doubted[name] && !w.doubted[name] {
			w.note("%s is doubted", name)
		}
	}
	w.doubted = doubted
}

// avoidedBy are the clusters that a job avoids by its record.
func avoidedBy(wl *kueue.Workload, now time.Time) (clusters []string) {
	record, _ := dispatch.Decode(wl.Annotations)
	for _, p := range record.Avoided(now) {
		clusters = append(clusters, p.Cluster)
	}
	return clusters
}

// describe is the cluster with the free devices of its nodes and the quota that its queues have left.
func (c *cluster) describe() string {
	var nodes, queues []string
	for _, n := range c.nodes {
		nodes = append(nodes, fmt.Sprintf("%d/%d", n.free(), n.pool.Devices))
	}
	used := c.kueue.workloads.usage()
	for _, name := range slices.Sorted(maps.Keys(c.kueue.quota.queues)) {
		for _, f := range c.kueue.quota.flavors {
			queues = append(queues, fmt.Sprintf("%s/%s %d", name, f.name, c.kueue.quota.available(name, f.name, used)))
		}
	}
	return fmt.Sprintf("%s (free %s; quota %s)", c.spec.Name, strings.Join(nodes, " "), strings.Join(queues, ", "))
}

// asAssigned is the job on the device model of the flavor that Kueue on the hub assigned. The gate looks for
// that model only.
func (r *Run) asAssigned(wl *kueue.Workload) *Job {
	j := *r.Job
	for _, a := range wl.Status.Admission.PodSetAssignments {
		for _, f := range r.world.kueue.quota.flavors {
			if string(a.Flavors[corev1.ResourceName(f.resource)]) == f.name {
				j.Model = f.model
			}
		}
		if a.Count != nil {
			j.Pods = int64(*a.Count)
		}
	}
	return &j
}

// settled reports whether the metrics of a cluster have been right for long enough to be believed.
func (w *World) settled(c *cluster) bool {
	return w.faults.lost[c.spec.Name] == "" && w.loop.Now().Sub(c.metricsFoundAt) > truthLag && w.loop.Now().Sub(w.calmSince) > truthLag
}

// isQuiet reports whether the cluster is connected, decided, and no job is on its way to it.
func (w *World) isQuiet(c *cluster) bool {
	if w.quiet == nil {
		return w.findQuiet(c)
	}
	known, isKnown := w.quiet[c]
	if !isKnown {
		known = w.findQuiet(c)
		w.quiet[c] = known
	}
	return known
}

func (w *World) findQuiet(c *cluster) bool {
	r := w.multiKueue.remotes[c.spec.Name]
	if !c.reachable || r == nil || !r.connected || !slices.Contains(w.ocm.decided, c.spec.Name) || c.schedulerDead || c.startsFail {
		return false
	}
	return !w.hubStore.anySent(c.spec.Name, func(key types.NamespacedName) bool {
		j := c.jobFor(key)
		return j == nil || w.isGrowing(c, key) || !j.podsReady() && j.spec.Behavior != NeverReady
	})
}

// takes reports whether all pods of a job fit on the cluster now, by nodes and by the worker's quota.
func (c *cluster) takes(j *Job) bool {
	if !c.hasQuota(j, j.Devices*j.Pods) {
		return false
	}
	return c.placeable(j, j.Pods) >= j.Pods
}

func (c *cluster) hasQuota(j *Job, devices int64) bool {
	used := c.kueue.workloads.usage()
	for _, f := range c.kueue.quota.flavors {
		if f.resource == j.Resource && (j.Model == "" || j.Model == f.model) && c.kueue.quota.available(c.kueue.quota.of(j.Queue), f.name, used) >= devices {
			return c.kueue.quota.permitsCPU(j, devices, c.kueue.cpuUsed(c.kueue.quota.of(j.Queue)))
		}
	}
	return false
}

// placeable is the number of pods of a job that the scheduler could place at once, up to a limit.
func (c *cluster) placeable(j *Job, limit int64) int64 {
	n := int64(0)
	if j.Topology != "" {
		n = c.placeableInDomain(j, limit)
	} else {
		for _, node := range c.nodes {
			n += node.placeable(j, limit-n)
		}
	}
	if quota := c.spec.ResourceQuota; quota > 0 {
		n = min(n, max(0, quota-c.devicesBound)/j.Devices)
	}
	return n
}
