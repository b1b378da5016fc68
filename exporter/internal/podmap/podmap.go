// Package podmap asks the kubelet's PodResources API which pod holds which device.
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

// Claim through which a container holds a device.
type Claim struct{ Name, Namespace, Driver, Pool, Device string }

// Map is what the kubelet said at one time. Keys are device ids in their plain
// form: a UUID, the name of a device node such as nvidia0, or of a MIG instance
// GPU-<uuid>/<gi>/<ci>, nvidia0/gi3 or nvidia0/mig-<profile>-<start>-<size>.
type Map struct {
	// Resource by device that the kubelet may hand out.
	Allocatable map[string]string
	// Holders by device, in the kubelet's order.
	Holders map[string][]Holder
	// Shared devices and instances are handed out as replicas: never whole.
	Shared map[string]bool
	// Replicas of a device that a holder has, by their names.
	Replicas map[string]map[Holder][]string
	// Claimed devices by the holder of the claim.
	Claimed map[string]map[Holder]Claim
	// Claims are how the devices that no device plugin has are handed out.
	Claims bool
	// Uncounted where the kubelet does not tell what it may hand out; Allocatable is
	// empty then, and who holds what is known all the same.
	Uncounted bool
	// Unmapped device ids of a form that is not known, by how often they came.
	Unmapped map[string]int
}

// Poller keeps the last Map.
type Poller struct {
	client    podresources.PodResourcesListerClient
	conn      *grpc.ClientConn
	resources func(name string) bool

	mu     sync.RWMutex
	claims bool // are used here, or were once
	last   Map
	err    error
}

// ErrUnknown says that the kubelet has not been asked, or did not answer.
var ErrUnknown = errors.New("who holds which device is not known")

// ErrNotAsked is the ErrUnknown of a Poller without a socket.
var ErrNotAsked = fmt.Errorf("the kubelet is not asked: %w", ErrUnknown)

// New reads from the kubelet's socket, which need not be there yet: each Poll
// tries anew. An empty socket is a Poller that knows nothing. names are resource
// names that count besides those of NVIDIA's device plugin and google.com/tpu. Others
// below nvidia.com are no GPUs: network cards, for one.
func New(socket string, names []string) (*Poller, error) {
	extra := map[string]bool{}
	for _, n := range names {
		extra[strings.TrimSpace(n)] = true
	}
	p := &Poller{err: ErrUnknown, resources: func(name string) bool {
		return extra[name] || name == "nvidia.com/gpu" || name == "nvidia.com/gpu.shared" || strings.HasPrefix(name, "nvidia.com/mig-") || name == tpuResource
	}}
	if socket == "" {
		p.err = ErrNotAsked
		return p, nil
	}
	// The kubelet may restart behind the same path: a Poll waits for one attempt more.
	often := grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 400 * time.Millisecond}, MinConnectTimeout: time.Second}
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(often),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20), grpc.WaitForReady(true)))
	if err != nil {
		return nil, fmt.Errorf("kubelet socket %s: %w", socket, err)
	}
	p.conn, p.client = conn, podresources.NewPodResourcesListerClient(conn)
	return p, nil
}

// Poll asks the kubelet. After an error the map is unknown: an old one would
// name pods that are gone.
func (p *Poller) Poll(ctx context.Context) error {
	if p.client == nil {
		return ErrNotAsked
	}
	m, err := p.ask(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claims = p.claims || m.Claims
	m.Claims = p.claims
	p.last, p.err = m, err
	return err
}

// A collection waits so long for a kubelet that is not there, and for one that is
// and slow: less than the ten seconds after which a snapshot is old.
const absent, slow = time.Second, 5 * time.Second

func (p *Poller) ask(ctx context.Context) (Map, error) {
	limit := slow
	if p.conn.GetState() != connectivity.Ready {
		limit = absent
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	pods, err := p.client.List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return Map{}, fmt.Errorf("ask the kubelet who holds devices: %w", err)
	}
	m := Map{Allocatable: map[string]string{}, Holders: map[string][]Holder{}, Shared: map[string]bool{}, Replicas: map[string]map[Holder][]string{}, Unmapped: map[string]int{}}
	// Kubelets before 1.23 do not tell this, and with many devices it takes longer.
	allocatable, err := p.client.GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{})
	m.Uncounted = err != nil
	for _, d := range allocatable.GetDevices() {
		p.each(d, &m, func(id, _ string) { m.Allocatable[id] = d.ResourceName })
	}
	for _, pod := range pods.PodResources {
		for _, c := range pod.Containers {
			p.hold(&m, Holder{pod.Namespace, pod.Name, c.Name}, c)
		}
	}
	return m, nil
}

// hold notes what a container holds, by device plugin or by claim. A container
// that holds several replicas of a device holds it once.
func (p *Poller) hold(m *Map, h Holder, c *podresources.ContainerResources) {
	use := func(id, replica string) {
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
	for _, d := range c.Devices {
		p.each(d, m, use)
	}
	for _, claim := range c.DynamicResources {
		for _, r := range claim.ClaimResources {
			claimed(r, m, func(id, replica string) {
				use(id, replica)
				m.claim(id, h, Claim{claim.ClaimName, claim.ClaimNamespace, r.DriverName, r.PoolName, r.DeviceName})
			})
		}
	}
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

func (p *Poller) each(d *podresources.ContainerDevices, m *Map, use func(id, replica string)) {
	if !p.resources(d.ResourceName) {
		return
	}
	for _, raw := range d.DeviceIds {
		id, replica, ok := plain(raw)
		if d.ResourceName == tpuResource {
			id, ok = chip(raw)
		}
		if !ok {
			m.Unmapped[unknownForm]++
			continue
		}
		if replica != "" || strings.HasSuffix(d.ResourceName, ".shared") {
			m.Shared[id] = true
		}
		use(id, replica)
	}
}

// ExpectClaims says that devices are handed out by claims, before the first claim is
// seen: the kubelet does not tell which ones there could be.
func (p *Poller) ExpectClaims() { p.claims = true }

// Last map; an error when the kubelet did not answer the last Poll.
func (p *Poller) Last() (Map, error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.last, p.err
}

// Holds tells whether a container holds the device, as far as is known.
func (p *Poller) Holds(uuid string) bool {
	m, err := p.Last()
	return err == nil && len(m.Holders[uuid]) > 0
}

// Close ends the connection.
func (p *Poller) Close() error {
	if p.conn == nil {
		return nil
	}
	return p.conn.Close()
}
