package world

import (
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// A group of plain pods differs from a Job:
//   - All its pods own the Workload, and none of them controls it.
//   - A pod is its own owner in metrics.
//   - The group counts as active on the hub until its last pod on the worker has ended: the pods on the hub have
//     the status of those.
//   - Nothing replaces a pod that was lost with its node. The group never ends, and its user deletes it.

// KindGroup is a group of plain pods.
const KindGroup JobKind = "PodGroup"

// groupPatience is for how long a user keeps a group that has lost a pod.
const groupPatience = 5 * time.Minute

// ownByPods makes the pods of a group the owners of its Workload.
func ownByPods(wl *kueue.Workload, j *Job) {
	for i := range j.Pods {
		name := j.Name + "-" + strconv.FormatInt(i, 10)
		wl.OwnerReferences = append(wl.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: name, UID: types.UID(name)})
	}
	wl.Annotations = map[string]string{"kueue.x-k8s.io/is-group-workload": "true"}
}

// ownerOf is the topmost controller of a pod in metrics; empty = the pod has none.
func ownerOf(p *pod) (kind, name string) {
	switch p.job.spec.Kind {
	case KindGroup:
		return "", ""
	case KindSet:
		return setGVK.Kind, p.job.run.set.name
	default:
		return "Job", p.job.spec.Name
	}
}

// losesPod reports whether the job is a group, for which nothing replaces a lost pod.
func (r *remoteJob) losesPod() bool {
	if r.spec.Kind != KindGroup {
		return false
	}
	w := r.on.world
	r.active = int64(len(r.pods))
	w.loop.After(groupPatience, func() {
		if r.finished == "" && !r.deleted && r.run.Done.IsZero() {
			w.note("the user deletes %s, which has lost a pod", r.run.Name)
			w.removeJob(r.run)
		}
	})
	return true
}

// ends counts the pods of a stopped group that have not ended as active.
func (r *remoteJob) ends(p *pod) {
	if r.spec.Kind != KindGroup || p.node == nil {
		return
	}
	r.active++
	p.onEnd = func() {
		r.active--
		r.on.kueue.changed(r.key)
	}
}
