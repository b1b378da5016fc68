package world

import (
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
)

// workloads are the Workloads of one API server.
type workloads interface {
	// get returns the live object, which the caller must not change; nil = does not exist.
	get(types.NamespacedName) *kueue.Workload
	// update stores what change made of a copy, if it returns true. It reports whether it did.
	update(key types.NamespacedName, change func(*kueue.Workload) bool) bool
	// remove deletes an object.
	remove(types.NamespacedName)
	// keys are all names, sorted.
	keys() []types.NamespacedName
	// pending are the names of those that neither hold quota nor have finished, sorted.
	pending() []types.NamespacedName
	// usage is the quota that each queue has given away, by queue and flavor. The caller may change it.
	usage() map[string]map[string]int64
}

// kueueControl is Kueue on the hub or on a worker: the controllers of Workloads and jobs, and the
// scheduler. Its steps follow Kueue 0.19.2, in which each of them is a reconciler of its own:
// each runs some time after a change, on the state that it then finds.
type kueueControl struct {
	world     *World
	name      string
	workloads workloads
	quota     *quota
	// jobOf returns the job of a Workload on the same API server; nil = it does not exist (yet).
	jobOf func(types.NamespacedName) *batchJob
	// checksOf returns the admission checks of a queue; nil on workers.
	checksOf func(queue string) []string
	// assignDomain completes the assignments of a Workload that requires a domain, and reports false if none has room;
	// nil on the hub.
	assignDomain func(types.NamespacedName, []kueue.PodSetAssignment) bool
	// startJob and stopJob make a job run or suspend it.
	startJob, stopJob func(types.NamespacedName, *kueue.Workload)
	// then is called after each change, for MultiKueue.
	then             func(types.NamespacedName)
	podsReadyTimeout time.Duration
	// paused: the process is down.
	paused     bool
	pending    map[types.NamespacedName]bool
	scheduling bool
	// timers are the latest planned looks at workloads, by key.
	timers map[types.NamespacedName]time.Time
	// stampAs is the time that the next conditions state; zero = the present.
	stampAs time.Time
}

func (k *kueueControl) loop() *Loop { return k.world.loop }

// changed reconciles a Workload and its job soon.
func (k *kueueControl) changed(key types.NamespacedName) {
	if k.then != nil {
		k.then(key)
	}
	if k.pending[key] {
		return
	}
	k.pending[key] = true
	k.loop().After(k.world.dice.between(10*time.Millisecond, 80*time.Millisecond, k.name+" kueue "+key.Name), func() {
		delete(k.pending, key)
		if k.paused {
			return
		}
		k.reconcileJob(key)
		k.reconcile(key)
	})
}

// lookAt reconciles a Workload at a time.
func (k *kueueControl) lookAt(key types.NamespacedName, at time.Time) {
	if planned := k.timers[key]; planned.After(k.loop().Now()) && !planned.After(at) {
		return
	}
	k.timers[key] = at
	k.loop().After(at.Sub(k.loop().Now())+time.Millisecond, func() { k.changed(key) })
}

// resume starts the process again: it looks at everything.
func (k *kueueControl) resume() {
	k.paused = false
	for _, key := range k.workloads.keys() {
		k.changed(key)
	}
	k.schedule()
}

func (k *kueueControl) condition(wl *kueue.Workload, kind string, on bool, reason, message string) bool {
	status := metav1.ConditionFalse
	if on {
		status = metav1.ConditionTrue
	}
	return apimeta.SetStatusCondition(&wl.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: k.stamp()})
}

// stamp is the time as an API server stores it, in seconds.
func (k *kueueControl) stamp() metav1.Time {
	at := k.stampAs
	if at.IsZero() {
		at = k.loop().Now()
	}
	return metav1.NewTime(at.Truncate(time.Second))
}

