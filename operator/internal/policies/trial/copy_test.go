package trial

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

var l4 = v1alpha1.TrialModel{Name: "NVIDIA-L4", NodeSelector: map[string]string{"nvidia.com/gpu.product": "NVIDIA-L4"}}

func TestNewCopy(t *testing.T) {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "train", Labels: map[string]string{queueLabel: "gpu", "team": "a"}}, Spec: batchv1.JobSpec{
		Parallelism: new(int32(16)), Completions: new(int32(16)), BackoffLimit: new(int32(6)), CompletionMode: new(batchv1.IndexedCompletion), ManualSelector: new(true),
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"controller-uid": "x"}}, ManagedBy: new("kueue.x-k8s.io/multikueue"),
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{
				Labels:      map[string]string{"controller-uid": "x", "batch.kubernetes.io/job-name": "train", "app": "train", "monitor": "yes", v1alpha1.TrialLabel: "true", v1alpha1.ProfileLabel: "llama"},
				Annotations: map[string]string{"kueue.x-k8s.io/podset-required-topology": "rack", "prometheus.io/scrape": "true"}, Finalizers: []string{"example.com/keep"}},
			Spec: corev1.PodSpec{NodeSelector: map[string]string{"zone": "a"}, Containers: []corev1.Container{{Name: "main", Image: "train:1"}},
				PriorityClassName: "high", Priority: new(int32(1000)), PreemptionPolicy: new(corev1.PreemptLowerPriority), TerminationGracePeriodSeconds: new(int64(3600)),
				TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{TopologyKey: "rack"}},
				Affinity:                  &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}, PodAntiAffinity: &corev1.PodAntiAffinity{}}},
		}}}
	before := job.DeepCopy()
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "job-train-1", UID: "uid"}}
	p := &v1alpha1.TrialPolicy{Spec: v1alpha1.TrialPolicySpec{QueueName: "trials", PriorityClassName: "trial", RunSeconds: 120, PodLabelKeys: []string{"monitor", "absent"}}}
	got := NewCopy(job, wl, p, l4)
	want := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: CopyName("uid", "NVIDIA-L4"),
			Labels:          map[string]string{v1alpha1.TrialOfLabel: "uid", queueLabel: "trials", priorityClassLabel: "trial"},
			Annotations:     map[string]string{modelAnnotation: "NVIDIA-L4"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "kueue.x-k8s.io/v1beta2", Kind: "Workload", Name: "job-train-1", UID: "uid"}}},
		Spec: batchv1.JobSpec{
			Parallelism: new(int32(1)), Completions: new(int32(1)), BackoffLimit: new(int32(0)), CompletionMode: new(batchv1.IndexedCompletion), Suspend: new(true),
			ActiveDeadlineSeconds: new(int64(120)), TTLSecondsAfterFinished: new(int32(900)),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"monitor": "yes", v1alpha1.TrialOfLabel: "uid"}, Annotations: map[string]string{"prometheus.io/scrape": "true"}},
				Spec: corev1.PodSpec{NodeSelector: map[string]string{"zone": "a", "nvidia.com/gpu.product": "NVIDIA-L4"}, TerminationGracePeriodSeconds: new(int64(30)),
					Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{}}, Containers: []corev1.Container{
						{Name: "main", Image: "train:1", Env: []corev1.EnvVar{{Name: "PLIMSOLL_TRIAL", Value: "NVIDIA-L4"}}}}},
			}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(before, job); diff != "" {
		t.Errorf("the job changed: %s", diff)
	}
	if ModelOf(got) != "NVIDIA-L4" {
		t.Errorf("model %q", ModelOf(got))
	}
	if CopyName("uid", "NVIDIA-L4") != got.Name || CopyName("uid", "NVIDIA-H100") == got.Name || CopyName("uid2", "NVIDIA-L4") == got.Name {
		t.Error("names must differ by Workload and model")
	}
}

func TestCopyOfAJobWithoutOptionalFields(t *testing.T) {
	job := &batchv1.Job{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{InitContainers: []corev1.Container{{Name: "setup"}}, Containers: []corev1.Container{{Name: "main"}}}}}}
	got := NewCopy(job, &kueue.Workload{ObjectMeta: metav1.ObjectMeta{UID: "uid"}}, &v1alpha1.TrialPolicy{}, l4)
	variable := []corev1.EnvVar{{Name: "PLIMSOLL_TRIAL", Value: "NVIDIA-L4"}}
	want := corev1.PodSpec{NodeSelector: l4.NodeSelector, InitContainers: []corev1.Container{{Name: "setup", Env: variable}}, Containers: []corev1.Container{{Name: "main", Env: variable}}}
	if diff := cmp.Diff(want, got.Spec.Template.Spec); diff != "" {
		t.Error(diff)
	}
	if seconds := *got.Spec.ActiveDeadlineSeconds; seconds != 300 {
		t.Errorf("a copy runs for %d s by default", seconds)
	}
}

// A copy that has ended may wait for its queries until the time limit of the trial.
func TestCopiesOutliveTheTrial(t *testing.T) {
	for wait, want := range map[int32]int32{0: 900, 60: 600, 3600: 3600, 86400: 86400} {
		p := &v1alpha1.TrialPolicy{Spec: v1alpha1.TrialPolicySpec{WaitSeconds: wait}}
		if got := NewCopy(&batchv1.Job{}, &kueue.Workload{}, p, l4).Spec.TTLSecondsAfterFinished; *got != want {
			t.Errorf("waitSeconds %d: the copy is deleted %d s after its end, want %d", wait, *got, want)
		}
	}
}
