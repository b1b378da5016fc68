package world

import (
	"fmt"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
)

// An elastic job may be resized while it runs. Kueue then makes another Workload of it, a slice, which
// replaces the former one when it gets quota. The steps are those of pkg/workloadslicing.

// Resized is that the user changes the number of pods of the elastic job to Amount.
const Resized FaultKind = "Resized"

// Annotations of slices.
const (
	elasticAnnotation     = "kueue.x-k8s.io/elastic-job"
	replacementAnnotation = "kueue.x-k8s.io/workload-slice-replacement-for"
)

// keepsElastic is for how long a finished elastic job exists (ttlSecondsAfterFinished). MultiKueue keeps the
// copies of replaced slices as long.
const keepsElastic = 5 * time.Minute

// resize changes the number of pods of an elastic job.
func (w *World) resize(r *Run, pods int64) {
	job := w.jobs[r.Key]
	if job == nil || !r.Elastic || job.finished != "" || pods < 1 {
		return
	}
	w.note("%s is resized from %d to %d pods", r.Name, job.pods, pods)
	job.pods, r.Pods = pods, pods
	w.kueue.changed(r.Key)
}

// isReplaced reports whether a slice ended although its job goes on.
func isReplaced(wl *kueue.Workload) bool {
	c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadFinished)
	return kueuestate.IsReplaced(wl) || kueuestate.IsFinished(wl) && c.Reason == kueue.WorkloadFinishedReasonOutOfSync
}

// sliceOf is the slice on which Kueue's reconciler of jobs acts for a Workload on the hub; false = none. It
// makes the slices fit the size of the job.
func (k *kueueControl) sliceOf(key types.NamespacedName) (types.NamespacedName, bool) {
	r, job := k.world.runs[key], k.jobOf(key)
	if k.checksOf == nil || r == nil || !r.Elastic || job == nil {
		return key, true
	}
	open := k.openSlices(r)
	selected := k.selectSlice(open)
	if selected == nil {
		if job.finished == "" {
			k.world.createSlice(r, job, open)
		}
		return key, false
	}
	r.Key = types.NamespacedName{Namespace: selected.Namespace, Name: selected.Name}
	count := int64(selected.Spec.PodSets[0].Count)
	switch {
	case count == job.pods:
		return r.Key, true
	case selected.Status.Admission == nil || job.pods < count:
		k.setCount(r.Key, int32(job.pods))
		return r.Key, true
	case job.finished == "":
		k.world.createSlice(r, job, open)
	}
	return key, false
}

func (k *kueueControl) openSlices(r *Run) []*kueue.Workload {
	var open []*kueue.Workload
	for _, key := range r.slices {
		if wl := k.workloads.get(key); wl != nil && !kueuestate.IsFinished(wl) {
			open = append(open, wl)
		}
	}
	return open
}

// selectSlice finishes the slices that are neither the latest one with quota nor about to replace it, and
// returns the one that counts; nil = none.
func (k *kueueControl) selectSlice(open []*kueue.Workload) *kueue.Workload {
	if len(open) < 2 {
		return slices.Concat(open, []*kueue.Workload{nil})[0]
	}
	var holder, replacement, newest *kueue.Workload
	for _, wl := range open {
		if kueuestate.IsEvicted(wl) {
			continue
		}
		newest = wl
		if wl.Status.Admission != nil {
			holder = wl
		}
	}
	for _, wl := range open {
		if holder != nil && kueuestate.ReplacedSlice(wl) == holder.Name && !kueuestate.IsEvicted(wl) && wl.Status.Admission == nil {
			replacement = wl
		}
	}
	selected := newest
	if holder != nil {
		selected = holder
	}
	if replacement != nil {
		selected = replacement
	}
	for _, wl := range open {
		if wl != selected && wl != holder {
			k.finishSlice(wl, kueue.WorkloadFinishedReasonOutOfSync)
		}
	}
	return selected
}

func (k *kueueControl) finishSlice(wl *kueue.Workload, reason string) {
	key := types.NamespacedName{Namespace: wl.Namespace, Name: wl.Name}
	k.workloads.update(key, func(wl *kueue.Workload) bool {
		return k.condition(wl, kueue.WorkloadFinished, true, reason, "")
	})
	k.world.note("%s finishes slice %s: %s", k.name, key.Name, reason)
}

