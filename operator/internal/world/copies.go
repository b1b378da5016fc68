package world

import (
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
)

// copyTo gives the nominated clusters their copies, and removes those of the others.
func (m *multiKueue) copyTo(key types.NamespacedName, names []string) {
	isMissing, nominated := false, nominatedFor(m.world.kueue.workloads.get(key))
	for _, name := range nominated {
		isMissing = isMissing || !slices.Contains(names, name)
	}
	for _, name := range names {
		switch has := m.copyOn(name, key) != nil; {
		case slices.Contains(nominated, name) && !has:
			m.createCopy(name, key)
		case !slices.Contains(nominated, name) && has:
			m.removeCopy(name, key)
		}
	}
	if isMissing {
		m.changed(key, errorDelay)
	}
}

// outOfSync reports whether a copy differs in what MultiKueue compares.
func outOfSync(local, remote *kueue.Workload) bool {
	return kueuestate.IsActive(local) != kueuestate.IsActive(remote) || priorityOf(local) != priorityOf(remote) || local.Spec.PodSets[0].Count != remote.Spec.PodSets[0].Count
}

// syncJob creates the job on a worker or copies its status to the job on the hub. It reports whether
// the copy of the status has to wait until the job on the hub is not suspended.
func (m *multiKueue) syncJob(on string, key types.NamespacedName, local *batchJob) (deferred bool) {
	r := m.remotes[on]
	job := r.cluster.jobFor(key)
	m.request(r, 1)
	if job == nil {
		r.cluster.createJob(key, local)
		return false
	}
	if local.spec.Kind == KindSet {
		return false // its status stays on the worker
	}
	deferred = local.suspended && !job.suspended && job.finished == ""
	pods := job.batchJob.pods
	if local.spec.Elastic {
		pods = local.pods
	}
	if !deferred && (local.active != job.active || local.ready != job.ready || local.finished != job.finished || local.pods != pods) {
		local.active, local.ready, local.finished, local.pods = job.active, job.ready, job.finished, pods
		m.world.kueue.changed(key)
	}
	m.syncElastic(on, key, local, job)
	return deferred
}

func (m *multiKueue) createCopy(name string, key types.NamespacedName) {
	r := m.remotes[name]
	m.world.loop.After(m.request(r, 1)+m.world.dice.between(5*time.Millisecond, 30*time.Millisecond, "copy "+key.Name), func() {
		local := m.world.kueue.workloads.get(key)
		if m.paused || local == nil || !r.cluster.reachable || m.copyOn(name, key) != nil || local.Status.Admission == nil || !slices.Contains(nominatedFor(local), name) {
			return
		}
		copied := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: local.UID, CreationTimestamp: m.world.kueue.stamp(), Annotations: maps.Clone(local.Annotations)}, Spec: *local.Spec.DeepCopy()}
		r.cluster.kueue.workloads.(*localWorkloads).create(key, copied)
		m.world.note("MultiKueue copies %s to %s", key.Name, name)
	})
}

// removeCopy deletes the job and the Workload on a worker.
func (m *multiKueue) removeCopy(name string, key types.NamespacedName) {
	r := m.remotes[name]
	if m.copyOn(name, key) == nil && r.cluster.jobFor(key) == nil {
		return
	}
	m.request(r, 2)
	if !r.cluster.reachable {
		m.changed(key, errorDelay)
		return
	}
	r.cluster.deleteJob(key)
	r.cluster.kueue.workloads.remove(key)
	m.world.note("MultiKueue removes %s from %s", key.Name, name)
}

// collect deletes the copies on connected workers whose Workload does not exist on the hub.
func (m *multiKueue) collect() {
	m.world.loop.After(collectInterval, m.collect)
	if m.paused {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(m.remotes)) {
		r := m.remotes[name]
		if !r.connected || !r.cluster.reachable {
			continue
		}
		for _, key := range r.cluster.kueue.workloads.keys() {
			if m.world.kueue.workloads.get(key) == nil {
				m.removeCopy(name, key)
			}
		}
	}
}
