package fleet

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// The ids of the devices that each node offers, and those that its pods get: "first" requests two
// and "second" one.
func TestUnitsOfANode(t *testing.T) {
	for _, tc := range []struct {
		name          string
		node          Node
		resource      corev1.ResourceName
		offered       []string
		first, second []string
	}{
		{name: "whole GPUs", node: Node{Name: "n", Model: H100, GPUs: 3}, resource: "nvidia.com/gpu",
			offered: []string{"0", "1", "2"}, first: []string{"0", "1"}, second: []string{"2"}},
		{name: "replicas: the device with the fewest taken ones", node: Node{Name: "n", Model: H100, GPUs: 2, Replicas: 3}, resource: "nvidia.com/gpu.shared",
			offered: []string{"0::0", "0::1", "0::2", "1::0", "1::1", "1::2"}, first: []string{"0::0", "1::0"}, second: []string{"0::1"}},
		{name: "TPU chips", node: Node{Name: "n", Model: TPUv6e, GPUs: 4, Topology: "2x4", NodePool: "p"}, resource: "google.com/tpu",
			offered: []string{"0", "1", "2", "3"}, first: []string{"0", "1"}, second: []string{"2"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := &Fleet{nodes: map[string]*simulatedNode{}, opts: Options{Dir: t.TempDir(), Seed: 1}}
			s, err := f.newSimulatedNode("cluster1", tc.node)
			if err != nil {
				t.Fatal(err)
			}
			// short replaces the UUID of a GPU with the index of the device.
			short := func(devices []*podresources.ContainerDevices) (ids []string) {
				for _, d := range devices {
					if d.ResourceName != string(tc.resource) {
						t.Errorf("resource %s, want %s", d.ResourceName, tc.resource)
					}
					for _, id := range d.DeviceIds {
						ids = append(ids, shortID(s, id))
					}
				}
				return ids
			}
			allocatable, err := s.GetAllocatableResources(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.offered, short(allocatable.Devices)); diff != "" {
				t.Errorf("offered (-want +got):\n%s", diff)
			}
			for _, pod := range []struct {
				name string
				n    int64
				want []string
			}{{"first", 2, tc.first}, {"second", 1, tc.second}} {
				s.observe(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod.name, UID: types.UID(pod.name)}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main",
					Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{tc.resource: *resource.NewQuantity(pod.n, resource.DecimalSI)}}}}}}, false)
				got, err := s.Get(t.Context(), &podresources.GetPodResourcesRequest{PodName: pod.name})
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(pod.want, short(got.PodResources.Containers[0].Devices)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", pod.name, diff)
				}
			}
		})
	}
}

// shortID replaces the UUID in the id of a unit with the index of the device.
func shortID(s *simulatedNode, id string) string {
	for i, d := range s.state.Devices {
		if rest, ok := strings.CutPrefix(id, d.UUID); ok {
			return strconv.Itoa(i) + rest
		}
	}
	return id
}

func TestSetUtilization(t *testing.T) {
	f := &Fleet{nodes: map[string]*simulatedNode{}, opts: Options{Dir: t.TempDir(), Seed: 1}}
	s, err := f.newSimulatedNode("cluster1", Node{Name: "n", Model: H100, GPUs: 2, Replicas: 4})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.SetUtilization("n", 1, 0); err != nil {
		t.Fatal(err)
	}
	var busy []float64
	for _, d := range s.state.Devices {
		for _, p := range d.Processes {
			busy = append(busy, p.Busy)
		}
	}
	if !slices.Equal(busy, []float64{1, 0}) {
		t.Errorf("utilization %v", busy)
	}
	if err := f.SetUtilization("n", 1); err == nil {
		t.Error("the utilization of one of two devices was accepted")
	}
}