// setCount changes the number of pods of a slice.
func (k *kueueControl) setCount(key types.NamespacedName, pods int32) {
	k.workloads.update(key, func(wl *kueue.Workload) bool {
		wl.Spec.PodSets[0].Count = pods
		return true
	})
	k.schedule()
}

// createSlice creates the slice of an elastic job that has another size now.
func (w *World) createSlice(r *Run, job *batchJob, open []*kueue.Workload) {
	key := types.NamespacedName{Namespace: r.Namespace, Name: fmt.Sprintf("job-%s-%d", r.Name, len(r.slices)+1)}
	wl := workloadOf(r.Job, key, r.UID)
	wl.UID = types.UID(fmt.Sprintf("%s-%d", r.UID, len(r.slices)+1))
	if len(open) > 0 {
		wl.Annotations[replacementAnnotation] = open[0].Namespace + "/" + open[0].Name
	}
	w.runs[key], w.jobs[key] = r, job
	r.slices, r.Key = append(r.slices, key), key
	w.note("Kueue creates slice %s with %d pods", key.Name, job.pods)
	w.create(wl)
}

// replaced is the slice with quota in a queue that a workload replaces; nil = none.
func (k *kueueControl) replaced(wl *kueue.Workload, queue string) *kueue.Workload {
	old := k.workloads.get(types.NamespacedName{Namespace: wl.Namespace, Name: kueuestate.ReplacedSlice(wl)})
	if old == nil || old.Status.Admission == nil || kueuestate.IsFinished(old) || string(old.Status.Admission.ClusterQueue) != queue {
		return nil
	}
	return old
}

// leftFor is what a workload may reserve in a queue, by flavor. A slice takes over the quota of the one that it
// replaces, and its flavors.
func (k *kueueControl) leftFor(wl *kueue.Workload, queue string, left func(flavor string) int64) map[string]int64 {
	list := map[string]int64{}
	old := k.replaced(wl, queue)
	for _, f := range k.quota.flavors {
		switch {
		case old == nil:
			list[f.name] = left(f.name)
		case requestOf(old)[f.name] > 0:
			list[f.name] = left(f.name) + requestOf(old)[f.name]
		}
	}
	return list
}

// replaceSlice finishes the slice that a workload with quota replaces.
func (k *kueueControl) replaceSlice(wl *kueue.Workload, used map[string]map[string]int64) {
	queue := string(wl.Status.Admission.ClusterQueue)
	old := k.replaced(wl, queue)
	if old == nil {
		return
	}
	for flavor, n := range requestOf(old) {
		used[queue][flavor] -= n
	}
	k.finishSlice(old, kueue.WorkloadSliceReplaced)
}

// ignores reports whether MultiKueue does nothing for a slice: it was replaced, or has no quota and is to
// replace another one. Its copies stay.
func ignores(wl *kueue.Workload) bool {
	if !kueuestate.IsElastic(wl) {
		return false
	}
	if kueuestate.IsFinished(wl) {
		return kueuestate.IsReplaced(wl)
	}
	return wl.Status.Admission == nil && kueuestate.ReplacedSlice(wl) != ""
}

// nominatedFor are the clusters that get copies. A slice goes where the one was that it replaced.
func nominatedFor(wl *kueue.Workload) []string {
	if kueuestate.IsElastic(wl) && wl.Status.ClusterName != nil {
		return []string{*wl.Status.ClusterName}
	}
	return wl.Status.NominatedClusterNames
}

// scaleDown makes a copy of a slice as small as the slice on the hub. It reports false if the copy differs in
// another way.
func (m *multiKueue) scaleDown(name string, key types.NamespacedName, local *kueue.Workload) bool {
	count := local.Spec.PodSets[0].Count
	if !kueuestate.IsElastic(local) || m.copyOn(name, key).Spec.PodSets[0].Count <= count {
		return false
	}
	m.request(m.remotes[name], 1)
	m.remotes[name].cluster.kueue.setCount(key, count)
	return true
}

