package podmap

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const uuid = "GPU-7ac2f0e1-0000-4000-8000-000000000001"

func TestDeviceIDForms(t *testing.T) {
	for _, c := range []struct {
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
		id, replica, ok := plain(c.raw)
		if id != c.id || replica != c.replica || ok != c.ok {
			t.Errorf("%q: %q, replica %q, %t; want %q, %q, %t", c.raw, id, replica, ok, c.id, c.replica, c.ok)
		}
	}
}

// kubelet answers PodResources on a socket.
type kubelet struct {
	podresources.UnimplementedPodResourcesListerServer
	mu          sync.Mutex
	pods        []*podresources.PodResources
	allocatable func(context.Context) error // nil for none that fails
}

func (k *kubelet) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return &podresources.ListPodResourcesResponse{PodResources: k.pods}, nil
}

func (k *kubelet) GetAllocatableResources(ctx context.Context, _ *podresources.AllocatableResourcesRequest) (*podresources.AllocatableResourcesResponse, error) {
	if k.allocatable != nil {
		return nil, k.allocatable(ctx)
	}
	return &podresources.AllocatableResourcesResponse{}, nil
}

func (k *kubelet) hold(pods ...*podresources.PodResources) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pods = pods
}

func (k *kubelet) start(t *testing.T, socket string) *grpc.Server {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, k)
	go func() { _ = server.Serve(l) }() // ends with Stop
	return server
}

func pod(name string, c *podresources.ContainerResources) *podresources.PodResources {
	c.Name = "main"
	return &podresources.PodResources{Namespace: "team-a", Name: name, Containers: []*podresources.ContainerResources{c}}
}

func plugin(ids ...string) *podresources.ContainerResources {
	return &podresources.ContainerResources{Devices: []*podresources.ContainerDevices{{ResourceName: "nvidia.com/gpu", DeviceIds: ids}}}
}

func claim(driver string, names ...string) *podresources.ContainerResources {
	d := &podresources.DynamicResource{ClaimName: "c", ClaimNamespace: "team-a"}
	for _, name := range names {
		d.ClaimResources = append(d.ClaimResources, &podresources.ClaimResource{DriverName: driver, PoolName: "node-1", DeviceName: name})
	}
	return &podresources.ContainerResources{DynamicResources: []*podresources.DynamicResource{d}}
}

func setup(t *testing.T) (*kubelet, *Poller, string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "k.sock")
	p, err := New(socket, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return &kubelet{}, p, socket
}

