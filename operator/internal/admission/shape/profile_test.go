package shape

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

func TestProfileOfAPodSet(t *testing.T) {
	status := &v1alpha1.JobProfileStatus{Models: []v1alpha1.ModelProfile{
		{Model: "NVIDIA-L4", MemoryPeakP90Bytes: new(int64(20e9)), DurationP50Seconds: new(int64(600)), DurationP90Seconds: new(int64(900))},
		{Model: "NVIDIA H100", MemoryPeakP90Bytes: new(int64(60e9)), UtilizationP50Percent: new(int64(93))},
		{Model: "NVIDIA-T4"},
	}}
	for _, tc := range []struct {
		name, model string
		status      *v1alpha1.JobProfileStatus
		want        map[string]string
	}{
		{"a model", "NVIDIA-L4", status, map[string]string{"profile_memory_peak": "20000000000", "profile_duration": "600"}},
		{"a model with a blank in the metrics, without a duration", "NVIDIA-H100", status, map[string]string{"profile_memory_peak": "60000000000", "profile_utilization": "0.93"}},
		{"a model without values", "NVIDIA-T4", status, map[string]string{}},
		{"a model that the profile does not have", "NVIDIA-B200", status, map[string]string{}},
		{"any model: the largest values", "", status, map[string]string{"profile_memory_peak": "60000000000", "profile_duration": "600", "profile_utilization": "0.93"}},
		{"no profile", "NVIDIA-L4", nil, map[string]string{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wl := &kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{podSetOn(tc.model)}}}
			f := FactsOf(wl, Options{ModelFrom: []string{"model"}, Profile: tc.status})
			got := map[string]string{}
			for _, name := range ProfileVariables {
				if value, ok := f.Vars(f.PodSets[0])[name]; ok {
					got[name] = value
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The model on which a job is fastest matters to a workload that may use any. It is known only if
// several models were measured in the same way.
func TestBestModelOfAProfile(t *testing.T) {
	model := func(name, throughput string, duration int64) v1alpha1.ModelProfile {
		m := v1alpha1.ModelProfile{Model: name, ThroughputP50: throughput}
		if duration > 0 {
			m.DurationP50Seconds = &duration
		}
		return m
	}
	for _, tc := range []struct {
		name, requested string
		models          []v1alpha1.ModelProfile
		want            string
	}{
		{"throughput of trials", "", []v1alpha1.ModelProfile{model("NVIDIA-L4", "12.5", 0), model("NVIDIA H100", "100", 0), model("NVIDIA-T4", "9", 0)}, "NVIDIA-H100"},
		{"the workload requests a model", "NVIDIA-L4", []v1alpha1.ModelProfile{model("NVIDIA-L4", "12.5", 0), model("NVIDIA-H100", "100", 0)}, ""},
		{"duration of runs", "", []v1alpha1.ModelProfile{model("NVIDIA-L4", "", 600), model("NVIDIA-H100", "", 100)}, "NVIDIA-H100"},
		{"throughput counts before duration, which includes other causes", "", []v1alpha1.ModelProfile{model("NVIDIA-L4", "12.5", 100), model("NVIDIA-H100", "100", 600)}, "NVIDIA-H100"},
		{"one model has a throughput, two a duration", "", []v1alpha1.ModelProfile{model("NVIDIA-L4", "12.5", 600), model("NVIDIA-H100", "", 100)}, "NVIDIA-H100"},
		{"two models have a throughput, and the job ran on a third", "", []v1alpha1.ModelProfile{model("NVIDIA-L4", "10", 0), model("NVIDIA-A100", "40", 0), model("NVIDIA-H100", "", 600)}, ""},
		{"two models have a duration, and a third one was tried", "", []v1alpha1.ModelProfile{model("NVIDIA-L4", "", 600), model("NVIDIA-A100", "40", 0), model("NVIDIA-H100", "", 100)}, ""},
		{"two models have a throughput, and all ran", "", []v1alpha1.ModelProfile{model("NVIDIA-L4", "10", 900), model("NVIDIA-A100", "40", 800), model("NVIDIA-H100", "", 600)}, "NVIDIA-H100"},
		{"a model without either is not compared", "", []v1alpha1.ModelProfile{model("NVIDIA-L4", "10", 0), model("NVIDIA-A100", "40", 0), model("NVIDIA-H100", "", 0)}, "NVIDIA-A100"},
		{"one model", "", []v1alpha1.ModelProfile{model("NVIDIA-L4", "12.5", 600)}, ""},
		{"not comparable", "", []v1alpha1.ModelProfile{model("NVIDIA-L4", "12.5", 0), model("NVIDIA-H100", "", 600)}, ""},
		{"a throughput of 0", "", []v1alpha1.ModelProfile{model("NVIDIA-A100", "0", 0), model("NVIDIA-H100", "0", 0)}, ""},
		{"no number", "", []v1alpha1.ModelProfile{model("NVIDIA-L4", "NaN", 0), model("NVIDIA-H100", "+Inf", 0), model("NVIDIA-T4", "fast", 0)}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wl := &kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{podSetOn(tc.requested)}}}
			f := FactsOf(wl, Options{ModelFrom: []string{"model"}, Profile: &v1alpha1.JobProfileStatus{Models: tc.models}})
			if got := f.Vars(f.PodSets[0])["profile_best_model"]; got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// Workloads that are fastest on different models share no query results.
func TestBestModelDistinguishesFacts(t *testing.T) {
	keys := map[string]bool{}
	for _, best := range []string{"", "NVIDIA-L4", "NVIDIA-H100"} {
		f := Facts{PodSets: []PodSet{{Resource: "nvidia.com/gpu", Pods: 1, DevicesPerPod: 1, Profile: &Profile{Duration: 60, BestModel: best}}}}
		keys[f.EquivalenceKey()] = true
	}
	if len(keys) != 3 {
		t.Errorf("%d keys, want 3", len(keys))
	}
}

// podSetOn returns a pod set with one GPU of a model.
func podSetOn(model string) kueue.PodSet {
	set := kueue.PodSet{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{
		{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}}}}}}}
	if model != "" {
		set.Template.Spec.NodeSelector = map[string]string{"model": model}
	}
	return set
}

func TestUsesProfiles(t *testing.T) {
	const query = `min by (cluster) (memory) > $profile_memory_peak`
	for name, tc := range map[string]struct {
		spec v1alpha1.PlacementGateSpec
		want bool
	}{
		"none":          {v1alpha1.PlacementGateSpec{Profiles: &v1alpha1.GateProfiles{}, Queries: v1alpha1.GateQueries{Headroom: "up"}}, false},
		"headroom":      {v1alpha1.PlacementGateSpec{Queries: v1alpha1.GateQueries{Headroom: query}}, true},
		"capacity":      {v1alpha1.PlacementGateSpec{Queries: v1alpha1.GateQueries{Capacity: query}}, true},
		"preference":    {v1alpha1.PlacementGateSpec{Queries: v1alpha1.GateQueries{Preference: `max by (cluster) (devices{model="$profile_best_model"})`}}, true},
		"a requirement": {v1alpha1.PlacementGateSpec{Requirements: []v1alpha1.GateRequirement{{Name: "a", Query: "up"}, {Name: "b", Query: query}}}, true},
	} {
		if got := UsesProfiles(&tc.spec); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
