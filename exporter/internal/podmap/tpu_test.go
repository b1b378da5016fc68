package podmap_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/exporter/internal/podmap"
	"plimsoll.dev/plimsoll/exporter/internal/podmap/fake"
)

// GKE's device plugin calls chips accel0 up to v4, and by the vfio group alone later.
func TestIDsOfTPUs(t *testing.T) {
	k := fake.Start(t)
	k.Allocatable("google.com/tpu", "accel0", "1", "vfio/2", "GPU-3", "four")
	k.Hold("team-a/train/main", "google.com/tpu", "accel0", "1")
	k.Allocatable("nvidia.com/gpu", "7") // which is no NVIDIA device's
	p, err := podmap.New(k.Socket, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	if err := p.Poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	m, _ := p.Last()
	if diff := cmp.Diff(map[string]string{"tpu0": "google.com/tpu", "tpu1": "google.com/tpu", "tpu2": "google.com/tpu"}, m.Allocatable); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]int{"unknown device id form": 3}, m.Unmapped); diff != "" {
		t.Error(diff)
	}
	if !p.Holds("tpu0") || !p.Holds("tpu1") || p.Holds("tpu2") {
		t.Errorf("who holds chips: %v", m.Holders)
	}
}