func poll(t *testing.T, p *Poller) Map {
	t.Helper()
	if err := p.Poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	m, err := p.Last()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestHoldersByPluginAndByClaim(t *testing.T) {
	k, p, socket := setup(t)
	defer k.start(t, socket).Stop()
	share := claim("gpu.nvidia.com", "gpu-4")
	share.DynamicResources[0].ClaimResources[0].ShareId = new(string)
	k.hold(pod("plugin", plugin(uuid)), pod("replicas", plugin("nvidia9::0", "nvidia9::1")),
		pod("claims", claim("gpu.nvidia.com", "gpu-1", "gpu-2-mig-19-0-1", "odd")), pod("share", share),
		pod("channel", claim("compute-domain.nvidia.com", "channel-0")), pod("also", claim("gpu.nvidia.com", "gpu-1")))
	held := func(names ...string) []Holder {
		var out []Holder
		for _, n := range names {
			out = append(out, Holder{"team-a", n, "main"})
		}
		return out
	}
	of := func(name string) Claim { return Claim{"c", "team-a", "gpu.nvidia.com", "node-1", name} }
	want := Map{
		Allocatable: map[string]string{},
		Holders: map[string][]Holder{uuid: held("plugin"), "nvidia9": held("replicas"), "nvidia1": held("claims", "also"),
			"nvidia2/mig-19-0-1": held("claims"), "nvidia4": held("share")},
		Shared:   map[string]bool{"nvidia4": true, "nvidia9": true},
		Replicas: map[string]map[Holder][]string{"nvidia9": {held("replicas")[0]: {"0", "1"}}},
		Claimed: map[string]map[Holder]Claim{
			"nvidia1":            {held("claims")[0]: of("gpu-1"), held("also")[0]: of("gpu-1")},
			"nvidia2/mig-19-0-1": {held("claims")[0]: of("gpu-2-mig-19-0-1")},
			"nvidia4":            {held("share")[0]: of("gpu-4")},
		},
		Claims:   true,
		Unmapped: map[string]int{"unknown device id form": 1},
	}
	if diff := cmp.Diff(want, poll(t, p)); diff != "" {
		t.Error(diff)
	}
	k.hold()
	if !poll(t, p).Claims {
		t.Error("claims are forgotten with the last one")
	}
}

// Pods keep their devices where the kubelet does not tell what is allocatable, or
// does not answer that in time.
func TestHoldersWithoutWhatIsAllocatable(t *testing.T) {
	for name, allocatable := range map[string]func(context.Context, func()) error{
		"unimplemented": func(context.Context, func()) error { return status.Error(codes.Unimplemented, "") },
		"too late":      func(ctx context.Context, late func()) error { late(); <-ctx.Done(); return ctx.Err() },
	} {
		k, p, socket := setup(t)
		ctx, late := context.WithCancel(t.Context())
		k.allocatable = func(of context.Context) error { return allocatable(of, late) }
		k.hold(pod("train", plugin(uuid)))
		server := k.start(t, socket)
		if err := p.Poll(ctx); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if m, err := p.Last(); err != nil || len(m.Holders[uuid]) != 1 || !m.Uncounted {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
		late()
		server.Stop()
	}
}

// NVIDIA's network operator hands out cards below the same domain, with PCI ids.
func TestResourcesThatAreNoDevicesDoNotCount(t *testing.T) {
	p, err := New("", []string{"example.com/gpu", " example.com/half ", ""})
	if err != nil {
		t.Fatal(err)
	}
	for name, counts := range map[string]bool{
		"nvidia.com/gpu": true, "nvidia.com/gpu.shared": true, "nvidia.com/mig-1g.10gb": true, "nvidia.com/mig-1g.10gb.shared": true, "google.com/tpu": true,
		"example.com/gpu": true, "example.com/half": true, "nvidia.com/hostdev": false, "nvidia.com/rdma_shared_device_a": false, "nvidia.com/cx7_sriov": false,
	} {
		m := Map{Holders: map[string][]Holder{}, Unmapped: map[string]int{}, Shared: map[string]bool{}}
		p.each(&podresources.ContainerDevices{ResourceName: name, DeviceIds: []string{"0000:1b:00.2"}}, &m, func(string, string) {})
		if got := m.Unmapped[unknownForm] == 1; got != counts {
			t.Errorf("%s counts: %t, want %t", name, got, counts)
		}
	}
}

func TestKubeletAbsentThenThereThenRestarted(t *testing.T) {
	k, p, socket := setup(t)
	k.hold(pod("train", plugin(uuid)))
	absent := func(when string) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := p.Poll(ctx); err == nil {
			t.Errorf("%s: no error", when)
		}
		if _, err := p.Last(); err == nil || p.Holds(uuid) {
			t.Errorf("%s: an old map is told", when)
		}
	}
	absent("before the kubelet")
	for range 3 {
		server := k.start(t, socket)
		if m := poll(t, p); len(m.Holders[uuid]) != 1 || !p.Holds(uuid) {
			t.Errorf("with the kubelet: %+v", m)
		}
		server.Stop()
		absent("after the kubelet stopped")
	}
}

// 10,000 pods come and go; only those of now are remembered.
func TestChurn(t *testing.T) {
	k, p, socket := setup(t)
	defer k.start(t, socket).Stop()
	for round := range 100 {
		var pods []*podresources.PodResources
		for i := range 100 {
			pods = append(pods, pod(fmt.Sprintf("p-%d-%d", round, i), plugin(fmt.Sprintf("nvidia%d::%d", i%8, i))))
		}
		k.hold(pods...)
		m := poll(t, p)
		n := 0
		for _, holders := range m.Holders {
			n += len(holders)
		}
		if first := m.Holders["nvidia0"][0].Pod; len(m.Holders) != 8 || n != 100 || first != fmt.Sprintf("p-%d-0", round) {
			t.Fatalf("round %d: %d devices, %d holders, the first %s", round, len(m.Holders), n, first)
		}
	}
	k.hold()
	if m := poll(t, p); len(m.Holders) != 0 {
		t.Errorf("held by nobody: %v", m.Holders)
	}
}
