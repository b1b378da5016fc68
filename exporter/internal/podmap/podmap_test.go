package podmap

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const uuid = "GPU-7ac2f0e1-0000-4000-8000-000000000001"

// kubelet serves PodResources on a socket.
type kubelet struct {
	podresources.UnimplementedPodResourcesListerServer
	mu          sync.Mutex
	pods        []*podresources.PodResources
	devices     []*podresources.ContainerDevices
	allocatable func(context.Context) error // error of GetAllocatableResources; nil for success
	onList      func()                      // nil if nothing happens
}

func (k *kubelet) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.onList != nil {
		k.onList()
	}
	return &podresources.ListPodResourcesResponse{PodResources: k.pods}, nil
}

func (k *kubelet) GetAllocatableResources(ctx context.Context, _ *podresources.AllocatableResourcesRequest) (*podresources.AllocatableResourcesResponse, error) {
	if k.allocatable != nil {
		return nil, k.allocatable(ctx)
	}
	return &podresources.AllocatableResourcesResponse{Devices: k.devices}, nil
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

// The path of the socket is a path, not a URL: it can be relative, and % has no meaning.
func TestPollUsesAnyPathOfSocket(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("a%20?b#c", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, socket := range []string{"kubelet.sock", "./k.sock", "a%20?b#c/k.sock"} {
		t.Run(socket, func(t *testing.T) {
			k := &kubelet{}
			server := k.start(t, socket)
			defer server.Stop()
			p, err := New(socket, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			poll(t, p)
		})
	}
}

func TestPollMapsPluginDevicesAndClaims(t *testing.T) {
	k, p, socket := setup(t)
	defer k.start(t, socket).Stop()
	share := claim("gpu.nvidia.com", "gpu-4")
	shareID := "3a5e5a1c-0f3b-4a8e-9c6d-2b7f1d8e9a00"
	share.DynamicResources[0].ClaimResources[0].ShareId = &shareID
	k.hold(pod("plugin", plugin(uuid)), pod("replicas", plugin("nvidia9::0", "nvidia9::1")),
		pod("claims", claim("gpu.nvidia.com", "gpu-1", "gpu-2-mig-19-0-1", "odd")), pod("share", share),
		pod("channel", claim("compute-domain.nvidia.com", "channel-0")), pod("also", claim("gpu.nvidia.com", "gpu-1")), pod("waits", claim("")))
	held := func(names ...string) []Holder {
		var out []Holder
		for _, n := range names {
			out = append(out, Holder{"team-a", n, "main"})
		}
		return out
	}
	of := func(name string) Claim { return Claim{"c", "team-a", "gpu.nvidia.com", "node-1", name, ""} }
	shared := of("gpu-4")
	shared.ShareID = shareID
	odd, unprepared := "gpu.nvidia.com odd", "claim team-a/c"
	want := Map{
		Allocatable: map[string]string{},
		Allocated:   map[string]string{uuid: "nvidia.com/gpu", "nvidia9": "nvidia.com/gpu", "nvidia1": "", "nvidia2/mig-19-0": "", "nvidia4": "", odd: "", unprepared: ""},
		Holders: map[string][]Holder{uuid: held("plugin"), "nvidia9": held("replicas"), "nvidia1": held("claims", "also"),
			"nvidia2/mig-19-0": held("claims"), "nvidia4": held("share"), odd: held("claims")},
		Shared:        map[string]bool{"nvidia4": true, "nvidia9": true},
		Replicas:      map[string]map[Holder][]string{"nvidia9": {held("replicas")[0]: {"0", "1"}}},
		ReplicaCounts: map[string]ReplicaCount{"nvidia9": {"nvidia", 0, 2}},
		Mixed:         map[string]bool{uuid: true, "nvidia1": true, "nvidia2/mig-19-0": true, "nvidia4": true, odd: true},
		Claimed: map[string]map[Holder]Claim{
			"nvidia1":          {held("claims")[0]: of("gpu-1"), held("also")[0]: of("gpu-1")},
			"nvidia2/mig-19-0": {held("claims")[0]: of("gpu-2-mig-19-0-1")},
			"nvidia4":          {held("share")[0]: shared},
			odd:                {held("claims")[0]: of("odd")},
		},
		Containers: map[[2]string][]string{{"team-a", "plugin"}: {"main"}, {"team-a", "replicas"}: {"main"}, {"team-a", "claims"}: {"main"},
			{"team-a", "share"}: {"main"}, {"team-a", "channel"}: {"main"}, {"team-a", "also"}: {"main"}, {"team-a", "waits"}: {"main"}},
		Reserved: map[string][]Holder{},
		Claims: map[string][]HeldClaim{
			"nvidia1":          {{held("claims")[0], of("gpu-1")}, {held("also")[0], of("gpu-1")}},
			"nvidia2/mig-19-0": {{held("claims")[0], of("gpu-2-mig-19-0-1")}},
			"nvidia4":          {{held("share")[0], shared}},
			odd:                {{held("claims")[0], of("odd")}},
		},
		ClaimDrivers:  map[string]bool{NVIDIADriver: true},
		PluginDevices: map[string]bool{},
		ClaimDevices:  map[string]bool{"nvidia1": true, "nvidia2/mig-19-0": true, "nvidia4": true, odd: true},
		Parts:         map[string]Part{"nvidia2/mig-19-0": {Device: "nvidia2"}},
		Unprepared:    map[string]bool{unprepared: true},
		UnknownFormat: map[string]bool{odd: true},
	}
	want.Holders[unprepared], want.Mixed[unprepared] = held("waits"), true
	if diff := cmp.Diff(want, poll(t, p), cmpopts.IgnoreFields(Map{}, "At")); diff != "" {
		t.Error(diff)
	}
	k.hold()
	if !poll(t, p).ClaimDrivers[NVIDIADriver] {
		t.Error("the driver is forgotten after the last claim was deleted")
	}
}

// If the query for allocatable resources fails or times out, pods keep their devices.
func TestPollKeepsHoldersWithoutAllocatable(t *testing.T) {
	for name, allocatable := range map[string]func(ctx context.Context, expire func()) error{
		"unimplemented": func(context.Context, func()) error { return status.Error(codes.Unimplemented, "") },
		"timeout":       func(ctx context.Context, expire func()) error { expire(); <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			k, p, socket := setup(t)
			ctx, expire := context.WithCancel(t.Context())
			defer expire()
			k.allocatable = func(of context.Context) error { return allocatable(of, expire) }
			k.hold(pod("train", plugin(uuid)))
			defer k.start(t, socket).Stop()
			if err := p.Poll(ctx); err != nil {
				t.Error(err)
			}
			if m, err := p.Last(); err != nil || len(m.Holders[uuid]) != 1 || m.AllocatableErr == nil {
				t.Errorf("%+v, %v", m, err)
			}
		})
	}
}

// The kubelet can report an id several times: for several NUMA nodes, and for two pods while
// one replaces the other. Each replica counts once, and each container is one holder.
func TestPollCountsRepeatedIDsOnce(t *testing.T) {
	k, p, socket := setup(t)
	twice := []*podresources.ContainerDevices{{ResourceName: "nvidia.com/gpu", DeviceIds: []string{uuid + "::0", uuid + "::1"}}, {ResourceName: "nvidia.com/gpu", DeviceIds: []string{uuid + "::1"}}}
	k.devices = twice
	defer k.start(t, socket).Stop()
	k.hold(pod("old", plugin(uuid+"::0", uuid+"::0")), pod("new", plugin(uuid+"::0")), pod("other", &podresources.ContainerResources{Devices: twice[1:]}),
		pod("claims", claim("gpu.nvidia.com", "gpu-1", "gpu-1")))
	m := poll(t, p)
	if got, want := m.ReplicaCounts[uuid], (ReplicaCount{"nvidia", 2, 2}); got != want {
		t.Errorf("replicas: %+v, want %+v", got, want)
	}
	if n := len(m.Holders[uuid]); n != 3 {
		t.Errorf("%d holders, want 3: %v", n, m.Holders[uuid])
	}
	if got := m.Replicas[uuid][Holder{"team-a", "old", "main"}]; len(got) != 1 {
		t.Errorf("the old pod has the replicas %q, want one", got)
	}
	if n := len(m.Holders["nvidia1"]); n != 1 {
		t.Errorf("%d holders through claims, want 1", n)
	}
}

// Nothing that the kubelet sends ends the exporter.
func TestPollWithEmptyMessages(t *testing.T) {
	k, p, socket := setup(t)
	defer k.start(t, socket).Stop()
	k.devices = []*podresources.ContainerDevices{{}, {ResourceName: "nvidia.com/gpu"}, {ResourceName: "nvidia.com/gpu", DeviceIds: []string{""}}}
	k.hold(&podresources.PodResources{}, &podresources.PodResources{Name: "a", Containers: []*podresources.ContainerResources{{}}},
		&podresources.PodResources{Name: "b", Containers: []*podresources.ContainerResources{{Devices: []*podresources.ContainerDevices{{}, {ResourceName: "nvidia.com/gpu", DeviceIds: []string{"", uuid}}},
			DynamicResources: []*podresources.DynamicResource{{}, {ClaimResources: []*podresources.ClaimResource{{}, {DriverName: "gpu.nvidia.com"}}}}}}})
	m := poll(t, p)
	if len(m.Holders[uuid]) != 1 || m.Holders[uuid][0] != (Holder{Pod: "b"}) {
		t.Errorf("holders: %v", m.Holders)
	}
	if !m.UnknownFormat["nvidia.com/gpu "] || !m.UnknownFormat["gpu.nvidia.com "] {
		t.Errorf("empty ids are not unknown: %v", m.UnknownFormat)
	}
}

// NVIDIA's network operator uses the same resource domain for network cards, with PCI ids.
func TestPollIgnoresOtherResources(t *testing.T) {
	p, err := New("", []string{"example.com/gpu", " example.com/half ", ""})
	if err != nil {
		t.Fatal(err)
	}
	for name, counts := range map[string]bool{
		"nvidia.com/gpu": true, "nvidia.com/gpu.shared": true, "nvidia.com/mig-1g.10gb": true, "nvidia.com/mig-1g.10gb.shared": true, "google.com/tpu": true,
		"example.com/gpu": true, "example.com/half": true, "nvidia.com/hostdev": false, "nvidia.com/rdma_shared_device_a": false, "nvidia.com/cx7_sriov": false,
	} {
		t.Run(name, func(t *testing.T) {
			m := newMap()
			p.forEachDevice(&podresources.ContainerDevices{ResourceName: name, DeviceIds: []string{"0000:1b:00.2"}}, &m, func(deviceID) {})
			if got := len(m.UnknownFormat) == 1; got != counts {
				t.Errorf("counts: %t, want %t", got, counts)
			}
		})
	}
}

func TestPollReconnectsAfterKubeletRestart(t *testing.T) {
	k, p, socket := setup(t)
	k.hold(pod("train", plugin(uuid)))
	requireUnknown := func(when string) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := p.Poll(ctx); err == nil {
			t.Errorf("%s: no error", when)
		}
		if m, err := p.Last(); err == nil || p.IsAllocated(uuid) || len(m.Holders) > 0 {
			t.Errorf("%s: an old map is still served: %v", when, m.Holders)
		}
	}
	requireUnknown("before the kubelet starts")
	for range 3 {
		server := k.start(t, socket)
		if m := poll(t, p); len(m.Holders[uuid]) != 1 || !p.IsAllocated(uuid) {
			t.Errorf("with the kubelet: %+v", m)
		}
		server.Stop()
		requireUnknown("after the kubelet stopped")
	}
}

// A kubelet that restarts serves PodResources before it has its pods from the API server. Static
// pods come earlier.
func TestPollFailsUntilKubeletHasItsPods(t *testing.T) {
	k, p, socket := setup(t)
	p.ExpectPod("team-a", "exporter")
	defer k.start(t, socket).Stop()
	exporter, holder := pod("exporter", &podresources.ContainerResources{}), pod("train", claim(NVIDIADriver, "gpu-1"))
	k.hold(exporter, holder)
	if m := poll(t, p); len(m.Holders["nvidia1"]) != 1 {
		t.Errorf("holders: %v", m.Holders)
	}
	static := pod("exporter", &podresources.ContainerResources{})
	static.Namespace = "kube-system"
	for name, pods := range map[string][]*podresources.PodResources{"none": nil, "static pods": {static}} {
		k.hold(pods...)
		if err := p.Poll(t.Context()); err == nil || !strings.Contains(err.Error(), "has not loaded its pods yet: it does not list the pod of the exporter, team-a/exporter") {
			t.Errorf("%s: %v", name, err)
		}
		if m, err := p.Last(); err == nil || len(m.ClaimDrivers) > 0 {
			t.Errorf("%s: %v, %+v", name, err, m)
		}
	}
	k.hold(exporter, holder)
	if m := poll(t, p); len(m.Holders["nvidia1"]) != 1 || !m.ClaimDrivers[NVIDIADriver] {
		t.Errorf("after the pods were loaded: %+v", m)
	}
}

// Outside of a pod, or with one of the two variables, an empty list is that of a node without
// pods.
func TestPollWithoutOwnPod(t *testing.T) {
	for _, self := range [][2]string{{"", ""}, {"team-a", ""}, {"", "exporter"}} {
		k, p, socket := setup(t)
		p.ExpectPod(self[0], self[1])
		server := k.start(t, socket)
		poll(t, p)
		server.Stop()
	}
}

// A Map that was returned does not change with later Polls.
func TestPollRemembersDevices(t *testing.T) {
	k, p, socket := setup(t)
	defer k.start(t, socket).Stop()
	k.devices = plugin(uuid).Devices
	first := poll(t, p)
	k.devices = plugin("nvidia8", "nvidia9").Devices
	k.hold(pod("train", claim(NVIDIADriver, "gpu-9")))
	second := poll(t, p)
	for _, tc := range []struct {
		m     Map
		names []string
		want  bool
	}{{first, []string{uuid, "nvidia1"}, true}, {first, []string{"nvidia8"}, false}, {second, []string{uuid, "nvidia1"}, true}, {second, []string{"nvidia8"}, true}, {second, []string{"nvidia9"}, false}, {second, []string{"nvidia2"}, false}} {
		if got := tc.m.IsWithdrawn(tc.names); got != tc.want {
			t.Errorf("%v of %+v: withdrawn %t, want %t", tc.names, tc.m, got, tc.want)
		}
	}
}

// 10,000 pods come and go. The map holds only the current ones.
func TestPollForgetsDeletedPods(t *testing.T) {
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
		t.Errorf("holders without any pod: %v", m.Holders)
	}
}

// TestKnownDevicesAreBounded: instances of MIG get new names with each reconfiguration.
func TestKnownDevicesAreBounded(t *testing.T) {
	var known map[string]bool
	largest := 0
	for i := range 100 {
		instances := map[string]string{}
		for j := range maxKnownDevices / 20 {
			instances[fmt.Sprintf("MIG-%d-%d", i, j)] = ""
		}
		known = withKeys(known, instances)
		largest = max(largest, len(known))
		for name := range instances {
			if !known[name] {
				t.Fatalf("%s is unknown", name)
			}
		}
	}
	if largest < maxKnownDevices || largest > 2*maxKnownDevices {
		t.Errorf("at most %d devices are known", largest)
	}
}
