package world

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// newWorkerKueue is the Kueue of a worker.
func (c *cluster) newWorkerKueue(flavors []flavor) *kueueControl {
	w := c.world
	store := &localWorkloads{liveWorkloads: newLiveWorkloads()}
	k := &kueueControl{world: w, name: c.spec.Name, workloads: store, pending: map[types.NamespacedName]bool{}, timers: map[types.NamespacedName]time.Time{},
		quota: &quota{queues: map[string]*clusterQueue{}, flavors: flavors, localQueues: c.spec.LocalQueues}, podsReadyTimeout: c.spec.PodsReadyTimeout}
	store.onWrite = k.changed
	devices := c.devices()
	for i := range w.Spec.Queues {
		q := w.Spec.Queues[i]
		q.Name = k.quota.of(q.Name)
		if k.quota.queues[q.Name] != nil {
			continue // of another LocalQueue, too
		}
		byModel := maps.Clone(devices)
		maps.Copy(byModel, c.spec.Quotas[q.Name])
		nominal := q.byFlavor(byModel)
		k.quota.queues[q.Name] = &clusterQueue{spec: &q, nominal: nominal, cpu: c.spec.CPUQuota, stop: kueue.None}
	}
	c.localQueues = c.spec.reportedQueues(&w.Spec)
	k.assignDomain = c.assignDomain
	k.jobOf = func(key types.NamespacedName) *batchJob {
		if j := c.jobFor(key); j != nil && j.key == key {
			return &j.batchJob
		}
		return nil
	}
	k.startJob = func(key types.NamespacedName, wl *kueue.Workload) {
		c.jobFor(key).domain = domainOf(wl)
		c.jobFor(key).start(int64(*wl.Status.Admission.PodSetAssignments[0].Count))
		k.changed(key)
	}
	k.stopJob = func(key types.NamespacedName, _ *kueue.Workload) {
		if j := c.jobFor(key); !j.suspended {
			j.stop()
			k.changed(key)
		}
	}
	k.then = func(key types.NamespacedName) {
		if r := w.multiKueue.remotes[c.spec.Name]; r != nil && r.connected && c.reachable {
			w.multiKueue.changed(key, batchPeriod)
		}
	}
	return k
}

// createJob creates a job for a copy, as MultiKueue does.
func (c *cluster) createJob(key types.NamespacedName, local *batchJob) {
	if c.kueue.workloads.get(key) == nil {
		return
	}
	c.addJob(&remoteJob{batchJob: batchJob{spec: local.spec, key: key, suspended: true}, on: c, run: c.world.runs[key]})
	c.createSet(key)
}

func (c *cluster) addJob(j *remoteJob) {
	name := c.world.jobName(j.key)
	c.jobs[name] = j
	c.world.runs[name].jobs++
	c.kueue.changed(j.key)
}

// deleteJob deletes a job with its pods.
func (c *cluster) deleteJob(key types.NamespacedName) {
	c.deleteSet(key)
	c.endJob(key)
}

func (c *cluster) endJob(key types.NamespacedName) {
	j := c.jobFor(key)
	if j == nil {
		return
	}
	j.deleted = true
	j.stop()
	name := c.world.jobName(key)
	delete(c.jobs, name)
	c.world.runs[name].jobs--
}

// loseCopy deletes a copy on the worker behind MultiKueue's back.
func (c *cluster) loseCopy(key types.NamespacedName) {
	if j := c.jobFor(key); j != nil {
		key = j.key // of an elastic job, the slice that runs
	}
	c.deleteJob(key)
	c.kueue.workloads.remove(key)
}
