package profile

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

func workload(change func(*kueue.Workload)) *kueue.Workload {
	wl := &kueue.Workload{}
	wl.Name = "job-x"
	wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 2, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "train", Image: "train:1", Command: []string{"python"}, Args: []string{"train.py", "--lr=1"},
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8"), "cpu": resource.MustParse("4")}},
	}}}}}}
	if change != nil {
		change(wl)
	}
	return wl
}

func container(wl *kueue.Workload) *corev1.Container {
	return &wl.Spec.PodSets[0].Template.Spec.Containers[0]
}

func TestHashDistinguishesJobs(t *testing.T) {
	base := KeyOf(workload(nil))
	if base.Source != v1alpha1.ProfileFromHash || len(validation.IsDNS1123Subdomain(base.Name)) > 0 {
		t.Fatalf("key %+v", base)
	}
	for _, tc := range []struct {
		name   string
		change func(*kueue.Workload)
		same   bool
	}{
		{"another name", func(wl *kueue.Workload) { wl.Name = "job-y" }, true},
		{"more pods", func(wl *kueue.Workload) { wl.Spec.PodSets[0].Count = 8 }, true},
		{"more CPU", func(wl *kueue.Workload) { container(wl).Resources.Limits["cpu"] = resource.MustParse("8") }, true},
		{"requests beside limits", func(wl *kueue.Workload) {
			container(wl).Resources.Requests = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}
		}, true},
		{"another image", func(wl *kueue.Workload) { container(wl).Image = "train:2" }, false},
		{"another command", func(wl *kueue.Workload) { container(wl).Command = []string{"bash"} }, false},
		{"another argument", func(wl *kueue.Workload) { container(wl).Args = []string{"train.py", "--lr=2"} }, false},
		{"arguments divided in another way", func(wl *kueue.Workload) { container(wl).Args = []string{"train.py --lr=1"} }, false},
		{"an argument in the command", func(wl *kueue.Workload) {
			container(wl).Command, container(wl).Args = []string{"python", "train.py"}, []string{"--lr=1"}
		}, false},
		{"fewer devices", func(wl *kueue.Workload) {
			container(wl).Resources.Limits["nvidia.com/gpu"] = resource.MustParse("4")
		}, false},
		{"other devices", func(wl *kueue.Workload) {
			delete(container(wl).Resources.Limits, "nvidia.com/gpu")
			container(wl).Resources.Limits["amd.com/gpu"] = resource.MustParse("8")
		}, false},
		{"a claim", func(wl *kueue.Workload) { container(wl).Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}} }, false},
		{"an init container", func(wl *kueue.Workload) {
			wl.Spec.PodSets[0].Template.Spec.InitContainers = []corev1.Container{{Image: "init"}}
		}, false},
		{"another pod set", func(wl *kueue.Workload) { wl.Spec.PodSets = append(wl.Spec.PodSets, wl.Spec.PodSets[0]) }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := KeyOf(workload(tc.change)); (got == base) != tc.same {
				t.Errorf("key %+v, the one before %+v", got, base)
			}
		})
	}
}

func TestLabelNamesTheProfile(t *testing.T) {
	labeled := func(value string) Key {
		return KeyOf(workload(func(wl *kueue.Workload) { wl.Labels = map[string]string{v1alpha1.ProfileLabel: value} }))
	}
	if got, want := labeled("llama-7b"), (Key{Name: "llama-7b", Source: v1alpha1.ProfileFromLabel, Label: "llama-7b"}); got != want {
		t.Errorf("key %+v, want %+v", got, want)
	}
	names := map[string]string{KeyOf(workload(nil)).Name: "the hash"}
	for _, value := range []string{"llama-7b", "Llama-7B", "llama_7b", "llama.7b", "0", KeyOf(workload(nil)).Name, labeled("Llama-7B").Name} {
		got := labeled(value)
		if got.Label != value || got.Source != v1alpha1.ProfileFromLabel || len(validation.IsDNS1123Label(got.Name)) > 0 {
			t.Errorf("key of %q: %+v", value, got)
		}
		if other, taken := names[got.Name]; taken {
			t.Errorf("%q and %q share the profile %s", value, other, got.Name)
		}
		names[got.Name] = value
	}
	fromPods := KeyOf(workload(func(wl *kueue.Workload) {
		wl.Spec.PodSets[0].Template.Labels = map[string]string{v1alpha1.ProfileLabel: "pods"}
	}))
	if fromPods.Name != "pods" {
		t.Errorf("key from the pods' label: %+v", fromPods)
	}
}

// Workloads in the operator's cache have no commands, from which the hash is computed.
func TestRecordedNameSurvivesTrimming(t *testing.T) {
	wl := workload(nil)
	want := KeyOf(wl).Name
	RecordName(wl)
	for i := range wl.Spec.PodSets[0].Template.Spec.Containers {
		wl.Spec.PodSets[0].Template.Spec.Containers[i].Command = nil
		wl.Spec.PodSets[0].Template.Spec.Containers[i].Args = nil
	}
	if KeyOf(wl).Name == want {
		t.Fatal("the command is not part of the key")
	}
	if got := RecordedName(wl); got != want {
		t.Errorf("recorded %s, want %s", got, want)
	}
	forged := workload(func(wl *kueue.Workload) { wl.Annotations = map[string]string{recordedAnnotation: "of-another-job"} })
	if RecordName(forged); RecordedName(forged) != want {
		t.Errorf("the Workload names its own profile: %s", RecordedName(forged))
	}
}