// reconcile is Kueue's reconciler of Workloads.
func (k *kueueControl) reconcile(key types.NamespacedName) {
	wl := k.workloads.get(key)
	if wl == nil || !wl.DeletionTimestamp.IsZero() || kueuestate.IsFinished(wl) {
		k.release(key)
		return
	}
	if !kueuestate.IsActive(wl) {
		if !k.reconcileInactive(wl, key) {
			k.syncChecks(wl, key)
		}
		k.schedule() // others may take its quota
		return
	}
	if k.isDeactivationTarget(wl) {
		k.workloads.update(key, func(wl *kueue.Workload) bool { inactive := false; wl.Spec.Active = &inactive; return true })
		return
	}
	if k.awaitsBackoff(wl, key) || k.requeue(wl, key) || k.syncChecks(wl, key) {
		return
	}
	if !kueuestate.IsAdmitted(wl) && wl.Status.Admission != nil && allReady(wl) {
		k.workloads.update(key, func(wl *kueue.Workload) bool {
			return wl.Status.Admission != nil && allReady(wl) && k.condition(wl, kueue.WorkloadAdmitted, true, "Admitted", "The workload is admitted")
		})
		return
	}
	if kueuestate.HoldsQuota(wl) {
		k.reconcileAdmitted(wl, key)
		return
	}
	k.schedule()
}

func allReady(wl *kueue.Workload) bool {
	return !slices.ContainsFunc(wl.Status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool { return c.State != kueue.CheckStateReady })
}

func (k *kueueControl) isDeactivationTarget(wl *kueue.Workload) bool {
	return apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadDeactivationTarget)
}

// reconcileInactive evicts an inactive workload, and reports whether it had to write anything.
func (k *kueueControl) reconcileInactive(wl *kueue.Workload, key types.NamespacedName) bool {
	target := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadDeactivationTarget)
	switch {
	case !kueuestate.IsEvicted(wl):
		reason := kueue.WorkloadDeactivated
		if target != nil {
			reason += "DueTo" + target.Reason
		}
		k.evict(key, reason, "The workload is deactivated", func(wl *kueue.Workload) {
			apimeta.RemoveStatusCondition(&wl.Status.Conditions, kueue.WorkloadDeactivationTarget)
			wl.Status.RequeueState = nil
		})
	case wl.Status.RequeueState != nil:
		k.workloads.update(key, func(wl *kueue.Workload) bool { wl.Status.RequeueState = nil; return true })
	default:
		return false
	}
	return true
}

// syncChecks gives the workload the checks of its queue.
func (k *kueueControl) syncChecks(wl *kueue.Workload, key types.NamespacedName) bool {
	if k.checksOf == nil {
		return false
	}
	want := k.checksOf(string(wl.Spec.QueueName))
	has := func(wl *kueue.Workload) bool {
		return len(wl.Status.AdmissionChecks) == len(want) && !slices.ContainsFunc(want, func(name string) bool { return kueuestate.FindCheck(wl, name) == nil })
	}
	if has(wl) {
		return false
	}
	return k.workloads.update(key, func(wl *kueue.Workload) bool {
		if has(wl) {
			return false
		}
		wl.Status.AdmissionChecks = slices.DeleteFunc(wl.Status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool { return !slices.Contains(want, string(c.Name)) })
		for _, name := range want {
			if kueuestate.FindCheck(wl, name) == nil {
				wl.Status.AdmissionChecks = append(wl.Status.AdmissionChecks, kueue.AdmissionCheckState{Name: kueue.AdmissionCheckReference(name), State: kueue.CheckStatePending, LastTransitionTime: k.stamp()})
			}
		}
		return true
	})
}

// reconcileAdmitted looks for reasons to end a workload that holds quota.
func (k *kueueControl) reconcileAdmitted(wl *kueue.Workload, key types.NamespacedName) {
	if kueuestate.IsEvicted(wl) {
		return
	}
	state := func(s kueue.CheckState) bool {
		return slices.ContainsFunc(wl.Status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool { return c.State == s })
	}
	switch {
	case state(kueue.CheckStateRejected):
		k.workloads.update(key, func(wl *kueue.Workload) bool {
			return k.condition(wl, kueue.WorkloadDeactivationTarget, true, kueue.WorkloadEvictedByAdmissionCheck, "rejected")
		})
		return
	case state(kueue.CheckStateRetry):
		k.evict(key, kueue.WorkloadEvictedByAdmissionCheck, "Evicted due to a check", nil)
		return
	}
	q := k.quota.queues[k.quota.of(string(wl.Spec.QueueName))]
	switch {
	case q == nil || q.stop == kueue.None:
	case kueuestate.IsAdmitted(wl):
		if q.stop == kueue.HoldAndDrain {
			k.evict(key, kueue.WorkloadEvictedByClusterQueueStopped, "The ClusterQueue is stopped", nil)
			return
		}
	default:
		k.workloads.update(key, func(wl *kueue.Workload) bool { return k.loseQuota(wl, kueue.WorkloadInadmissible) })
		return
	}
	k.checkTimes(wl, key)
}

