package fleet

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func podOf(name string, gpus int) *corev1.Pod {
	spec := Job{Name: name, Model: H100, GPUs: gpus}.Object().Spec.Template.Spec
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: spec}
}

func TestRunPodTakesTheFirstNodeWithFreeDevices(t *testing.T) {
	f := &Fleet{nodes: map[string]*simulatedNode{}, opts: Options{Dir: t.TempDir(), Seed: 1}}
	for _, n := range DefaultWorkers()[0].Nodes[:3] { // 8 H100, 8 H100, 8 A100
		if _, err := f.newSimulatedNode("cluster1", n); err != nil {
			t.Fatal(err)
		}
	}
	first, second := podOf("first", 6), podOf("second", 8)
	for _, pod := range []*corev1.Pod{first, second} {
		if err := f.RunPod("cluster1", H100, pod); err != nil {
			t.Fatal(err)
		}
	}
	if f.node("cluster1-gpu0").pods["first"] == nil || f.node("cluster1-gpu1").pods["second"] == nil {
		t.Error("the pods are not on the nodes that have the devices free")
	}
	third := podOf("third", 4)
	if err := f.RunPod("cluster1", H100, third); err == nil || !strings.Contains(err.Error(), "no node of cluster1 has the NVIDIA-H100") {
		t.Errorf("a pod without room: %v", err)
	}
	f.EndPod("cluster1", first)
	if err := f.RunPod("cluster1", H100, third); err != nil {
		t.Error(err)
	}
}
