package fleet

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// HAMi assigns pods to the GPU with the fewest pods that has the memory and the cores.
func TestHAMiAssignsDevicesWithRoom(t *testing.T) {
	f := &Fleet{nodes: map[string]*simulatedNode{}, opts: Options{Dir: t.TempDir(), Seed: 1}}
	s, err := f.newSimulatedNode("cluster1", HAMiNode("n", 2))
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name       string
		mib, cores int64
		device     int // -1: none has room
	}{
		{"first", 60_000, 0, 0}, {"second", 20_000, 70, 1}, {"memory of one is too small", 50_000, 0, 1}, {"no memory", 40_000, 0, -1}, {"no cores on the second", 10_000, 50, 0},
	} {
		limits := corev1.ResourceList{GPUResource: resource.MustParse("1"), HAMiMemory: *resource.NewQuantity(step.mib, resource.DecimalSI), HAMiCores: *resource.NewQuantity(step.cores, resource.DecimalSI)}
		s.observe(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: step.name, UID: types.UID(step.name)},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: limits}}}}}, false)
		want := ""
		if step.device >= 0 {
			want = fmt.Sprintf("%s,NVIDIA,%d,%d:;", s.state.Devices[step.device].UUID, step.mib, step.cores)
		}
		if got := s.hamiAssignment(types.UID(step.name)); got != want {
			t.Errorf("%s: assigned %q, want %q", step.name, got, want)
		}
	}
}
