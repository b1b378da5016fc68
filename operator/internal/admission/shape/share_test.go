package shape

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// sharing returns a container that requests extended resources, as name and number in turn.
func sharing(requests map[corev1.ResourceName]string) corev1.Container {
	limits := corev1.ResourceList{}
	for name, n := range requests {
		limits[name] = resource.MustParse(n)
	}
	return corev1.Container{Resources: corev1.ResourceRequirements{Limits: limits}}
}

func workloadOf(template corev1.PodTemplateSpec) *kueue.Workload {
	return &kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "main", Count: 1, Template: template}}}}
}

// The share of a pod, its variables, and what the gate does not measure. Without $share_ in the
// gate's fit query, the facts are the same as for a pod without a share.
func TestShareOfPodSet(t *testing.T) {
	const gpu, gpumem, percent, cores = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"
	for _, tc := range []struct {
		name       string
		containers []corev1.Container
		want       *Share
		devices    int64
		vars       [3]string // memory, ratio, cores
		unmeasured []string
	}{
		{name: "memory and cores", containers: []corev1.Container{sharing(map[corev1.ResourceName]string{gpu: "1", gpumem: "3000", cores: "30"})},
			want: &Share{Memory: 3000 << 20, CorePercent: 30}, devices: 1, vars: [3]string{"3145728000", "0", "0.3"}},
		{name: "percentage of the memory", containers: []corev1.Container{sharing(map[corev1.ResourceName]string{gpu: "1", percent: "45"})},
			want: &Share{MemoryPercent: 45}, devices: 1, vars: [3]string{"0", "0.45", "0"}},
		{name: "memory counts before its percentage", containers: []corev1.Container{sharing(map[corev1.ResourceName]string{gpu: "1", gpumem: "1", percent: "45"})},
			want: &Share{Memory: 1 << 20}, devices: 1, vars: [3]string{"1048576", "0", "0"}},
		{name: "whole devices", containers: []corev1.Container{sharing(map[corev1.ResourceName]string{gpu: "2"})},
			want: &Share{MemoryPercent: 100}, devices: 2, vars: [3]string{"0", "1", "0"}},
		{name: "the largest of two containers", containers: []corev1.Container{
			sharing(map[corev1.ResourceName]string{gpu: "1", gpumem: "3000", cores: "30"}), sharing(map[corev1.ResourceName]string{gpu: "1", gpumem: "2000", cores: "50"})},
			want: &Share{Memory: 3000 << 20, CorePercent: 50}, devices: 2, vars: [3]string{"3145728000", "0", "0.5"}},
		{name: "memory in one container, a percentage in another", containers: []corev1.Container{
			sharing(map[corev1.ResourceName]string{gpu: "1", gpumem: "3000"}), sharing(map[corev1.ResourceName]string{gpu: "1", percent: "10"})},
			want: &Share{MemoryPercent: 100}, devices: 2, vars: [3]string{"0", "1", "0"}},
		{name: "a container without devices has no share", containers: []corev1.Container{
			sharing(map[corev1.ResourceName]string{gpu: "1", gpumem: "3000"}), sharing(map[corev1.ResourceName]string{"rdma/hca": "1"})},
			want: &Share{Memory: 3000 << 20}, devices: 1, vars: [3]string{"3145728000", "0", "0"}, unmeasured: []string{"rdma/hca"}},
		{name: "more than an int64 has bytes", containers: []corev1.Container{sharing(map[corev1.ResourceName]string{gpu: "1", gpumem: "9000000000000", cores: "9000000000000000000"})},
			want: &Share{Memory: 1 << 50, CorePercent: 1 << 30}, devices: 1, vars: [3]string{"1125899906842624", "0", "1.073741824e+07"}},
		{name: "a percentage without end", containers: []corev1.Container{sharing(map[corev1.ResourceName]string{gpu: "1", percent: "9000000000000000000"})},
			want: &Share{MemoryPercent: 1 << 30}, devices: 1, vars: [3]string{"0", "1.073741824e+07", "0"}},
		{name: "time-shared resource", containers: []corev1.Container{sharing(map[corev1.ResourceName]string{"nvidia.com/gpu.shared": "1"})},
			want: &Share{MemoryPercent: 100}, devices: 1, vars: [3]string{"0", "1", "0"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wl := workloadOf(corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: tc.containers}})
			spec := v1alpha1.PlacementGateSpec{}
			spec.Queries.Fit = "sum by (cluster) (free / $share_memory)"
			f := FactsOf(wl, OptionsOf(&spec, nil))
			if len(f.PodSets) != 1 || f.PodSets[0].DevicesPerPod != tc.devices {
				t.Fatalf("pod sets %+v, want one with %d devices", f.PodSets, tc.devices)
			}
			if diff := cmp.Diff(tc.want, f.PodSets[0].Share); diff != "" {
				t.Errorf("share (-want +got):\n%s", diff)
			}
			vars := f.Vars(f.PodSets[0])
			if got := [3]string{vars["share_memory"], vars["share_memory_ratio"], vars["share_cores"]}; got != tc.vars {
				t.Errorf("variables %q, want %q", got, tc.vars)
			}
			if diff := cmp.Diff(tc.unmeasured, f.Unmeasured); diff != "" {
				t.Errorf("unmeasured (-want +got):\n%s", diff)
			}
			spec.Queries.Fit = "sum by (cluster) (free / $devices_per_pod)"
			for _, p := range FactsOf(wl, OptionsOf(&spec, nil)).PodSets {
				if vars := f.Vars(p); p.Share != nil || vars["share_memory"] != "" {
					t.Errorf("share %v without a query for shares, variables %v", p.Share, vars)
				}
			}
		})
	}
}

