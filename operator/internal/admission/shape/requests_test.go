package shape

import (
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// needs returns a container with requests of CPU and memory; empty = none.
func needs(cpu, memory string) corev1.Container {
	list := corev1.ResourceList{}
	for name, quantity := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
		if quantity != "" {
			list[name] = resource.MustParse(quantity)
		}
	}
	return corev1.Container{Resources: corev1.ResourceRequirements{Requests: list}}
}

// The requests of a pod are those that kube-scheduler counts.
func TestRequests(t *testing.T) {
	sidecar := needs("2", "2Gi")
	sidecar.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	limited := corev1.Container{Resources: corev1.ResourceRequirements{Limits: needs("6", "6Gi").Resources.Requests}}
	both := corev1.Container{Resources: corev1.ResourceRequirements{Limits: needs("6", "6Gi").Resources.Requests, Requests: needs("1", "1Gi").Resources.Requests}}
	for _, tc := range []struct {
		name string
		spec corev1.PodSpec
		want Requests
		text string
	}{
		{"none", corev1.PodSpec{Containers: []corev1.Container{needs("", "")}}, Requests{}, ""},
		{"containers", corev1.PodSpec{Containers: []corev1.Container{needs("1", "1Gi"), needs("500m", "512Mi")}}, Requests{1500, 3 << 29}, "1.5 CPU and 1536Mi"},
		{"CPU only", corev1.PodSpec{Containers: []corev1.Container{needs("1", "")}}, Requests{1000, 0}, "1 CPU"},
		{"limits without requests", corev1.PodSpec{Containers: []corev1.Container{limited}}, Requests{6000, 6 << 30}, "6 CPU and 6Gi"},
		{"limits above the requests", corev1.PodSpec{Containers: []corev1.Container{both}}, Requests{1000, 1 << 30}, "1 CPU and 1Gi"},
		{"a smaller init container", corev1.PodSpec{InitContainers: []corev1.Container{needs("1", "1Gi")}, Containers: []corev1.Container{needs("4", "4Gi")}}, Requests{4000, 4 << 30}, "4 CPU and 4Gi"},
		{"a larger init container", corev1.PodSpec{InitContainers: []corev1.Container{needs("8", "1Gi")}, Containers: []corev1.Container{needs("4", "4Gi")}}, Requests{8000, 4 << 30}, "8 CPU and 4Gi"},
		{"a sidecar", corev1.PodSpec{InitContainers: []corev1.Container{sidecar}, Containers: []corev1.Container{needs("4", "4Gi")}}, Requests{6000, 6 << 30}, "6 CPU and 6Gi"},
		{"an init container after a sidecar", corev1.PodSpec{InitContainers: []corev1.Container{sidecar, needs("8", "")}, Containers: []corev1.Container{needs("4", "4Gi")}}, Requests{10_000, 6 << 30}, "10 CPU and 6Gi"},
		{"an init container before a sidecar", corev1.PodSpec{InitContainers: []corev1.Container{needs("8", ""), sidecar}, Containers: []corev1.Container{needs("4", "4Gi")}}, Requests{8000, 6 << 30}, "8 CPU and 6Gi"},
		{"overhead", corev1.PodSpec{Containers: []corev1.Container{needs("4", "4Gi")}, Overhead: needs("250m", "1Gi").Resources.Requests}, Requests{4250, 5 << 30}, "4.25 CPU and 5Gi"},
		{"overhead alone", corev1.PodSpec{Overhead: needs("250m", "1Gi").Resources.Requests}, Requests{250, 1 << 30}, "0.25 CPU and 1Gi"},
		{"of the pod as a whole", corev1.PodSpec{Containers: []corev1.Container{needs("4", "4Gi")}, Resources: &corev1.ResourceRequirements{Requests: needs("9", "").Resources.Requests},
			Overhead: needs("1", "").Resources.Requests}, Requests{10_000, 4 << 30}, "10 CPU and 4Gi"},
		{"limits of the pod as a whole", corev1.PodSpec{Containers: []corev1.Container{needs("4", "")}, Resources: &corev1.ResourceRequirements{Limits: needs("9", "9Gi").Resources.Requests}}, Requests{4000, 9 << 30}, "4 CPU and 9Gi"},
		{"hostile quantities", corev1.PodSpec{Containers: []corev1.Container{needs("-5", "-1Gi"), needs("9E", "7E"), needs("9E", "7E")}}, Requests{maxRequest, maxRequest << 20}, "1073741.824 CPU and 1Pi"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := requestsOf(&tc.spec)
			if got != tc.want || got.String() != tc.text {
				t.Errorf("%+v, %q, want %+v, %q", got, got, tc.want, tc.text)
			}
		})
	}
}

func TestSlotsOfRequests(t *testing.T) {
	for _, tc := range []struct {
		r, other Requests
		want     int64
	}{
		{Requests{}, Requests{8000, 1 << 40}, 0},
		{Requests{8000, 0}, Requests{8000, 1 << 40}, 1},
		{Requests{8000, 0}, Requests{8001, 0}, 2},
		{Requests{8000, 1 << 30}, Requests{8000, 3 << 30}, 3},
		{Requests{8000, 1 << 30}, Requests{}, 0},
		{Requests{1, 1}, Requests{math.MaxInt64, math.MaxInt64}, math.MaxInt64},
	} {
		if got := tc.r.SlotsTaken(tc.other); got != tc.want {
			t.Errorf("a pod with %+v displaces %d with %+v, want %d", tc.other, got, tc.r, tc.want)
		}
	}
	if got, want := (Requests{1, 2}).Plus(Requests{10, 20}, 3), (Requests{31, 62}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got, want := (Requests{1, 2}).Plus(Requests{1, maxRequest << 20}, math.MaxInt32), (Requests{1 + math.MaxInt32, math.MaxInt64}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// With each device, the pods free at least what those of the pod set with the least CPU or memory for a device do.
func TestRequestsPerDevice(t *testing.T) {
	set := func(devices, cpu, memory string) kueue.PodSet {
		c := needs(cpu, memory)
		if devices != "" {
			c.Resources.Limits = container("nvidia.com/gpu", devices).Resources.Limits
		}
		return kueue.PodSet{Count: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{c}}}}
	}
	for _, tc := range []struct {
		sets []kueue.PodSet
		want Requests
	}{
		{[]kueue.PodSet{set("4", "32", "64Gi")}, Requests{8000, 16 << 30}},
		{[]kueue.PodSet{set("", "1", "1Gi"), set("4", "32", "64Gi"), set("1", "9", "8Gi")}, Requests{8000, 8 << 30}},
		{[]kueue.PodSet{set("1", "9", "8Gi"), set("4", "", "64Gi")}, Requests{0, 8 << 30}},
		{[]kueue.PodSet{set("", "1", "1Gi")}, Requests{}},
	} {
		if got := RequestsPerDevice(&kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: tc.sets}}); got != tc.want {
			t.Errorf("%+v, want %+v", got, tc.want)
		}
	}
}
