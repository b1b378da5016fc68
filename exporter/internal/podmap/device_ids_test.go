package podmap

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/exporter/internal/podmap/fake"
)

// knownID is an entry of testdata/device_ids.yaml.
type knownID struct {
	ID, Resource, Driver, Device, Replica, Part, Profile string
	Project, Source                                      string
	Shared                                               bool
}

func readKnownIDs(t testing.TB) (ids []knownID) {
	t.Helper()
	text, err := os.ReadFile("testdata/device_ids.yaml")
	if err == nil {
		err = yaml.UnmarshalStrict(text, &ids)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func (k knownID) parse(m *Map) deviceID {
	if k.Driver != "" {
		id, _ := m.parseClaim(&podresources.ClaimResource{DriverName: k.Driver, DeviceName: k.ID})
		return id
	}
	return m.parsePlugin(k.Resource, k.ID)
}

// provider returns the provider of a replica.
func (k knownID) provider() string {
	switch {
	case k.Replica == "":
		return ""
	case strings.HasPrefix(k.Project, "Project-HAMi/"):
		return "hami"
	case strings.HasPrefix(k.Project, "GoogleCloudPlatform/"):
		return "gke"
	}
	return "nvidia"
}

func TestParseIDsOfOtherProjects(t *testing.T) {
	projects := map[string]bool{}
	for _, k := range readKnownIDs(t) {
		project, _, _ := strings.Cut(k.Project, "@")
		projects[project] = true
		t.Run(k.Project+"/"+k.ID, func(t *testing.T) {
			m := newMap()
			got := k.parse(&m)
			if k.Device == "" {
				if !m.UnknownFormat[got.name] {
					t.Errorf("the id is parsed as %+v", got)
				}
				return
			}
			want := deviceID{name: k.Device, replica: k.Replica, provider: k.provider(), part: Part{k.Part, k.Profile}, shared: k.Shared}
			if got != want || len(m.UnknownFormat) > 0 {
				t.Errorf("%+v, want %+v", got, want)
			}
		})
	}
	if len(projects) < 5 {
		t.Errorf("the table has ids of %d projects", len(projects))
	}
}

// A UUID is compared as a whole, so an id with any other prefix or suffix is unknown.
func TestParseRejectsOtherIDs(t *testing.T) {
	for _, raw := range []string{"", " ", "nvidia", "nvidia0/part1", "nvidia0/gi", "nvidia0/vgpu", "nvidia0/gi1/vgpu", "nvidia0/gi1-2", "card0", "MIG-" + uuid, uuid + "::", uuid + "::a", uuid + "-a",
		uuid + "-0-0", uuid + "0", uuid + "/0", uuid + "/vgpu1", uuid[:len(uuid)-1], strings.ToLower(uuid), " " + uuid, uuid + "\n", "MIG-7ac2f0e1-0000-4000-8000-000000000002-1"} {
		m := newMap()
		if id := m.parsePlugin("nvidia.com/gpu", raw); !m.UnknownFormat[id.name] {
			t.Errorf("%q is parsed as %+v", raw, id)
		}
	}
}

// FuzzDeviceID checks that an id has at most one meaning, and that the meaning determines
// the id up to the form of the suffix.
func FuzzDeviceID(f *testing.F) {
	for _, k := range readKnownIDs(f) {
		f.Add(k.Resource+k.Driver, k.ID)
	}
	f.Fuzz(func(t *testing.T, origin, raw string) {
		m := newMap()
		id := m.parsePlugin(origin, raw)
		if m.UnknownFormat[id.name] {
			if id.name != origin+" "+raw || id.part != (Part{}) {
				t.Errorf("an unknown id is parsed as %+v", id)
			}
		} else if name := strings.TrimPrefix(id.name, "tpu"); !strings.Contains(raw, name) || !strings.HasSuffix(raw, id.replica) || !strings.HasPrefix(id.name, id.part.Device) {
			t.Errorf("%q is parsed as %+v", raw, id)
		}
		for driver := range claimDrivers {
			m := newMap()
			id, ok := m.parseClaim(&podresources.ClaimResource{DriverName: driver, DeviceName: raw})
			if !ok || !m.UnknownFormat[id.name] && !strings.HasPrefix(id.name, id.part.Device) {
				t.Errorf("%q of %s is parsed as %+v", raw, driver, id)
			}
		}
	})
}

// GKE's device plugin names chips accel0 up to v4, and by the VFIO group from v5e on. The
// DRA driver names them accel0.
func TestPollMapsTPUs(t *testing.T) {
	k := fake.Start(t)
	k.Allocatable("google.com/tpu", "accel0", "1", "vfio/2", "GPU-3", "four")
	k.Hold("team-a/train/main", "google.com/tpu", "accel0", "1")
	k.Hold("team-a/claims/main", "claim:tpu.google.com", "accel2")
	k.Allocatable("nvidia.com/gpu", "7") // not an id of an NVIDIA device
	p, err := New(k.Socket, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	m := poll(t, p)
	want := map[string]string{"tpu0": "google.com/tpu", "tpu1": "google.com/tpu", "tpu2": "google.com/tpu",
		"google.com/tpu GPU-3": "google.com/tpu", "google.com/tpu four": "google.com/tpu", "nvidia.com/gpu 7": "nvidia.com/gpu"}
	if diff := cmp.Diff(want, m.Allocatable); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]bool{"google.com/tpu GPU-3": true, "google.com/tpu four": true, "nvidia.com/gpu 7": true}, m.UnknownFormat); diff != "" {
		t.Error(diff)
	}
	for name, want := range map[string]bool{"tpu0": true, "tpu1": true, "tpu2": true, "tpu3": false} {
		if p.IsAllocated(name) != want {
			t.Errorf("%s is allocated: %t", name, !want)
		}
	}
	if m.ClaimDrivers[NVIDIADriver] {
		t.Error("a claim on a TPU makes NVIDIA devices allocatable")
	}
}

// KAI Scheduler reserves a device with a pod of its own. The pods that share the device
// request nothing from the kubelet.
func TestPollIgnoresReservationPods(t *testing.T) {
	k := fake.Start(t)
	k.Allocatable("nvidia.com/gpu", uuid)
	k.Hold("kai-resource-reservation/gpu-reservation-node-1-x7k2p/resource-reservation", "nvidia.com/gpu", uuid)
	p, err := New(k.Socket, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	m := poll(t, p)
	if !m.IsAllocated([]string{uuid}) || !m.Shared[uuid] || len(m.Holders) != 0 {
		t.Errorf("the reserved device is not allocated, shared and without holders: %+v", m)
	}
}
