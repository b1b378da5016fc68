// Package podmap maps devices to the pods that hold them, with the kubelet's
// PodResources API.
package podmap

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
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

// Poller queries the kubelet and keeps the last Map.
type Poller struct {
	client    podresources.PodResourcesListerClient
	conn      *grpc.ClientConn
	resources func(name string) bool
	now       func() time.Time

	// self is the namespace and name of a pod that the kubelet runs. Both are empty if none
	// is known.
	self [2]string

	unprepared map[string]time.Time // ids of claims without devices, and when a Poll first saw them

	mu           sync.RWMutex
	claimDrivers []string // whose claims are expected, or were seen in an earlier Poll
	// pluginDevices and claimDevices are the devices of earlier Polls.
	pluginDevices, claimDevices map[string]bool
	last                        Map
	err                         error
}

// ErrUnknown is the error of Last before the first Poll.
var ErrUnknown = errors.New("the holders of devices are unknown")

// ErrDisabled is the ErrUnknown of a Poller without a socket.
var ErrDisabled = fmt.Errorf("the kubelet is not queried: %w", ErrUnknown)

// New returns a Poller for the kubelet's socket. The socket may appear later, since
// each Poll connects again. With an empty socket every Poll returns ErrDisabled.
//
// Resource names of NVIDIA's and AMD's device plugins and google.com/tpu count as devices,
// and so do the names in extra.
func New(socket string, extra []string) (*Poller, error) {
	counted := map[string]bool{}
	for _, n := range extra {
		counted[strings.TrimSpace(n)] = true
	}
	p := &Poller{err: ErrUnknown, now: time.Now, resources: func(name string) bool {
		return counted[name] || isNVIDIAResource(name) || amdResource.MatchString(name) || name == tpuResource
	}}
	if socket == "" {
		p.err = ErrDisabled
		return p, nil
	}
	// The kubelet may restart and create the socket again. Frequent attempts let a Poll
	// succeed right after that.
	reconnect := grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 400 * time.Millisecond}, MinConnectTimeout: time.Second}
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	// A target unix://PATH would have to be absolute and escaped.
	conn, err := grpc.NewClient("passthrough:///localhost", grpc.WithContextDialer(dial), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(reconnect),
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
	if err == nil {
		for _, driver := range p.claimDrivers {
			m.ClaimDrivers[driver] = true
		}
		p.claimDrivers = slices.Collect(maps.Keys(m.ClaimDrivers))
		p.pluginDevices, p.claimDevices = withKeys(p.pluginDevices, m.Allocatable), withKeys(p.claimDevices, m.Claimed)
		m.PluginDevices, m.ClaimDevices = p.pluginDevices, p.claimDevices
	}
	p.last, p.err = m, err
	return err
}

// maxKnownDevices is the number of devices of earlier Polls up to which they are kept. Each
// reconfiguration of MIG makes instances with new names, and some tools reconfigure for each job.
const maxKnownDevices = 10_000

// withKeys returns a set with the elements of known and the keys of more, or with the keys of more
// alone if there are too many. It does not change known, which is part of an earlier Map.
func withKeys[V any](known map[string]bool, more map[string]V) map[string]bool {
	all := maps.Clone(known)
	if all == nil || len(all) > maxKnownDevices {
		all = map[string]bool{}
	}
	for name := range more {
		all[name] = true
	}
	return all
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
	at := p.now()
	pods, err := p.client.List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return Map{}, fmt.Errorf("list pod resources of the kubelet: %w", err)
	}
	if !p.listsSelf(pods) {
		return Map{}, fmt.Errorf("the kubelet has not loaded its pods yet: it does not list the pod of the exporter, %s/%s", p.self[0], p.self[1])
	}
	m := newMap()
	m.At = at
	allocatable, err := p.client.GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{})
	if err != nil {
		m.AllocatableErr = fmt.Errorf("get allocatable resources of the kubelet: %w", err)
	}
	unprepared := map[string]time.Time{}
	offered, held := replicaSet{}, replicaSet{}
	for _, d := range allocatable.GetDevices() {
		p.forEachDevice(d, &m, func(id deviceID) {
			m.Allocatable[id.name] = d.ResourceName
			if offered.add(id) {
				m.countReplica(id, 1, 0)
			}
		})
	}
	for _, pod := range pods.PodResources {
		m.Containers[[2]string{pod.Namespace, pod.Name}] = nil
		for _, c := range pod.Containers {
			key := [2]string{pod.Namespace, pod.Name}
			m.Containers[key] = append(m.Containers[key], c.Name)
			h := Holder{pod.Namespace, pod.Name, c.Name}
			p.addContainer(&m, held, h, c)
			p.addUnprepared(&m, unprepared, h, c)
		}
	}
	p.unprepared = unprepared
	return m, nil
}

