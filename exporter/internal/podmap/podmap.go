// Package podmap maps devices to the pods that hold them, with the kubelet's
// PodResources API.
package podmap

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Holder is a container that holds a device.
type Holder struct{ Namespace, Pod, Container string }

// Claim is the resource claim through which a container holds a device.
type Claim struct{ Name, Namespace, Driver, Pool, Device string }

// Meta is the metadata of a pod from the API server.
type Meta struct {
	UID    string
	Labels map[string]string
	// OwnerKind and OwnerName identify the topmost controller of the pod, such as a Job,
	// JobSet, RayJob or PyTorchJob. A pod without a controller is its own owner. Both are
	// empty until the owner has been looked up.
	OwnerKind, OwnerName string
}

// Map is the state of the kubelet at one time. Its keys are normalized device ids: a
// UUID, a device node such as nvidia0, or a MIG instance as GPU-<uuid>/<gi>/<ci>,
// nvidia0/gi3 or nvidia0/mig-<profile>-<start>-<size>. A Map never changes after Poll.
type Map struct {
	// Allocatable is the resource name of each device that the kubelet can allocate.
	Allocatable map[string]string
	// AllocatableErr is the error of the query for allocatable devices, which kubelets
	// before 1.23 do not support. Allocatable is empty then. Holders is still complete.
	AllocatableErr error
	// Holders are the containers that hold each device, in the order of the kubelet.
	Holders map[string][]Holder
	// Shared contains each device that is allocated as replicas, never as a whole.
	Shared map[string]bool
	// Replicas are the names of the replicas of a device that each container holds.
	Replicas map[string]map[Holder][]string
	// Claimed is the claim through which a container holds a device.
	Claimed map[string]map[Holder]Claim
	// UsesClaims is true if resource claims allocate the devices that no device plugin lists.
	UsesClaims bool
	// Unmapped counts the device ids that were ignored, by reason.
	Unmapped map[string]int
}

// Poller queries the kubelet and keeps the last Map.
type Poller struct {
	client    podresources.PodResourcesListerClient
	conn      *grpc.ClientConn
	resources func(name string) bool

	mu         sync.RWMutex
	usesClaims bool // claims are expected, or were seen in an earlier Poll
	last       Map
	err        error
}

// ErrUnknown is the error of Last before the first Poll.
var ErrUnknown = errors.New("the holders of devices are unknown")

// ErrDisabled is the ErrUnknown of a Poller without a socket.
var ErrDisabled = fmt.Errorf("the kubelet is not queried: %w", ErrUnknown)

// New returns a Poller for the kubelet's socket. The socket may appear later, since
// each Poll connects again. With an empty socket every Poll returns ErrDisabled.
//
// Resource names of NVIDIA's device plugin and google.com/tpu count as devices, and so do
// the names in extra. Other resources below nvidia.com do not: some are network cards.
func New(socket string, extra []string) (*Poller, error) {
	counted := map[string]bool{}
	for _, n := range extra {
		counted[strings.TrimSpace(n)] = true
	}
	p := &Poller{err: ErrUnknown, resources: func(name string) bool {
		return counted[name] || name == "nvidia.com/gpu" || name == "nvidia.com/gpu.shared" || strings.HasPrefix(name, "nvidia.com/mig-") || name == tpuResource
	}}
	if socket == "" {
		p.err = ErrDisabled
		return p, nil
	}
	// The kubelet may restart and create the socket again. Frequent attempts let a Poll
	// succeed right after that.
	reconnect := grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 400 * time.Millisecond}, MinConnectTimeout: time.Second}
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(reconnect),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20), grpc.WaitForReady(true)))
	if err != nil {
		return nil, fmt.Errorf("kubelet socket %s: %w", socket, err)
	}
	p.conn, p.client = conn, podresources.NewPodResourcesListerClient(conn)
	return p, nil
}

