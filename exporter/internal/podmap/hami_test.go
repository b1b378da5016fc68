package podmap

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseHAMi(t *testing.T) {
	const other = "GPU-0fc3eda5-e98b-a25b-5b0d-cf5c855d1448"
	for text, want := range map[string][]Assignment{
		"":  nil,
		";": nil,
		other + ",NVIDIA,3000,0:;" + other + ",NVIDIA,5000,30:;":        {{other, 3000 << 20, 0}, {other, 5000 << 20, 0.3}}, // docs/develop/protocol.md
		other + ",NVIDIA,1000,0:;;,,0,0:;,,0,0:;":                       {{other, 1000 << 20, 0}},                           // containers without a device
		";" + uuid + ",NVIDIA,1024,100:" + other + ",NVIDIA,2048,100:;": {{uuid, 1 << 30, 1}, {other, 2 << 30, 1}},
	} {
		got, err := ParseHAMi(text)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%q: %v\n%s", text, err, diff)
		}
	}
	for _, text := range []string{"GPU-1", "GPU-1,NVIDIA,3000", "GPU-1,NVIDIA,-1,0:;", "GPU-1,NVIDIA,a,0:;", "GPU-1,NVIDIA,1,x:;", "GPU-1,NVIDIA,1,101:;", "GPU-1,NVIDIA,99999999999,0:;"} {
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
	got := m.ApplyHAMi(annotated(map[string][]Assignment{
		"moved": {{Device: "c"}}, "two": {{Device: "b"}, {Device: "c"}}, "several": {{Device: "b"}, {Device: "c"}},
	}), nil)
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

// allocate records that a container holds a device, and counts its replica.
func (m *Map) allocate(id deviceID, resource string, h Holder) {
	m.countReplica(id, 0, 1)
	m.addHolder(id, resource, h)
}

// TestReplicaOfTwoPods: while a pod replaces another one, the kubelet reports its replica for both.
func TestReplicaOfTwoPods(t *testing.T) {
	for _, tc := range []struct {
		name     string
		assigned map[string][]Assignment
		pods     string
		a, b     int
	}{
		{"both on the other device", map[string][]Assignment{"old": {{Device: "b"}}, "new": {{Device: "b"}}}, "b: new old", 0, 1},
		{"one on the other device", map[string][]Assignment{"new": {{Device: "b"}}}, "a: old; b: new", 1, 1},
		{"both where the kubelet says", map[string][]Assignment{"old": {{Device: "a"}}, "new": {{Device: "a"}}}, "a: new old", 1, 0},
		{"one where the kubelet says", map[string][]Assignment{"old": {{Device: "a"}}}, "a: new old", 1, 0},
		{"each on one device", map[string][]Assignment{"old": {{Device: "a"}}, "new": {{Device: "b"}}}, "a: old; b: new", 1, 1},
	} {
		m := hamiNode(map[string]string{"old": "a-0"})
		m.addHolder(deviceID{name: "a", replica: "0", provider: ProviderHAMi}, "nvidia.com/gpu", Holder{"ml", "new", "main"})
		got := m.ApplyHAMi(annotated(tc.assigned), nil)
		if pods := podsOf(got); pods != tc.pods {
			t.Errorf("%s: holders are %q, want %q", tc.name, pods, tc.pods)
		}
		if a, b := got.ReplicaCounts["a"].Allocated, got.ReplicaCounts["b"].Allocated; a != tc.a || b != tc.b {
			t.Errorf("%s: %d replicas of a and %d of b are allocated, want %d and %d", tc.name, a, b, tc.a, tc.b)
		}
	}
	// One replica of b is free, and a replica of two pods needs one.
	m := hamiNode(map[string]string{"old": "a-0", "other": "b-0"})
	m.addHolder(deviceID{name: "a", replica: "0", provider: ProviderHAMi}, "nvidia.com/gpu", Holder{"ml", "new", "main"})
	if got := podsOf(m.ApplyHAMi(annotated(map[string][]Assignment{"old": {{Device: "b"}}, "new": {{Device: "b"}}}), nil)); got != "b: new old other" {
		t.Errorf("holders are %q", got)
	}
}

// annotated returns the metadata of pods with these annotations.
func annotated(assigned map[string][]Assignment) func(string, string) (Meta, bool) {
	return func(_, pod string) (Meta, bool) { return Meta{UID: "uid-of-" + pod, HAMi: assigned[pod]}, true }
}

// hamiNode is a node on which HAMi offers the devices a and b with two replicas each, and another
// plugin the devices whole and sliced.
func hamiNode(holdings map[string]string) Map {
	m := newMap()
	for _, device := range []string{"a", "b"} {
		m.Allocatable[device], m.ReplicaCounts[device] = "nvidia.com/gpu", ReplicaCount{ProviderHAMi, 2, 0}
	}
	m.Allocatable["other"], m.ReplicaCounts["other"] = "nvidia.com/vgpu", ReplicaCount{ProviderHAMi, 2, 0}
	m.Allocatable["sliced"], m.ReplicaCounts["sliced"] = "nvidia.com/gpu", ReplicaCount{"nvidia", 2, 0}
	m.Allocatable["whole"] = "nvidia.com/gpu"
	for _, pod := range slices.Sorted(maps.Keys(holdings)) {
		for _, id := range strings.Fields(holdings[pod]) {
			device, replica, _ := strings.Cut(id, "-")
			m.allocate(deviceID{name: device, replica: replica, provider: m.ReplicaCounts[device].Provider}, m.Allocatable[device], Holder{"ml", pod, "main"})
		}
	}
	return m
}

// podsOf returns the pods on each device, as in "a: x y; b: z".
func podsOf(m Map) string {
	var devices []string
	for _, device := range slices.Sorted(maps.Keys(m.Holders)) {
		var pods []string
		for _, h := range m.Holders[device] {
			pods = append(pods, h.Pod)
		}
		slices.Sort(pods)
		devices = append(devices, device+": "+strings.Join(pods, " "))
	}
	return strings.Join(devices, "; ")
}

// TestHostileAnnotations: with an annotation of its own, a pod moves its own replicas between
// devices of HAMi at most. It neither takes devices of others nor frees them.
func TestHostileAnnotations(t *testing.T) {
	for _, tc := range []struct {
		name        string
		holdings    map[string]string
		annotations map[string][]Assignment
		want        string
	}{
		{"a pod without devices", map[string]string{"victim": "a-0"}, map[string][]Assignment{"attacker": {{Device: "b"}}}, "a: victim"},
		{"more devices than allocated", map[string]string{"attacker": "a-0"}, map[string][]Assignment{"attacker": {{Device: "a"}, {Device: "b"}}}, "a: attacker"},
		{"fewer devices than allocated", map[string]string{"attacker": "a-0 b-0"}, map[string][]Assignment{"attacker": {{Device: "a"}}}, "a: attacker; b: attacker"},
		{"a device twice", map[string]string{"attacker": "a-0 a-1"}, map[string][]Assignment{"attacker": {{Device: "b"}, {Device: "b"}}}, "a: attacker"},
		{"a device of another plugin", map[string]string{"attacker": "a-0", "victim": "whole"}, map[string][]Assignment{"attacker": {{Device: "whole"}}}, "a: attacker; whole: victim"},
		{"replicas of another plugin", map[string]string{"attacker": "a-0", "victim": "sliced-0"}, map[string][]Assignment{"attacker": {{Device: "sliced"}}}, "a: attacker; sliced: victim"},
		{"a device of another resource", map[string]string{"attacker": "a-0"}, map[string][]Assignment{"attacker": {{Device: "other"}}}, "a: attacker"},
		{"a device that does not exist", map[string]string{"attacker": "a-0"}, map[string][]Assignment{"attacker": {{Device: "c"}}}, "a: attacker"},
		{"a full device", map[string]string{"attacker": "a-0", "victim": "b-0 b-1"}, map[string][]Assignment{"attacker": {{Device: "b"}}}, "a: attacker; b: victim"},
		{"a device that becomes full", map[string]string{"attacker": "a-0", "second": "a-1", "victim": "b-0"},
			map[string][]Assignment{"attacker": {{Device: "b"}}, "second": {{Device: "b"}}, "victim": {{Device: "b"}}}, "a: attacker second; b: victim"},
		{"a pod that relies on a refused one", map[string]string{"attacker": "a-0", "second": "b-0", "victim": "b-1", "whole": "a-1"},
			map[string][]Assignment{"attacker": {{Device: "c"}}, "second": {{Device: "a"}}}, "a: attacker whole; b: second victim"},
		{"two pods that change places", map[string]string{"x": "a-0", "y": "b-0", "v": "a-1", "w": "b-1"},
			map[string][]Assignment{"x": {{Device: "b"}}, "y": {{Device: "a"}}}, "a: v y; b: w x"},
	} {
		m := hamiNode(tc.holdings)
		before := podsOf(m)
		if got := podsOf(m.ApplyHAMi(annotated(tc.annotations), nil)); got != tc.want {
			t.Errorf("%s: holders are %q, want %q (of the kubelet: %q)", tc.name, got, tc.want, before)
		}
	}
}

// FuzzApplyHAMi checks that no annotation of a pod changes how many devices and replicas are
// allocated, or overfills a device: it can only say where the pod's own replicas are. An assignment
// that was accepted earlier stays, even if the kubelet then allocates the replicas that it takes.
func FuzzApplyHAMi(f *testing.F) {
	f.Add("a,NVIDIA,3000,30:;", "b,NVIDIA,3000,30:;", uint8(0b0001), uint8(0b0100), "", uint8(0))
	f.Add(";b,NVIDIA,1024,100:a,NVIDIA,2048,100:;", ";,,0,0:", uint8(0b0101), uint8(0b1000), "", uint8(0))
	f.Add("whole,NVIDIA,1,0:;", "sliced,NVIDIA,1,0:;", uint8(0b110001), uint8(0b1000010), "", uint8(0))
	f.Add("b,NVIDIA,0,0:", "b,NVIDIA,4294967295,100:", uint8(0b0001), uint8(0b1110), "", uint8(0))
	f.Add("a,NVIDIA,0,0:", "", uint8(0b1000001), uint8(0b0010), "", uint8(0))                                        // x also holds a replica of another plugin
	f.Add("a,NVIDIA,1,0:", "b,NVIDIA,1,0:", uint8(0b0001), uint8(0b0100), "b,NVIDIA,1,0:", uint8(0b0001))            // x was on b before
	f.Add("a,NVIDIA,1,0:", "", uint8(0b0001), uint8(0b1100), "b,NVIDIA,1,0:", uint8(0b0001))                         // and b is full now
	f.Add("a,NVIDIA,1,0:b,NVIDIA,1,0:", "", uint8(0b0101), uint8(0b1010), "b,NVIDIA,1,0:", uint8(0b0010))            // and x has another device now
	f.Add("b,NVIDIA,1,0:", "a,NVIDIA,1,0:", uint8(0b0001), uint8(0b1000), "a,NVIDIA,1,0:b,NVIDIA,1,0:", uint8(0b11)) // two replicas of a before
	replicas := []string{"a-0", "a-1", "b-0", "b-1", "whole", "other-0", "sliced-0", "sliced-1"}
	f.Fuzz(func(t *testing.T, x, y string, ofX, ofY uint8, earlier string, ofEarlier uint8) {
		holdings, assigned := map[string]string{}, map[string][]Assignment{}
		for pod, text := range map[string]string{"x": x, "y": y} {
			parsed, err := ParseHAMi(text)
			for _, a := range parsed {
				if err != nil || a.Device == "" || a.Memory < 0 || a.Cores < 0 || a.Cores > 1 {
					t.Errorf("%q is parsed as %+v, %v", text, a, err)
				}
			}
			assigned[pod] = parsed
		}
		for i, replica := range replicas {
			switch {
			case ofX>>i&1 == 1:
				holdings["x"] += " " + replica
			case ofY>>i&1 == 1:
				holdings["y"] += " " + replica
			}
		}
		before, accepted := hamiNode(holdings), assignedBefore(replicas, earlier, ofEarlier)
		after, unannotated := before.ApplyHAMi(annotated(assigned), accepted), before.ApplyHAMi(annotated(nil), accepted)
		allocated := func(m Map) (n int) {
			for name, count := range m.ReplicaCounts {
				if n += count.Allocated; count.Allocated < 0 || count.Allocated > max(count.Allocatable, unannotated.ReplicaCounts[name].Allocated) {
					t.Errorf("%d of %d replicas of %s are allocated", count.Allocated, count.Allocatable, name)
				}
			}
			return n
		}
		if was, is := allocated(before), allocated(after); was != is {
			t.Errorf("%d replicas are allocated, and were %d", is, was)
		}
		for name := range before.Allocated {
			if before.ReplicaCounts[name].Provider != ProviderHAMi && !slices.Equal(before.Holders[name], after.Holders[name]) {
				t.Errorf("the holders of %s are %v, and were %v", name, after.Holders[name], before.Holders[name])
			}
		}
		for name, holders := range after.Holders {
			if _, ok := after.Allocated[name]; !ok || len(holders) == 0 {
				t.Errorf("%s is held by %v, allocated: %t", name, holders, ok)
			}
		}
	})
}

// assignedBefore returns the assignments of an earlier call, in which pod x held the replicas of a
// bit set and had this annotation.
func assignedBefore(replicas []string, annotation string, held uint8) map[Holder]Accepted {
	holdings := map[string]string{}
	for i, replica := range replicas {
		if held>>i&1 == 1 {
			holdings["x"] += " " + replica
		}
	}
	parsed, _ := ParseHAMi(annotation) // one that does not parse has no assignment
	return hamiNode(holdings).ApplyHAMi(annotated(map[string][]Assignment{"x": parsed}), nil).Assigned
}

// TestFirstAnnotationCounts: a pod that changes its annotation later does not move. Another pod
// with the same name does.
func TestFirstAnnotationCounts(t *testing.T) {
	m := hamiNode(map[string]string{"x": "a-0"})
	pods := map[string][]Assignment{}
	var assigned map[Holder]Accepted
	for _, step := range []struct {
		name   string
		device string
		want   string
	}{{"no annotation yet", "", "a: x"}, {"HAMi's", "b", "b: x"}, {"a changed one", "a", "b: x"}, {"none", "", "b: x"}} {
		delete(pods, "x")
		if step.device != "" {
			pods["x"] = []Assignment{{Device: step.device}}
		}
		got := m.ApplyHAMi(annotated(pods), assigned)
		if podsOf(got) != step.want {
			t.Errorf("%s: holders are %q, want %q", step.name, podsOf(got), step.want)
		}
		assigned = got.Assigned
	}
	unknown := func(string, string) (Meta, bool) { return Meta{}, false }
	if got := podsOf(m.ApplyHAMi(unknown, assigned)); got != "b: x" {
		t.Errorf("while the API server does not have the pod: %q", got)
	}
	successor := func(string, string) (Meta, bool) { return Meta{UID: "another"}, true }
	if got := podsOf(m.ApplyHAMi(successor, assigned)); got != "a: x" {
		t.Errorf("another pod with the same name: %q", got)
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
	got := m.ApplyHAMi(func(string, string) (Meta, bool) {
		reads++
		return Meta{HAMi: slices.Repeat([]Assignment{{Device: "b"}}, reads)}, true
	}, nil)
	if diff := cmp.Diff(map[string][]Holder{"b": {pod}}, got.Holders); diff != "" {
		t.Error(diff)
	}
}