// Requests of KAI Scheduler are named: the exporter does not know what is free for them.
func TestKAIFractionIsNamed(t *testing.T) {
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{container("cpu", "1")}}}
	template.Annotations = map[string]string{"gpu-fraction": "0.5"}
	f := FactsOf(workloadOf(template), Options{})
	if diff := cmp.Diff([]string{"annotation gpu-fraction"}, f.Unmeasured); diff != "" || len(f.PodSets) > 0 {
		t.Errorf("%d pod sets, unmeasured (-want +got):\n%s", len(f.PodSets), diff)
	}
}

// The model of shared nodes ends in -SHARED, that of their metrics does not.
func TestModelOfSharedNodes(t *testing.T) {
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{container("nvidia.com/gpu", "1")}, NodeSelector: map[string]string{"gpu": "NVIDIA-L4-SHARED"}}}
	f := FactsOf(workloadOf(template), Options{ModelFrom: []string{"gpu"}, AllDevices: true, Shares: true})
	if got := f.PodSets[0].Model; got != "NVIDIA-L4" {
		t.Errorf("model %s", got)
	}
}

func TestShareText(t *testing.T) {
	for want, s := range map[string]Share{
		"3000 MiB and 30% of the cores":                       {Memory: 3000 << 20, CorePercent: 30},
		"45% of the memory":                                   {MemoryPercent: 45},
		"the device's default of memory and 30% of the cores": {MemoryPercent: 100, CorePercent: 30, Claimed: true},
		"100% of the memory and 100% of the cores":            unknownClaim,
	} {
		if got := s.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A pod that leaves a device makes room for one pod with a share that is no larger in anything.
func TestSlotsReturned(t *testing.T) {
	for _, tc := range []struct {
		name        string
		s, returned Share
		want        int64
	}{
		{"equal bytes", Share{Memory: 10}, Share{Memory: 10}, 1},
		{"more bytes", Share{Memory: 10}, Share{Memory: 30}, 1},
		{"fewer bytes", Share{Memory: 10}, Share{Memory: 9}, 0},
		{"equal percentages", Share{MemoryPercent: 50}, Share{MemoryPercent: 50}, 1},
		{"a lower percentage", Share{MemoryPercent: 50}, Share{MemoryPercent: 49}, 0},
		{"bytes and a percentage", Share{Memory: 10}, Share{MemoryPercent: 100}, 0},
		{"a percentage and bytes", Share{MemoryPercent: 1}, Share{Memory: 10}, 0},
		{"equal cores", Share{Memory: 10, CorePercent: 30}, Share{Memory: 10, CorePercent: 30}, 1},
		{"fewer cores", Share{Memory: 10, CorePercent: 30}, Share{Memory: 10, CorePercent: 29}, 0},
		{"cores and a replica", Share{MemoryPercent: 10}, Share{MemoryPercent: 90, CorePercent: 90}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.s.SlotsReturned(tc.returned); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

// How many pods with a share a pod with another one displaces on a device.
func TestSlotsTaken(t *testing.T) {
	for _, tc := range []struct {
		name     string
		s, taken Share
		want     int64
		unknown  bool
	}{
		{"bytes", Share{Memory: 10}, Share{Memory: 21}, 3, false},
		{"cores", Share{Memory: 10, CorePercent: 20}, Share{Memory: 10, CorePercent: 50}, 3, false},
		{"percentages", Share{MemoryPercent: 20}, Share{MemoryPercent: 50}, 3, false},
		{"no more than the device has places", Share{MemoryPercent: 40}, Share{MemoryPercent: 100}, 2, false},
		{"a replica at least", Share{Memory: 40}, Share{Memory: 1}, 1, false},
		{"a percentage and bytes: all places of the device", Share{MemoryPercent: 40, CorePercent: 20}, Share{Memory: 1}, 2, false},
		{"bytes and a percentage: unknown", Share{Memory: 1}, Share{MemoryPercent: 1}, 0, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, ok := tc.s.SlotsTaken(tc.taken); got != tc.want || ok == tc.unknown {
				t.Errorf("got %d, known: %t, want %d", got, ok, tc.want)
			}
		})
	}
}
