package shape

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// kueuePodSet returns a pod set as Kueue makes it from a job: devices of a resource for each pod, 0
// for none.
func kueuePodSet(name string, count int32, resource corev1.ResourceName, devices int, change ...func(*kueue.PodSet)) kueue.PodSet {
	c := container("cpu", "4")
	if devices > 0 {
		c = container(resource, fmt.Sprint(devices))
	}
	set := kueue.PodSet{Name: kueue.PodSetReference(name), Count: count, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{c}}}}
	for _, f := range change {
		f(&set)
	}
	return set
}

func selecting(key, value string) func(*kueue.PodSet) {
	return func(set *kueue.PodSet) {
		if set.Template.Spec.NodeSelector == nil {
			set.Template.Spec.NodeSelector = map[string]string{}
		}
		set.Template.Spec.NodeSelector[key] = value
	}
}

func atLeast(pods int32) func(*kueue.PodSet) {
	return func(set *kueue.PodSet) { set.MinCount = &pods }
}

func topology(request kueue.PodSetTopologyRequest) func(*kueue.PodSet) {
	return func(set *kueue.PodSet) { set.TopologyRequest = &request }
}

// The Workloads of each job kind that MultiKueue supports, as Kueue makes them, and what the gate
// tests: pods × devices of a model, and by name what it cannot test.
func TestJobKinds(t *testing.T) {
	const gpu, tpu = "nvidia.com/gpu", "google.com/tpu"
	one := func(name string, devices int) kueue.PodSet { return kueuePodSet(name, 1, gpu, devices) }
	slice4x4 := []func(*kueue.PodSet){selecting("cloud.google.com/gke-tpu-accelerator", "tpu-v5-lite-podslice"), selecting("cloud.google.com/gke-tpu-topology", "4x4")}
	for _, tc := range []struct {
		name string
		sets []kueue.PodSet
		// admitted are the numbers of pods by pod set, if Kueue admitted fewer; flavors by pod set
		// are "h100" unless stated. MultiKueue copies the workload if copied is true.
		admitted map[string]int32
		copied   bool
		flavors  map[string]string
		want     []string
		total    int64
		// unmeasured is what the decision's message names.
		unmeasured []string
	}{
		{name: "Job", sets: []kueue.PodSet{kueuePodSet("main", 4, gpu, 8)}, want: []string{"main: 4 × 8 H100"}, total: 32},
		{name: "Job, partially admitted", sets: []kueue.PodSet{kueuePodSet("main", 8, gpu, 8)}, admitted: map[string]int32{"main": 3}, want: []string{"main: 3 × 8 H100"}, total: 24},
		{name: "Job, partially admitted on the hub, copied by MultiKueue", sets: []kueue.PodSet{kueuePodSet("main", 8, gpu, 8, atLeast(2))}, admitted: map[string]int32{"main": 3}, copied: true,
			want: []string{"main: 8 × 8 H100, at least 2"}, total: 64},
		{name: "Job with a minimum, not copied", sets: []kueue.PodSet{kueuePodSet("main", 8, gpu, 8, atLeast(2))}, admitted: map[string]int32{"main": 3}, want: []string{"main: 3 × 8 H100"}, total: 24},
		{name: "Job of which some pods had finished before its eviction", sets: []kueue.PodSet{kueuePodSet("main", 4, gpu, 8)}, admitted: map[string]int32{"main": 1}, copied: true,
			want: []string{"main: 4 × 8 H100"}, total: 32},
		{name: "JobSet of which the workers had finished", sets: []kueue.PodSet{one("driver", 1), kueuePodSet("workers", 2, gpu, 8)}, admitted: map[string]int32{"workers": 0}, copied: true,
			want: []string{"workers: 2 × 8 H100", "driver: 1 × 1 H100"}, total: 17},
		{name: "JobSet", sets: []kueue.PodSet{kueuePodSet("driver", 1, gpu, 0), kueuePodSet("workers", 2, gpu, 8)}, want: []string{"workers: 2 × 8 H100"}, total: 16},
		{name: "RayJob", sets: []kueue.PodSet{one("head", 0), kueuePodSet("small", 4, gpu, 1), kueuePodSet("large", 2, gpu, 8), one("submitter", 0)},
			want: []string{"large: 2 × 8 H100", "small: 4 × 1 H100"}, total: 20},
		{name: "RayCluster with a GPU on its head", sets: []kueue.PodSet{one("head", 1), kueuePodSet("workers", 2, gpu, 4)}, want: []string{"workers: 2 × 4 H100", "head: 1 × 1 H100"}, total: 9},
		{name: "PyTorchJob", sets: []kueue.PodSet{one("master", 8), kueuePodSet("worker", 3, gpu, 8)}, want: []string{"master: 1 × 8 H100", "worker: 3 × 8 H100"}, total: 32},
		{name: "TrainJob", sets: []kueue.PodSet{one("dataset-initializer", 0), one("model-initializer", 0), kueuePodSet("node", 4, gpu, 8)}, want: []string{"node: 4 × 8 H100"}, total: 32},
		{name: "MPIJob", sets: []kueue.PodSet{one("launcher", 0), kueuePodSet("worker", 4, gpu, 8)}, want: []string{"worker: 4 × 8 H100"}, total: 32},
		{name: "pod group of two roles", sets: []kueue.PodSet{kueuePodSet("5949bb76", 1, gpu, 1), kueuePodSet("7a2fd5c0", 3, gpu, 4)}, want: []string{"7a2fd5c0: 3 × 4 H100", "5949bb76: 1 × 1 H100"}, total: 13},
		{name: "several flavors", sets: []kueue.PodSet{kueuePodSet("train", 1, gpu, 8), kueuePodSet("serve", 2, gpu, 1)}, flavors: map[string]string{"serve": "l4"},
			want: []string{"train: 1 × 8 H100", "serve: 2 × 1 L4"}, total: 10},
		{name: "slice of an elastic job", sets: []kueue.PodSet{kueuePodSet("main", 3, gpu, 1)}, want: []string{"main: 3 × 1 H100"}, total: 3},
		{name: "single-host TPU slice", sets: []kueue.PodSet{kueuePodSet("main", 1, tpu, 4, selecting("cloud.google.com/gke-tpu-accelerator", "tpu-v5-lite-device"), selecting("cloud.google.com/gke-tpu-topology", "2x2"))},
			want: []string{"main: 1 × 4 tpu-v5-lite-device"}, total: 4},
		{name: "multi-host TPU slice", sets: []kueue.PodSet{kueuePodSet("main", 4, tpu, 4, slice4x4...)},
			want: []string{"main: 4 × 4 tpu-v5-lite-podslice"}, total: 16, unmeasured: []string{"slice of TPU topology 4x4"}},
		{name: "TPU topology that is no topology", sets: []kueue.PodSet{kueuePodSet("main", 4, tpu, 4, selecting("cloud.google.com/gke-tpu-topology", "many"))},
			want: []string{"main: 4 × 4 any"}, total: 16, unmeasured: []string{"slice of TPU topology many"}},
		{name: "required topology", sets: []kueue.PodSet{kueuePodSet("main", 4, gpu, 8, topology(kueue.PodSetTopologyRequest{Required: ptr.To("cloud.provider.com/rack")}))},
			want: []string{"main: 4 × 8 H100"}, total: 32, unmeasured: []string{"required topology cloud.provider.com/rack"}},
		{name: "required topology of slices", sets: []kueue.PodSet{kueuePodSet("main", 4, gpu, 8, topology(kueue.PodSetTopologyRequest{
			Preferred: ptr.To("cloud.provider.com/block"), PodSetSliceRequiredTopology: ptr.To("cloud.provider.com/rack"), PodSetSliceSize: ptr.To(int32(2))}))},
			want: []string{"main: 4 × 8 H100"}, total: 32, unmeasured: []string{"required topology cloud.provider.com/rack"}},
		{name: "required topology of slices in two layers", sets: []kueue.PodSet{kueuePodSet("main", 4, gpu, 8, topology(kueue.PodSetTopologyRequest{
			PodsetSliceRequiredTopologyConstraints: []kueue.PodsetSliceRequiredTopologyConstraint{{Topology: "cloud.provider.com/block", Size: 4}, {Topology: "cloud.provider.com/rack", Size: 2}}}))},
			want: []string{"main: 4 × 8 H100"}, total: 32, unmeasured: []string{"required topology cloud.provider.com/block", "required topology cloud.provider.com/rack"}},
		{name: "preferred topology", sets: []kueue.PodSet{kueuePodSet("main", 4, gpu, 8, topology(kueue.PodSetTopologyRequest{Preferred: ptr.To("cloud.provider.com/rack")}))},
			want: []string{"main: 4 × 8 H100"}, total: 32},
		{name: "resource claim", sets: []kueue.PodSet{kueuePodSet("main", 1, gpu, 0, func(set *kueue.PodSet) {
			set.Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}}
		})}, unmeasured: []string{"claim gpu"}},
		{name: "no devices", sets: []kueue.PodSet{kueuePodSet("main", 4, gpu, 0)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wl := &kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: tc.sets}, Status: kueue.WorkloadStatus{Admission: &kueue.Admission{}}}
			for _, set := range tc.sets {
				flavor := kueue.ResourceFlavorReference("h100")
				if name, ok := tc.flavors[string(set.Name)]; ok {
					flavor = kueue.ResourceFlavorReference(name)
				}
				assigned := kueue.PodSetAssignment{Name: set.Name, Count: ptr.To(set.Count), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{gpu: flavor}}
				if n, ok := tc.admitted[string(set.Name)]; ok {
					assigned.Count = ptr.To(n)
				}
				wl.Status.Admission.PodSetAssignments = append(wl.Status.Admission.PodSetAssignments, assigned)
			}
			models := map[string]string{"h100": "H100", "l4": "L4"}
			f := FactsOf(wl, Options{Copied: tc.copied, ModelFrom: []string{"nvidia.com/gpu.product", "cloud.google.com/gke-tpu-accelerator"},
				Flavor: func(name string) kueue.ResourceFlavorSpec {
					return kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"nvidia.com/gpu.product": models[name]}}
				}})
			var got []string
			var total int64
			for _, p := range f.PodSets {
				model := p.Model
				if model == "" {
					model = "any"
				}
				text := fmt.Sprintf("%s: %d × %d %s", p.Name, p.Pods, p.DevicesPerPod, model)
				if p.MinPods > 0 {
					text += fmt.Sprintf(", at least %d", p.MinPods)
				}
				got, total = append(got, text), total+p.Devices()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || total != tc.total {
				t.Errorf("%d devices, want %d; pod sets (-want +got):\n%s", total, tc.total, diff)
			}
			if !slices.Equal(f.Unmeasured, tc.unmeasured) {
				t.Errorf("unmeasured %q, want %q", f.Unmeasured, tc.unmeasured)
			}
		})
	}
}
