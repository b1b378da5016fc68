package shape

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// FuzzDevicesOfPod checks that a pod requests at least the devices of each of its containers,
// whatever quantities they state: a sum that overflows would look like a pod without devices, and
// no gate would count them.
func FuzzDevicesOfPod(f *testing.F) {
	for _, q := range [][2]string{{"1", "0"}, {"8", "8"}, {"9223372036854775807", "1"}, {"5E", "5E"}, {"1e18", "9e18"}, {"1500m", "0"}, {"1n", "0"}} {
		f.Add(q[0], q[1], false)
		f.Add(q[0], q[1], true)
	}
	f.Fuzz(func(t *testing.T, a, b string, initially bool) {
		containers, largest := make([]corev1.Container, 2), int64(0)
		for i, text := range []string{a, b} {
			quantity, err := resource.ParseQuantity(text)
			if err != nil || quantity.Sign() < 0 {
				return // the API server refuses it
			}
			containers[i].Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": quantity, hamiMemory: quantity}
			largest = max(largest, min(quantity.Value(), maxRequest))
		}
		spec := &corev1.PodSpec{Containers: containers}
		if initially {
			spec.Containers, spec.InitContainers = containers[:1], containers[1:]
		}
		if _, n := podDevices(spec, true); n < largest || n > maxRequest {
			t.Errorf("%s and %s are %d devices, want at least %d", a, b, n, largest)
		}
		if share := shareOf(spec, "nvidia.com/gpu"); largest > 0 && share.Memory < largest<<20 {
			t.Errorf("%s and %s MiB are %d bytes", a, b, share.Memory)
		}
	})
}
