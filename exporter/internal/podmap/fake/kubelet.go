// Package fake provides a kubelet whose PodResources API serves what a test sets.
package fake

import (
	"context"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Kubelet serves PodResources on a Unix socket. Create it with Start.
type Kubelet struct {
	podresources.UnimplementedPodResourcesListerServer
	Socket string

	mu          sync.Mutex
	allocatable map[string][]string
	holdings    map[string]map[string][]string // device ids by container and resource
}

// Start starts a kubelet that stops at the end of the test.
func Start(t testing.TB) *Kubelet {
	t.Helper()
	k := &Kubelet{Socket: filepath.Join(t.TempDir(), "k.sock"), allocatable: map[string][]string{}, holdings: map[string]map[string][]string{}}
	listener, err := net.Listen("unix", k.Socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, k)
	go func() { _ = server.Serve(listener) }() // ends with Stop
	t.Cleanup(server.Stop)
	return k
}

// Allocatable sets the device ids of a resource.
func (k *Kubelet) Allocatable(resource string, ids ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.allocatable[resource] = ids
}

// Hold sets the device ids that a container, namespace/pod/container, holds of a
// resource. A resource of the form claim:DRIVER stands for a resource claim.
func (k *Kubelet) Hold(container, resource string, ids ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.holdings[container] == nil {
		k.holdings[container] = map[string][]string{}
	}
	k.holdings[container][resource] = ids
}

// Release removes a container and its devices.
func (k *Kubelet) Release(container string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.holdings, container)
}

// List implements PodResources.
func (k *Kubelet) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := &podresources.ListPodResourcesResponse{}
	for _, name := range slices.Sorted(maps.Keys(k.holdings)) {
		part := strings.Split(name, "/")
		c := &podresources.ContainerResources{Name: part[2], Devices: devices(k.holdings[name])}
		for _, resource := range slices.Sorted(maps.Keys(k.holdings[name])) {
			if driver, ok := strings.CutPrefix(resource, "claim:"); ok {
				c.DynamicResources = append(c.DynamicResources, claim(driver, k.holdings[name][resource]))
			}
		}
		out.PodResources = append(out.PodResources, &podresources.PodResources{Namespace: part[0], Name: part[1], Containers: []*podresources.ContainerResources{c}})
	}
	return out, nil
}

// GetAllocatableResources implements PodResources.
func (k *Kubelet) GetAllocatableResources(context.Context, *podresources.AllocatableResourcesRequest) (*podresources.AllocatableResourcesResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return &podresources.AllocatableResourcesResponse{Devices: devices(k.allocatable)}, nil
}

func devices(ids map[string][]string) []*podresources.ContainerDevices {
	var out []*podresources.ContainerDevices
	for _, resource := range slices.Sorted(maps.Keys(ids)) {
		if !strings.HasPrefix(resource, "claim:") {
			out = append(out, &podresources.ContainerDevices{ResourceName: resource, DeviceIds: ids[resource]})
		}
	}
	return out
}

func claim(driver string, names []string) *podresources.DynamicResource {
	d := &podresources.DynamicResource{ClaimName: "claim", ClaimNamespace: "any"}
	for _, name := range names {
		d.ClaimResources = append(d.ClaimResources, &podresources.ClaimResource{DriverName: driver, PoolName: "node", DeviceName: name})
	}
	return d
}