// syncElastic gives a job on a worker the size and the slice of the one on the hub. A slice that the job on the
// hub has outgrown changes nothing.
func (m *multiKueue) syncElastic(on string, key types.NamespacedName, local *batchJob, job *remoteJob) {
	if !local.spec.Elastic || job.batchJob.pods < local.pods && key != job.run.Key || job.batchJob.pods == local.pods && job.key == key {
		return
	}
	r := m.remotes[on]
	m.request(r, 1)
	job.key = key
	job.resize(local.pods)
	r.cluster.kueue.changed(key)
	m.world.note("MultiKueue gives job %s on %s %d pods for %s", job.run.Name, on, local.pods, key.Name)
}

// resize changes the number of pods. Pods that run stay.
func (r *remoteJob) resize(pods int64) {
	r.batchJob.pods = pods
	if r.suspended || r.finished != "" {
		return
	}
	for int64(len(r.pods)) > pods {
		last := len(r.pods) - 1
		r.on.deletePod(r.pods[last])
		r.pods = r.pods[:last]
	}
	r.start(pods)
	r.podsChanged()
}

// copyOf is the Workload of a job on the cluster that holds quota there; nil = none.
func (c *cluster) copyOf(r *Run) *kueue.Workload {
	for _, key := range slices.Backward(r.keys()) {
		if wl := c.kueue.workloads.get(key); wl != nil && wl.Status.Admission != nil && !isReplaced(wl) {
			return wl
		}
	}
	return nil
}

// keys are the Workloads of the job: the slices of an elastic job, the oldest first.
func (r *Run) keys() []types.NamespacedName {
	if len(r.slices) > 0 {
		return r.slices
	}
	return []types.NamespacedName{r.Key}
}

// jobName identifies the job of a Workload on a worker.
func (w *World) jobName(key types.NamespacedName) types.NamespacedName {
	if r := w.runs[key]; r != nil {
		return r.keys()[0]
	}
	return key
}

// jobFor is the job of a Workload on the cluster, whichever slice it runs for; nil = none.
func (c *cluster) jobFor(key types.NamespacedName) *remoteJob { return c.jobs[c.world.jobName(key)] }

// expire deletes a finished job after a time.
func (w *World) expire(r *Run) {
	keeps := w.settings.KeepsFinished
	if r.Elastic {
		keeps = keepsElastic
	}
	if keeps > 0 {
		w.loop.After(keeps, func() { w.removeJob(r) })
	}
}

// holderOf is the slice of an elastic job with quota, if one has it.
func (w *World) holderOf(r *Run) types.NamespacedName {
	for _, wl := range w.kueue.openSlices(r) {
		if wl.Status.Admission != nil {
			return types.NamespacedName{Namespace: wl.Namespace, Name: wl.Name}
		}
	}
	return r.Key
}

// isGrowing reports whether the cluster has not admitted the slice of a job that runs there.
func (w *World) isGrowing(c *cluster, key types.NamespacedName) bool {
	wl := c.kueue.workloads.get(key)
	return w.runs[key] != nil && w.runs[key].Elastic && (wl == nil || wl.Status.Admission == nil)
}

// fitsWherever reports whether each empty cluster that takes a job takes it with another number of pods, too. A
// job that has outgrown its cluster never ends on the hub, and keeps its quota.
func (s *Spec) fitsWherever(j *Job, pods int64) bool {
	for _, c := range s.Clusters {
		alone := Spec{Clusters: []Cluster{c}, Queues: s.Queues}
		other := *j
		if other.Pods = pods; alone.fitsEmpty(j) && !alone.fitsEmpty(&other) {
			return false
		}
	}
	return true
}

// makeElastic makes some jobs elastic, and resizes them.
func (g generator) makeElastic(s *Spec) {
	for i := range s.Jobs {
		j := &s.Jobs[i]
		if j.Kind != "" || j.MinPods > 0 || j.Limit || !g.chance(.06) {
			continue
		}
		j.Elastic = true
		for range 1 + g.IntN(3) {
			f := Fault{Kind: Resized, Job: j.Name, At: j.At + g.seconds(1, 30+int(j.Duration/time.Second)), Amount: 1 + g.Int64N(5)}
			if !s.fitsWherever(j, f.Amount) {
				f.Amount = j.Pods
			}
			s.Faults = append(s.Faults, f)
		}
	}
}