// Poll queries the kubelet. After an error the previous map is dropped, because its
// pods may have been deleted.
func (p *Poller) Poll(ctx context.Context) error {
	if p.client == nil {
		return ErrDisabled
	}
	m, err := p.query(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.usesClaims = p.usesClaims || m.UsesClaims
	m.UsesClaims = p.usesClaims
	p.last, p.err = m, err
	return err
}

// Limits of a query. Both are below the ten seconds after which a collection is stale.
const (
	limitDisconnected = time.Second     // while there is no connection to the kubelet
	limitConnected    = 5 * time.Second // while there is one
)

func (p *Poller) query(ctx context.Context) (Map, error) {
	limit := limitConnected
	if p.conn.GetState() != connectivity.Ready {
		limit = limitDisconnected
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	pods, err := p.client.List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return Map{}, fmt.Errorf("list pod resources of the kubelet: %w", err)
	}
	m := Map{Allocatable: map[string]string{}, Holders: map[string][]Holder{}, Shared: map[string]bool{}, Replicas: map[string]map[Holder][]string{}, Unmapped: map[string]int{}}
	allocatable, err := p.client.GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{})
	if err != nil {
		m.AllocatableErr = fmt.Errorf("get allocatable resources of the kubelet: %w", err)
	}
	for _, d := range allocatable.GetDevices() {
		p.forEachDevice(d, &m, func(id, _ string) { m.Allocatable[id] = d.ResourceName })
	}
	for _, pod := range pods.PodResources {
		for _, c := range pod.Containers {
			p.addContainer(&m, Holder{pod.Namespace, pod.Name, c.Name}, c)
		}
	}
	return m, nil
}

// addContainer records the devices of a container, from device plugins and from claims.
func (p *Poller) addContainer(m *Map, h Holder, c *podresources.ContainerResources) {
	for _, d := range c.Devices {
		p.forEachDevice(d, m, func(id, replica string) { m.hold(id, replica, h) })
	}
	for _, claim := range c.DynamicResources {
		for _, r := range claim.ClaimResources {
			m.addClaimed(r, func(id string) {
				m.hold(id, "", h)
				m.claim(id, h, Claim{claim.ClaimName, claim.ClaimNamespace, r.DriverName, r.PoolName, r.DeviceName})
			})
		}
	}
}

// hold records a holder of a device. A container that holds several replicas of a
// device is one holder.
func (m *Map) hold(id, replica string, h Holder) {
	if !slices.Contains(m.Holders[id], h) {
		m.Holders[id] = append(m.Holders[id], h)
	}
	if replica == "" {
		return
	}
	if m.Replicas[id] == nil {
		m.Replicas[id] = map[Holder][]string{}
	}
	m.Replicas[id][h] = append(m.Replicas[id][h], replica)
}

func (m *Map) claim(id string, h Holder, c Claim) {
	if m.Claimed == nil {
		m.Claimed = map[string]map[Holder]Claim{}
	}
	if m.Claimed[id] == nil {
		m.Claimed[id] = map[Holder]Claim{}
	}
	m.Claimed[id][h] = c
}

// forEachDevice calls visit for each device of a resource that counts. It records
// shared devices and ids of unknown format in m.
func (p *Poller) forEachDevice(d *podresources.ContainerDevices, m *Map, visit func(id, replica string)) {
	if !p.resources(d.ResourceName) {
		return
	}
	for _, raw := range d.DeviceIds {
		id, replica, ok := parseNVIDIA(raw)
		if d.ResourceName == tpuResource {
			id, ok = parseTPU(raw)
		}
		if !ok {
			m.Unmapped[UnknownIDFormat]++
			continue
		}
		if replica != "" || strings.HasSuffix(d.ResourceName, ".shared") {
			m.Shared[id] = true
		}
		visit(id, replica)
	}
}

// ExpectClaims declares that resource claims allocate devices, even before the first
// claim exists. The kubelet reports only claims in use, not the devices that claims
// could allocate.
func (p *Poller) ExpectClaims() { p.usesClaims = true }

// Last returns the map of the last Poll, or its error.
func (p *Poller) Last() (Map, error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.last, p.err
}

// Holds reports whether a container is known to hold the device.
func (p *Poller) Holds(uuid string) bool {
	m, err := p.Last()
	return err == nil && len(m.Holders[uuid]) > 0
}

// Close closes the connection to the kubelet.
func (p *Poller) Close() error {
	if p.conn == nil {
		return nil
	}
	return p.conn.Close()
}
