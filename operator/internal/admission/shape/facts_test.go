package shape

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

func TestFactsOfPodSets(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	sidecar := container("nvidia.com/gpu", "1")
	sidecar.RestartPolicy = &always
	affinity := func(values ...string) *corev1.Affinity {
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "nvidia.com/gpu.product", Operator: corev1.NodeSelectorOpIn, Values: values}}}}}}}
	}
	for _, tc := range []struct {
		name string
		spec corev1.PodSpec
		want []PodSet
	}{
		{"model from the flavor", corev1.PodSpec{Containers: []corev1.Container{container("nvidia.com/gpu", "8")}},
			[]PodSet{{Name: "main", Resource: "nvidia.com/gpu", Model: h100, Flavor: "h100", DevicesPerPod: 8, Pods: 3}}},
		{"model from the node selector first, blanks become dashes", corev1.PodSpec{Containers: []corev1.Container{container("nvidia.com/gpu", "8")},
			NodeSelector: map[string]string{"nvidia.com/gpu.product": "NVIDIA A100"}},
			[]PodSet{{Name: "main", Resource: "nvidia.com/gpu", Model: "NVIDIA-A100", Flavor: "h100", DevicesPerPod: 8, Pods: 3}}},
		{"model from required affinity with one value", corev1.PodSpec{Containers: []corev1.Container{container("nvidia.com/gpu", "8")}, Affinity: affinity("H200")},
			[]PodSet{{Name: "main", Resource: "nvidia.com/gpu", Model: "NVIDIA-H200", Flavor: "h100", DevicesPerPod: 8, Pods: 3}}},
		{"affinity with several values is ignored", corev1.PodSpec{Containers: []corev1.Container{container("nvidia.com/gpu", "8")}, Affinity: affinity("H200", "H100")},
			[]PodSet{{Name: "main", Resource: "nvidia.com/gpu", Model: h100, Flavor: "h100", DevicesPerPod: 8, Pods: 3}}},
		{"containers and sidecars are added", corev1.PodSpec{InitContainers: []corev1.Container{sidecar, container("nvidia.com/gpu", "2")},
			Containers: []corev1.Container{container("nvidia.com/gpu", "2"), container("nvidia.com/gpu", "1")}},
			[]PodSet{{Name: "main", Resource: "nvidia.com/gpu", Model: h100, Flavor: "h100", DevicesPerPod: 4, Pods: 3}}},
		{"an init container runs beside the sidecars before it", corev1.PodSpec{InitContainers: []corev1.Container{sidecar, container("nvidia.com/gpu", "4")},
			Containers: []corev1.Container{container("nvidia.com/gpu", "2")}},
			[]PodSet{{Name: "main", Resource: "nvidia.com/gpu", Model: h100, Flavor: "h100", DevicesPerPod: 5, Pods: 3}}},
		{"and not beside those after it", corev1.PodSpec{InitContainers: []corev1.Container{container("nvidia.com/gpu", "4"), sidecar},
			Containers: []corev1.Container{container("nvidia.com/gpu", "2")}},
			[]PodSet{{Name: "main", Resource: "nvidia.com/gpu", Model: h100, Flavor: "h100", DevicesPerPod: 4, Pods: 3}}},
		{"MIG instance", corev1.PodSpec{Containers: []corev1.Container{container("nvidia.com/mig-1g.10gb", "2")}, NodeSelector: map[string]string{"nvidia.com/gpu.product": h100}},
			[]PodSet{{Name: "main", Resource: "nvidia.com/mig-1g.10gb", Model: h100 + "-MIG-1g.10gb", DevicesPerPod: 2, Pods: 3}}},
		{"MIG instance with media engines", corev1.PodSpec{Containers: []corev1.Container{container("nvidia.com/mig-1g.10gb.me", "2")}, NodeSelector: map[string]string{"nvidia.com/gpu.product": h100}},
			[]PodSet{{Name: "main", Resource: "nvidia.com/mig-1g.10gb.me", Model: h100 + "-MIG-1g.10gbme", DevicesPerPod: 2, Pods: 3}}},
		{"MIG instance, label with the profile", corev1.PodSpec{Containers: []corev1.Container{container("nvidia.com/mig-1g.10gb", "2")}, NodeSelector: map[string]string{"nvidia.com/gpu.product": h100 + "-MIG-1g.10gb"}},
			[]PodSet{{Name: "main", Resource: "nvidia.com/mig-1g.10gb", Model: h100 + "-MIG-1g.10gb", DevicesPerPod: 2, Pods: 3}}},
		{"MIG instance of any model", corev1.PodSpec{Containers: []corev1.Container{container("nvidia.com/mig-1g.10gb", "2")}},
			[]PodSet{{Name: "main", Resource: "nvidia.com/mig-1g.10gb", DevicesPerPod: 2, Pods: 3}}},
		{"no devices", corev1.PodSpec{Containers: []corev1.Container{container("rdma/hca", "1")}}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			three := int32(3)
			wl := &kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "main", Count: 4, Template: corev1.PodTemplateSpec{Spec: tc.spec}}}}}
			wl.Status.Admission = &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: &three,
				Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"nvidia.com/gpu": "h100"}}}}
			got := FactsOf(wl, Options{ModelFrom: []string{"nvidia.com/gpu.product"}, Aliases: map[string]string{"H200": "NVIDIA-H200"},
				Flavor: func(string) kueue.ResourceFlavorSpec {
					return kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"nvidia.com/gpu.product": h100}}
				}})
			if diff := cmp.Diff(tc.want, got.PodSets, cmpopts.IgnoreFields(PodSet{}, "FlavorLabels", "NodeSelector")); diff != "" {
				t.Errorf("pod sets (-want +got):\n%s", diff)
			}
		})
	}
}

