package embedded

import (
	"cmp"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// uidOf returns the UID of a job's workload. It seeds the random choice among equal
// clusters, so the same job always gets the same decision.
func uidOf(job *batchv1.Job) string { return job.Namespace + "/" + job.Name }

// workloadOf returns the Workload that Kueue creates for a job, with quota reserved and
// the gate's check pending.
func workloadOf(job *batchv1.Job, now metav1.Time) *kueue.Workload {
	return &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: job.Name, UID: types.UID(uidOf(job)), CreationTimestamp: now},
		Spec: kueue.WorkloadSpec{
			QueueName: kueue.LocalQueueName(job.Labels["kueue.x-k8s.io/queue-name"]),
			PodSets: []kueue.PodSet{{
				Name: kueue.DefaultPodSetName, Count: cmp.Or(ptr.Deref(job.Spec.Parallelism, 1), 1), Template: job.Spec.Template,
			}},
		},
		Status: kueue.WorkloadStatus{
			Admission:       &kueue.Admission{},
			Conditions:      []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue, LastTransitionTime: now}},
			AdmissionChecks: []kueue.AdmissionCheckState{{Name: checkName, State: kueue.CheckStatePending, LastTransitionTime: now}},
		},
	}
}
