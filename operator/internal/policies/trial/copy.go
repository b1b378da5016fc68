package trial

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// Labels of Kueue on a job.
const (
	queueLabel         = "kueue.x-k8s.io/queue-name"
	priorityClassLabel = "kueue.x-k8s.io/priority-class"
)

const (
	// minTTLAfterEnd is the shortest time after its end in which a copy is deleted if the operator does
	// not.
	minTTLAfterEnd = 10 * time.Minute
	// maxGracePeriod limits the time in seconds that the pod of a copy has to end, because the job
	// waits for its devices.
	maxGracePeriod = 30
	// kueueAnnotations is in the keys of Kueue's annotations, such as those for topologies: the
	// queue of the copies has flavors of its own.
	kueueAnnotations = "kueue.x-k8s.io/"
)

// CopyName returns the name of the copy for a model: the same in each attempt, so that it is not
// created twice.
func CopyName(uid, model string) string {
	sum := sha256.Sum256([]byte(uid + "/" + model))
	return "trial-" + hex.EncodeToString(sum[:8])
}

// NewCopy returns the copy of a job for a model: one pod, suspended for Kueue, with a deadline. It
// ends and disappears without the operator: the Workload owns it, and it has a time to live. The
// owner is no controller, because Kueue follows that one.
func NewCopy(job *batchv1.Job, wl *kueue.Workload, p *v1alpha1.TrialPolicy, model v1alpha1.TrialModel) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: wl.Namespace, Name: CopyName(string(wl.UID), model.Name),
			Labels:          map[string]string{v1alpha1.TrialOfLabel: string(wl.UID), queueLabel: p.Spec.QueueName, priorityClassLabel: p.Spec.PriorityClassName},
			Annotations:     map[string]string{modelAnnotation: model.Name},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: kueue.SchemeGroupVersion.String(), Kind: "Workload", Name: wl.Name, UID: wl.UID}},
		},
		Spec: batchv1.JobSpec{
			Parallelism: new(int32(1)), Completions: new(int32(1)), CompletionMode: job.Spec.CompletionMode, BackoffLimit: new(int32(0)), Suspend: new(true),
			ActiveDeadlineSeconds: new(int64(RunTime(p).Seconds())), TTLSecondsAfterFinished: new(int32(ttlAfterEnd(p).Seconds())),
			Template: newTemplate(&job.Spec.Template, string(wl.UID), p.Spec.PodLabelKeys, model),
		},
	}
}

// ttlAfterEnd returns the time to live of a copy after its end: while the trial may last, the copy may
// still have to be measured.
func ttlAfterEnd(p *v1alpha1.TrialPolicy) time.Duration { return max(minTTLAfterEnd, waitOf(p)) }

// newTemplate returns the pod template of a copy. Services and controllers select pods by labels, so
// that it has only those of the job that the policy permits. It has the default priority, because
// the pod must not preempt others.
func newTemplate(template *corev1.PodTemplateSpec, uid string, labelKeys []string, model v1alpha1.TrialModel) corev1.PodTemplateSpec {
	template = template.DeepCopy()
	labels := map[string]string{v1alpha1.TrialOfLabel: uid}
	for _, key := range labelKeys {
		if value, ok := template.Labels[key]; ok {
			labels[key] = value
		}
	}
	maps.DeleteFunc(template.Annotations, func(key, _ string) bool { return strings.Contains(key, kueueAnnotations) })
	spec := template.Spec
	spec.PriorityClassName, spec.Priority, spec.PreemptionPolicy = "", nil, nil
	spec.TopologySpreadConstraints = nil
	if spec.Affinity != nil {
		spec.Affinity.PodAffinity = nil // to pods of the job, whose labels the copy does not have
	}
	if grace := spec.TerminationGracePeriodSeconds; grace != nil {
		spec.TerminationGracePeriodSeconds = new(min(*grace, maxGracePeriod))
	}
	if spec.NodeSelector == nil {
		spec.NodeSelector = map[string]string{}
	}
	maps.Copy(spec.NodeSelector, model.NodeSelector)
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			containers[i].Env = append(containers[i].Env, corev1.EnvVar{Name: v1alpha1.TrialVariable, Value: model.Name})
		}
	}
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: template.Annotations}, Spec: spec}
}

// modelAnnotation on a copy has the name of its model.
const modelAnnotation = "plimsoll.dev/trial-model"

// ModelOf returns the model of a copy.
func ModelOf(job *batchv1.Job) string { return job.Annotations[modelAnnotation] }
