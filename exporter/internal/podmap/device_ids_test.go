package podmap

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/exporter/internal/podmap/fake"
)

func TestParseNVIDIA(t *testing.T) {
	for _, tc := range []struct {
		raw, id, replica string
		ok               bool
	}{
		{uuid, uuid, "", true},
		{uuid + "::3", uuid, "3", true},
		{"MIG-7ac2f0e1-0000-4000-8000-000000000002", "MIG-7ac2f0e1-0000-4000-8000-000000000002", "", true},
		{"MIG-7ac2f0e1-0000-4000-8000-000000000002::1", "MIG-7ac2f0e1-0000-4000-8000-000000000002", "1", true},
		{"MIG-" + uuid + "/7/0", uuid + "/7/0", "", true},
		{"MIG-" + uuid + "/7/0::2", uuid + "/7/0", "2", true},
		{"MIG-" + uuid, "", "", false},
		{"MIG-" + uuid + "/7", "", "", false},
		{"nvidia0", "nvidia0", "", true},
		{"nvidia12::1", "nvidia12", "1", true},
		{"nvidia0/gi3", "nvidia0/gi3", "", true},
		{"nvidia0/gi3::1", "nvidia0/gi3", "1", true},
		{"nvidia0/gi3/vgpu1", "nvidia0/gi3", "1", true},
		{"nvidia0/vgpu1", "nvidia0", "1", true},
		{"nvidia0/part1", "", "", false},
		{"nvidiactl", "", "", false},
		{"nvidia", "", "", false},
		{"card0", "", "", false},
		{"", "", "", false},
	} {
		t.Run(tc.raw, func(t *testing.T) {
			id, replica, ok := parseNVIDIA(tc.raw)
			if id != tc.id || replica != tc.replica || ok != tc.ok {
				t.Errorf("%q: %q, replica %q, %t; want %q, %q, %t", tc.raw, id, replica, ok, tc.id, tc.replica, tc.ok)
			}
		})
	}
}

// GKE's device plugin names chips accel0 up to v4, and by the VFIO group from v5e on.
func TestPollMapsTPUs(t *testing.T) {
	k := fake.Start(t)
	k.Allocatable("google.com/tpu", "accel0", "1", "vfio/2", "GPU-3", "four")
	k.Hold("team-a/train/main", "google.com/tpu", "accel0", "1")
	k.Allocatable("nvidia.com/gpu", "7") // not an id of an NVIDIA device
	p, err := New(k.Socket, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	m := poll(t, p)
	if diff := cmp.Diff(map[string]string{"tpu0": "google.com/tpu", "tpu1": "google.com/tpu", "tpu2": "google.com/tpu"}, m.Allocatable); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]int{"unknown_id_format": 3}, m.Unmapped); diff != "" {
		t.Error(diff)
	}
	if !p.Holds("tpu0") || !p.Holds("tpu1") || p.Holds("tpu2") {
		t.Errorf("holders of chips: %v", m.Holders)
	}
}