// reconcileJob is Kueue's reconciler of jobs.
func (k *kueueControl) reconcileJob(key types.NamespacedName) {
	key, ok := k.sliceOf(key)
	if !ok {
		return
	}
	wl, job := k.workloads.get(key), k.jobOf(key)
	if wl == nil || job == nil || kueuestate.IsFinished(wl) {
		return
	}
	if job.finished != "" {
		k.workloads.update(key, func(wl *kueue.Workload) bool {
			return k.condition(wl, kueue.WorkloadFinished, true, job.finished, "")
		})
		return
	}
	if k.podsReadyTimeout > 0 {
		k.reportPodsReady(wl, job, key)
		wl = k.workloads.get(key)
	}
	switch {
	case kueuestate.IsEvicted(wl):
		k.stopJob(key, wl)
		if wl.Status.Admission == nil || job.isActive() {
			return
		}
		k.workloads.update(key, func(wl *kueue.Workload) bool {
			reason := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted).Reason
			k.condition(wl, kueue.WorkloadRequeued, reason == kueue.WorkloadEvictedByPreemption, reason, "")
			return k.loseQuota(wl, "Pending")
		})
	case job.suspended && kueuestate.IsAdmitted(wl):
		k.startJob(key, wl)
	case !job.suspended && !kueuestate.IsAdmitted(wl) && !job.spec.Elastic: // pods of a new slice wait
		k.stopJob(key, wl)
	}
}

// reportPodsReady writes the condition PodsReady.
func (k *kueueControl) reportPodsReady(wl *kueue.Workload, job *batchJob, key types.NamespacedName) {
	was := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadPodsReady)
	status, reason := metav1.ConditionFalse, kueue.WorkloadWaitForStart
	switch {
	case !kueuestate.IsAdmitted(wl):
	case job.podsReady():
		status, reason = metav1.ConditionTrue, kueue.WorkloadStarted
		if was != nil && (was.Reason == kueue.WorkloadWaitForRecovery || was.Reason == kueue.WorkloadRecovered) {
			reason = kueue.WorkloadRecovered
		}
	case was != nil && (was.Status == metav1.ConditionTrue || was.Reason == kueue.WorkloadWaitForRecovery):
		reason = kueue.WorkloadWaitForRecovery
	}
	if was != nil && was.Status == status && was.Reason == reason {
		return
	}
	k.workloads.update(key, func(wl *kueue.Workload) bool {
		return k.condition(wl, kueue.WorkloadPodsReady, status == metav1.ConditionTrue, reason, "")
	})
}

// release returns the quota of a workload that is over.
func (k *kueueControl) release(key types.NamespacedName) {
	delete(k.timers, key)
	k.schedule()
}

// requestOf are the devices that a workload holds, by flavor. A slice may be smaller than it was when it got
// its quota.
func requestOf(wl *kueue.Workload) map[string]int64 {
	sum := map[string]int64{}
	for _, a := range wl.Status.Admission.PodSetAssignments {
		for resource, flavor := range a.Flavors {
			q := a.ResourceUsage[resource]
			sum[string(flavor)] += q.Value() / int64(*a.Count) * int64(min(*a.Count, wl.Spec.PodSets[0].Count))
		}
	}
	return sum
}

// localWorkloads are the Workloads of a worker.
type localWorkloads struct {
	liveWorkloads
	onWrite func(types.NamespacedName)
}

func (l *localWorkloads) update(key types.NamespacedName, change func(*kueue.Workload) bool) bool {
	old := l.get(key)
	if old == nil {
		return false
	}
	wl := copyOfWorkload(old)
	if !change(wl) {
		return false
	}
	l.create(key, wl)
	return true
}

func (l *localWorkloads) create(key types.NamespacedName, wl *kueue.Workload) {
	l.put(key, wl)
	l.onWrite(key)
}

func (l *localWorkloads) remove(key types.NamespacedName) {
	if l.get(key) != nil {
		l.create(key, nil)
	}
}