// listsSelf reports whether the kubelet lists the pod of ExpectPod. List contains every pod
// that the kubelet knows, also those without devices.
func (p *Poller) listsSelf(pods *podresources.ListPodResourcesResponse) bool {
	return p.self == [2]string{} || slices.ContainsFunc(pods.PodResources, func(pod *podresources.PodResources) bool {
		return p.self == [2]string{pod.Namespace, pod.Name}
	})
}

// replicaSet are replicas that were counted. While a pod replaces another one, the kubelet
// can report a replica for both.
type replicaSet map[[2]string]bool

// add adds a replica. It returns false if the replica was counted before.
func (s replicaSet) add(id deviceID) bool {
	key := [2]string{id.name, id.provider + " " + id.replica}
	isNew := !s[key]
	s[key] = true
	return isNew
}

// addContainer records the devices of a container, from device plugins and from claims.
func (p *Poller) addContainer(m *Map, held replicaSet, h Holder, c *podresources.ContainerResources) {
	for _, d := range c.Devices {
		p.forEachDevice(d, m, func(id deviceID) {
			if held.add(id) {
				m.countReplica(id, 0, 1)
			}
			m.addHolder(id, d.ResourceName, h)
		})
	}
	for _, claim := range c.DynamicResources {
		for _, r := range claim.ClaimResources {
			id, ok := m.parseClaim(r)
			if !ok {
				continue
			}
			m.record(id)
			m.addHolder(id, "", h)
			m.claim(id.name, h, Claim{claim.ClaimName, claim.ClaimNamespace, r.DriverName, r.PoolName, r.DeviceName, r.GetShareId()})
		}
	}
}

// unpreparedLimit is the time for which a claim without devices counts as a device.
const unpreparedLimit = 5 * time.Minute

// addUnprepared records the claims of a container for which the kubelet reports no device, and adds
// them to since. While the driver prepares a claim, or fails to, the kubelet reports the claim's name
// alone: its devices are allocated, and nothing says which ones. Drivers of network cards report no
// devices of a prepared claim either. Therefore the claim counts for a limited time only.
func (p *Poller) addUnprepared(m *Map, since map[string]time.Time, h Holder, c *podresources.ContainerResources) {
	for _, claim := range c.DynamicResources {
		if len(claim.ClaimResources) > 0 {
			continue
		}
		id, now := deviceID{name: "claim " + claim.ClaimNamespace + "/" + claim.ClaimName}, p.now()
		since[id.name] = now
		if first, isKnown := p.unprepared[id.name]; isKnown {
			since[id.name] = first
		}
		if now.Sub(since[id.name]) < unpreparedLimit {
			m.Unprepared[id.name] = true
			m.addHolder(id, "", h)
		}
	}
}

// forEachDevice calls visit for each device of a resource that counts.
func (p *Poller) forEachDevice(d *podresources.ContainerDevices, m *Map, visit func(id deviceID)) {
	if !p.resources(d.ResourceName) {
		return
	}
	for _, raw := range d.DeviceIds {
		id := m.parsePlugin(d.ResourceName, raw)
		m.record(id)
		visit(id)
	}
}

// ExpectClaims declares that resource claims allocate devices, even before the first
// claim exists. The kubelet reports only claims in use, not the devices that claims
// could allocate.
func (p *Poller) ExpectClaims() { p.claimDrivers = []string{NVIDIADriver, AMDDriver} }

// ExpectPod declares that the kubelet runs a pod, such as the exporter's own. A Poll fails
// while the kubelet does not list it. A kubelet that restarts serves PodResources before it has
// the node's pods from the API server: it lists none, or static pods only, and the devices of
// all claims would look free. Without namespace or name, ExpectPod has no effect.
func (p *Poller) ExpectPod(namespace, name string) {
	if namespace != "" && name != "" {
		p.self = [2]string{namespace, name}
	}
}

// Last returns the map of the last Poll, or its error.
func (p *Poller) Last() (Map, error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.last, p.err
}

// IsAllocated reports whether the device with this name is known to be allocated.
func (p *Poller) IsAllocated(name string) bool {
	m, err := p.Last()
	return err == nil && m.IsAllocated([]string{name})
}

// Close closes the connection to the kubelet.
func (p *Poller) Close() error {
	if p.conn == nil {
		return nil
	}
	return p.conn.Close()
}
