package podmap

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseHAMi(t *testing.T) {
	const other = "GPU-0fc3eda5-e98b-a25b-5b0d-cf5c855d1448"
	for text, want := range map[string][]Assignment{
		"":  nil,
		";": nil,
		other + ",NVIDIA,3000,0:;" + other + ",NVIDIA,5000,30:;":        {{other, 3000 << 20, 0}, {other, 5000 << 20, 0.3}}, // docs/develop/protocol.md
		";" + uuid + ",NVIDIA,1024,100:" + other + ",NVIDIA,2048,100:;": {{uuid, 1 << 30, 1}, {other, 2 << 30, 1}},
	} {
		got, err := ParseHAMi(text)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%q: %v\n%s", text, err, diff)
		}
	}
	for _, text := range []string{"GPU-1", "GPU-1,NVIDIA,3000", "GPU-1,NVIDIA,-1,0:;", "GPU-1,NVIDIA,a,0:;", "GPU-1,NVIDIA,1,x:;", "GPU-1,NVIDIA,99999999999,0:;"} {
		if got, err := ParseHAMi(text); err == nil {
			t.Errorf("%q is parsed as %+v", text, got)
		}
	}
}

func TestApplyHAMi(t *testing.T) {
	holder := func(pod, container string) Holder { return Holder{"ml", pod, container} }
	kubelet := func() Map {
		m := newMap()
		for _, device := range []string{"a", "b", "c"} {
			m.Allocatable[device] = "nvidia.com/gpu"
			m.ReplicaCounts[device] = ReplicaCount{ProviderHAMi, 10, 0}
		}
		hold := func(device, replica string, h Holder) {
			m.allocate(deviceID{name: device, replica: replica, provider: ProviderHAMi}, "nvidia.com/gpu", h)
		}
		hold("a", "0", holder("moved", "main"))
		hold("a", "1", holder("two", "main"))
		hold("b", "0", holder("two", "main"))
		hold("a", "2", holder("stays", "main"))
		hold("a", "3", holder("several", "x"))
		hold("b", "1", holder("several", "y"))
		return m
	}
	m := kubelet()
	got := m.ApplyHAMi(func(_, pod string) []Assignment {
		return map[string][]Assignment{
			"moved": {{Device: "c"}}, "two": {{Device: "b"}, {Device: "c"}}, "several": {{Device: "c"}, {Device: "c"}},
			"stays": {{Device: "unknown"}},
		}[pod]
	})
	want := map[string][]Holder{"a": {holder("stays", "main"), holder("several", "x")}, "b": {holder("several", "y"), holder("two", "main")}, "c": {holder("moved", "main"), holder("two", "main")}}
	if diff := cmp.Diff(want, got.Holders); diff != "" {
		t.Error(diff)
	}
	counts := map[string]ReplicaCount{"a": {ProviderHAMi, 10, 2}, "b": {ProviderHAMi, 10, 2}, "c": {ProviderHAMi, 10, 2}}
	if diff := cmp.Diff(counts, got.ReplicaCounts); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(kubelet(), m); diff != "" {
		t.Errorf("the map of the kubelet was changed:\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"a": "nvidia.com/gpu", "b": "nvidia.com/gpu", "c": "nvidia.com/gpu"}, got.Allocated); diff != "" {
		t.Error(diff)
	}
}

// The annotation of a pod may change at any time, also while the map is built.
func TestApplyHAMiReadsAnAssignmentOnce(t *testing.T) {
	m := newMap()
	m.Allocatable["a"], m.Allocatable["b"] = "nvidia.com/gpu", "nvidia.com/gpu"
	m.ReplicaCounts["a"], m.ReplicaCounts["b"] = ReplicaCount{ProviderHAMi, 10, 0}, ReplicaCount{ProviderHAMi, 10, 0}
	pod := Holder{"ml", "growing", "main"}
	m.allocate(deviceID{name: "a", replica: "0", provider: ProviderHAMi}, "nvidia.com/gpu", pod)
	reads := 0
	got := m.ApplyHAMi(func(string, string) []Assignment {
		reads++
		return slices.Repeat([]Assignment{{Device: "b"}}, reads)
	})
	if diff := cmp.Diff(map[string][]Holder{"b": {pod}}, got.Holders); diff != "" {
		t.Error(diff)
	}
}