// Kueue lowers the count in the spec of a slice of an elastic job that is scaled down, and the count of its
// admission stays. Partial admission lowers only the latter. The quota is that of the admission.
func TestFactsOfAScaledDownSlice(t *testing.T) {
	claimed := corev1.PodSpec{Containers: []corev1.Container{container("cpu", "1")}, ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu"}}}
	for _, tc := range []struct {
		name            string
		spec            corev1.PodSpec
		count, assigned int32
		copied          bool
		want            int64
	}{
		{"scaled down", corev1.PodSpec{Containers: []corev1.Container{container("nvidia.com/gpu", "2")}}, 2, 6, false, 2},
		{"scaled down, copied by MultiKueue", corev1.PodSpec{Containers: []corev1.Container{container("nvidia.com/gpu", "2")}}, 2, 6, true, 2},
		{"scaled down, with a claim", claimed, 2, 6, false, 2},
		{"partial admission", corev1.PodSpec{Containers: []corev1.Container{container("nvidia.com/gpu", "2")}}, 6, 2, false, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wl := &kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "main", Count: tc.count, Template: corev1.PodTemplateSpec{Spec: tc.spec}}}}}
			wl.Status.Admission = &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: &tc.assigned,
				ResourceUsage: corev1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(2*int64(tc.assigned), resource.DecimalSI)}}}}
			got := FactsOf(wl, Options{AllDevices: true, Copied: tc.copied})
			want := []PodSet{{Name: "main", Resource: "nvidia.com/gpu", DevicesPerPod: 2, Pods: tc.want}}
			if diff := cmp.Diff(want, got.PodSets); diff != "" {
				t.Errorf("pod sets (-want +got):\n%s", diff)
			}
		})
	}
}

func TestVarsOfLabels(t *testing.T) {
	wl := &kueue.Workload{}
	wl.Namespace, wl.Spec.QueueName = "team-a", "lq"
	wl.Status.Admission = &kueue.Admission{ClusterQueue: "cq", PodSetAssignments: []kueue.PodSetAssignment{{Name: "main",
		Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"nvidia.com/gpu": "h100"}}}}
	wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 2, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		Containers:   []corev1.Container{container("nvidia.com/gpu", "8")},
		NodeSelector: map[string]string{"topology.kubernetes.io/zone": "eu-1", "a.b": "same", "a-b": "same", "c.d": "one", "c-d": "another"}}}}}
	f := FactsOf(wl, Options{ModelFrom: []string{"gpu"}, Flavor: func(string) kueue.ResourceFlavorSpec {
		return kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"gpu": "L4", "tier": "spot"}}
	}})
	want := map[string]string{
		"namespace": "team-a", "queue": "lq", "cluster_queue": "cq", "flavor": "h100", "resource": "nvidia.com/gpu", "model": "L4",
		"devices_per_pod": "8", "pods": "2", "devices_total": "16", "cpu_per_pod": "0", "memory_per_pod": "0", "flavor_label_gpu": "L4", "flavor_label_tier": "spot",
		"node_selector_topology_kubernetes_io_zone": "eu-1", "node_selector_a_b": "same",
	}
	if diff := cmp.Diff(want, f.Vars(f.PodSets[0])); diff != "" {
		t.Errorf("variables (-want +got):\n%s", diff)
	}
}

