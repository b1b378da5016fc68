package podmap

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const reservations = "kai-resource-reservation"

func TestParseKAI(t *testing.T) {
	group := map[string]string{"runai-gpu-group": "g"}
	for _, tc := range []struct {
		name        string
		labels      map[string]string
		annotations map[string]string
		want        Fraction
	}{
		{"a fraction", group, map[string]string{"gpu-fraction": "0.25"}, Fraction{Groups: []string{"g"}, Ratio: 0.25}},
		{"memory", group, map[string]string{"gpu-memory": "2000"}, Fraction{Groups: []string{"g"}, Memory: 2000}},
		{"both", group, map[string]string{"gpu-fraction": "0.5", "gpu-memory": "2000"}, Fraction{Groups: []string{"g"}, Ratio: 0.5}},
		{"a whole device", group, map[string]string{"gpu-fraction": "1"}, Fraction{Groups: []string{"g"}, Ratio: 1}},
		{"two devices", map[string]string{"runai-gpu-group/b": "b", "runai-gpu-group/a": "a"}, map[string]string{"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}, Fraction{Groups: []string{"a", "b"}, Ratio: 0.5}},
		{"another container", group, map[string]string{"gpu-fraction": "0.5", "gpu-fraction-container-name": "second"}, Fraction{Groups: []string{"g"}, Ratio: 0.5, Container: "second"}},
		{"a reservation", group, nil, Fraction{Groups: []string{"g"}}},
		{"no group", nil, map[string]string{"gpu-fraction": "0.5"}, Fraction{}},
		{"another label", map[string]string{"runai-gpu-groups": "g"}, map[string]string{"gpu-fraction": "0.5"}, Fraction{}},
		{"no number", group, map[string]string{"gpu-fraction": "NaN"}, Fraction{Groups: []string{"g"}}},
		{"infinite", group, map[string]string{"gpu-fraction": "Inf"}, Fraction{Groups: []string{"g"}}},
		{"negative", group, map[string]string{"gpu-fraction": "-0.5", "gpu-memory": "-1"}, Fraction{Groups: []string{"g"}}},
		{"more than a device", group, map[string]string{"gpu-fraction": "1.01"}, Fraction{Groups: []string{"g"}}},
		{"more than int64 has", group, map[string]string{"gpu-memory": "9223372036854775808"}, Fraction{Groups: []string{"g"}}},
		{"zero", group, map[string]string{"gpu-fraction": "0", "gpu-memory": "0"}, Fraction{Groups: []string{"g"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, ParseKAI(tc.labels, tc.annotations)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// kaiNode is a node on which KAI Scheduler reserved the devices a and b, and a pod holds c. pods are
// further pods, with the containers x and y.
func kaiNode(pods ...string) Map {
	m := newMap()
	for _, device := range []string{"a", "b"} {
		h := Holder{reservations, "reserves-" + device, "main"}
		m.addHolder(deviceID{name: device}, "nvidia.com/gpu", h)
		m.Containers[[2]string{h.Namespace, h.Pod}] = []string{"main"}
	}
	m.addHolder(deviceID{name: "c"}, "nvidia.com/gpu", Holder{"ml", "whole", "main"})
	for _, pod := range append(pods, "whole") {
		m.Containers[[2]string{"ml", pod}] = []string{"x", "y"}
	}
	return m
}

func TestApplyKAI(t *testing.T) {
	half := Fraction{Groups: []string{"of-a"}, Ratio: 0.5}
	second, both, forged := half, half, half
	second.Container, both.Groups, forged.Groups = "y", []string{"of-a", "of-b"}, []string{"of-c", "none"}
	for _, tc := range []struct {
		name     string
		requests map[string]Fraction // by pod
		holders  string              // on the devices a, b and c
		known    string              // devices with fractions
		unknown  []string            // pods that the API server has not shown yet
	}{
		{"no pod", nil, "a: ; b: ; c: whole/main", "", nil},
		{"one pod", map[string]Fraction{"p": half}, "a: p/x; b: ; c: whole/main", "a", nil},
		{"two pods", map[string]Fraction{"p": half, "q": half}, "a: p/x q/x; b: ; c: whole/main", "a", nil},
		{"another container", map[string]Fraction{"p": second}, "a: p/y; b: ; c: whole/main", "a", nil},
		{"two devices", map[string]Fraction{"p": both}, "a: p/x; b: p/x; c: whole/main", "a b", nil},
		{"groups that no device has", map[string]Fraction{"p": forged}, "a: ; b: ; c: whole/main", "", nil},
		{"no request", map[string]Fraction{"p": {Groups: []string{"of-a"}}}, "a: ; b: ; c: whole/main", "", nil},
		{"a pod with a device of its own", map[string]Fraction{"whole": half}, "a: whole/x; b: ; c: whole/main", "a", nil},
		{"a pod that has ended", map[string]Fraction{"ended": half}, "a: ; b: ; c: whole/main", "", nil},
		{"a pod that may share a device", map[string]Fraction{"p": half}, "a: p/x; b: ; c: whole/main", "", []string{"q"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := kaiNode("p", "q")
			before := fmt.Sprint(m)
			got := m.ApplyKAI(func(namespace, pod string) (Fraction, bool) {
				if namespace == reservations {
					return Fraction{Groups: []string{"of-" + strings.TrimPrefix(pod, "reserves-")}}, true
				}
				return tc.requests[pod], !slices.Contains(tc.unknown, pod)
			})
			var holders, known []string
			for _, device := range []string{"a", "b", "c"} {
				var names []string
				for _, h := range got.Holders[device] {
					names = append(names, h.Pod+"/"+h.Container)
				}
				holders = append(holders, device+": "+strings.Join(names, " "))
				if len(got.Fractions[device]) > 0 {
					known = append(known, device)
				}
			}
			if text := strings.Join(holders, "; "); text != tc.holders || strings.Join(known, " ") != tc.known {
				t.Errorf("holders are %q, fractions of %q; want %q and %q", text, known, tc.holders, tc.known)
			}
			if fmt.Sprint(m) != before {
				t.Error("the map of the kubelet was changed")
			}
		})
	}
	ambiguous := kaiNode("p").ApplyKAI(func(string, string) (Fraction, bool) { return half, true })
	if len(ambiguous.Fractions) > 0 {
		t.Errorf("two devices have one group: %v", ambiguous.Fractions)
	}
}

// FuzzApplyKAI checks that no label and annotation of a pod changes which devices are allocated, or
// who holds a device that KAI Scheduler has not reserved.
func FuzzApplyKAI(f *testing.F) {
	f.Add("of-a", "0.5", "2000", "x", "ml")
	f.Add("of-b", "NaN", "9223372036854775808", "", "ml")
	f.Add("c", "1e-400", "-1", "main", reservations)
	f.Add("", "+Inf", "0x10", "\x00", "")
	f.Fuzz(func(t *testing.T, group, fraction, memory, container, namespace string) {
		m := kaiNode("p")
		m.Containers[[2]string{namespace, "q"}] = nil // the kubelet lists no container
		got := m.ApplyKAI(func(_, pod string) (Fraction, bool) {
			if device, ok := strings.CutPrefix(pod, "reserves-"); ok {
				return Fraction{Groups: []string{"of-" + device}}, true
			}
			return ParseKAI(map[string]string{"runai-gpu-group": group, "runai-gpu-group/" + group: group},
				map[string]string{"gpu-fraction": fraction, "gpu-memory": memory, "gpu-fraction-container-name": container}), true
		})
		if diff := cmp.Diff(m.Allocated, got.Allocated); diff != "" || !slices.Equal(m.Holders["c"], got.Holders["c"]) {
			t.Errorf("the devices of others changed: %v\n%s", got.Holders, diff)
		}
		for device, fractions := range got.Fractions {
			for h, f := range fractions {
				if !slices.Contains(got.Holders[device], h) || isReservation(h.Namespace) || f.Ratio < 0 || f.Ratio > 1 || f.Ratio != f.Ratio || f.Memory < 0 || f.Ratio == 0 && f.Memory == 0 {
					t.Errorf("%s has %+v of %s", h.Pod, f, device)
				}
			}
		}
	})
}