// A query reads labels and annotations of the pod template, or else of the Workload. Those that no query reads are no
// facts, so that they keep no two workloads apart.
func TestVarsOfLabelsAndAnnotations(t *testing.T) {
	spec := &v1alpha1.PlacementGateSpec{Queries: v1alpha1.GateQueries{Preference: `max by (cluster) (dataset_present{dataset="$annotation_example_com_dataset"})`},
		Requirements: []v1alpha1.GateRequirement{{Query: `tier{tier="$label_tier",team="$label_team",long="$annotation_long",two="$label_a_b"}`}}}
	wl := &kueue.Workload{}
	wl.Labels, wl.Annotations = map[string]string{"team": "vision", "tier": "free"}, map[string]string{"tier": "other", "long": strings.Repeat("x", 300)}
	wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{container("nvidia.com/gpu", "8")}}}}}
	template := &wl.Spec.PodSets[0].Template
	wl.Labels["a.b"] = "one"
	template.Labels, template.Annotations = map[string]string{"tier": "gold", "job-name": "a", "a.b": "one", "a-b": "another"}, map[string]string{"example.com/dataset": "imagenet"}
	facts := FactsOf(wl, OptionsOf(spec, nil))
	want := map[string]string{"label_tier": "gold", "label_team": "vision", "annotation_example_com_dataset": "imagenet", "annotation_long": strings.Repeat("x", 256)}
	if diff := cmp.Diff(want, facts.PodSets[0].Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	vars := facts.Vars(facts.PodSets[0])
	for name, value := range want {
		if vars[name] != value {
			t.Errorf("$%s is %q, want %q", name, vars[name], value)
		}
	}
	for name, change := range map[string]func(){"job-name": func() { template.Labels["job-name"] = "b" }, "tier": func() { template.Labels["tier"] = "silver" }} {
		change()
		if isApart := FactsOf(wl, OptionsOf(spec, nil)).EquivalenceKey() != facts.EquivalenceKey(); isApart != (name == "tier") {
			t.Errorf("another label %s keeps two workloads apart: %t", name, isApart)
		}
		template.Labels["tier"] = "gold"
	}
}

// Pod sets of one shape share their queries. Whatever makes a difference to a query keeps them apart.
func TestWithMergesPodSetsOfOneShape(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*PodSet)
		want   []int64 // pods of each set
	}{
		{"one shape", func(*PodSet) {}, []int64{5}},
		{"another name", func(p *PodSet) { p.Name = "worker" }, []int64{5}},
		{"resource", func(p *PodSet) { p.Resource = "amd.com/gpu" }, []int64{2, 3}},
		{"model", func(p *PodSet) { p.Model = "NVIDIA-L4" }, []int64{2, 3}},
		{"flavor", func(p *PodSet) { p.Flavor = "spot" }, []int64{2, 3}},
		{"more devices come first", func(p *PodSet) { p.DevicesPerPod = 9 }, []int64{3, 2}},
		{"fewer devices", func(p *PodSet) { p.DevicesPerPod = 1 }, []int64{2, 3}},
		{"share", func(p *PodSet) { p.Share = &Share{MemoryPercent: 50} }, []int64{2, 3}},
		{"topology", func(p *PodSet) { p.RequiredTopology = "rack" }, []int64{2, 3}},
		{"labels of the flavor", func(p *PodSet) { p.FlavorLabels = map[string]string{"zone": "a"} }, []int64{2, 3}},
		{"labels", func(p *PodSet) { p.Labels = map[string]string{"label_tier": "gold"} }, []int64{2, 3}},
		{"node selector", func(p *PodSet) { p.NodeSelector = map[string]string{"zone": "a"} }, []int64{2, 3}},
		{"tolerations", func(p *PodSet) { p.Tolerations = []Toleration{{Key: "dedicated", AnyValue: true}} }, []int64{2, 3}},
		{"a partial admission", func(p *PodSet) { p.MinPods = 1 }, []int64{2, 3}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, other := job("a", 8, 2), job("b", 8, 3)
			tc.change(&other.PodSets[0])
			other.Unmeasured = []string{"rdma/hca"}
			all := f.With(other)
			var got []int64
			for _, p := range all.PodSets {
				got = append(got, p.Pods)
			}
			if !slices.Equal(got, tc.want) || f.PodSets[0].Pods != 2 {
				t.Errorf("pods %v, want %v", got, tc.want)
			}
			if twice := f.With(other, other).Unmeasured; !slices.Equal(twice, other.Unmeasured) {
				t.Errorf("unmeasured %q", twice)
			}
		})
	}
	f, partial := job("a", 8, 2), job("b", 8, 3)
	f.PodSets[0].MinPods = 1
	if got := len(f.With(partial).PodSets); got != 2 {
		t.Errorf("%d pod sets, want 2: the first admits a part", got)
	}
}
