// Package podmap maps devices to the pods that hold them, with the kubelet's
// PodResources API.
package podmap

import (
	"cmp"
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

// Holder is a container that holds a device.
type Holder struct{ Namespace, Pod, Container string }

// Compare orders holders by namespace, pod and container.
func (h Holder) Compare(other Holder) int {
	return cmp.Or(strings.Compare(h.Namespace, other.Namespace), strings.Compare(h.Pod, other.Pod), strings.Compare(h.Container, other.Container))
}

// Claim is the resource claim through which a container holds a device. ShareID is set if several
// claims can share the device.
type Claim struct{ Name, Namespace, Driver, Pool, Device, ShareID string }

// HeldClaim is a claim and a container that holds the device through it.
type HeldClaim struct {
	Holder
	Claim Claim
}

// ReplicaCount is the number of replicas of a device, and how many of them are allocated.
type ReplicaCount struct {
	Provider               string // nvidia, gke or hami
	Allocatable, Allocated int
}

// Meta is the metadata of a pod from the API server.
type Meta struct {
	UID    string
	Labels map[string]string
	// OwnerKind and OwnerName identify the topmost controller of the pod, such as a Job,
	// JobSet, RayJob or PyTorchJob. A pod without a controller is its own owner. Both are
	// empty until the owner has been looked up.
	OwnerKind, OwnerName string
	// HAMi are the parts of devices that HAMi assigned to the containers of the pod. Nil if
	// the pod has none.
	HAMi []Assignment
}

// Map is the state of the kubelet at one time. Its keys are names of devices as in
// device.Device.Names, and ids of unknown format. A Map never changes after Poll.
type Map struct {
	// Allocatable is the resource name of each device that the kubelet can allocate.
	Allocatable map[string]string
	// AllocatableErr is the error of the query for allocatable devices, which kubelets
	// before 1.23 do not support. Allocatable is empty then. Holders is still complete.
	AllocatableErr error
	// Allocated is the resource of each device that is allocated. It is empty for a
	// device that a resource claim allocated.
	Allocated map[string]string
	// Holders are the containers that hold each device, in the order of the kubelet. A
	// device that a scheduler reserved for pods that share it is allocated, but it has no
	// holders.
	Holders map[string][]Holder
	// Containers are the containers of each pod that the kubelet lists, by namespace and name.
	Containers map[[2]string][]string
	// Reserved are the containers that reserve a device for other pods.
	Reserved map[string][]Holder
	// Fractions are the requests of the pods that share a reserved device, as far as ApplyKAI knows
	// them.
	Fractions map[string]map[Holder]Fraction
	// Shared contains each device that is not allocated as a whole.
	Shared map[string]bool
	// Replicas are the names of the replicas of a device that each container holds.
	Replicas map[string]map[Holder][]string
	// ReplicaCounts are the numbers of replicas of each device that has some. A device
	// plugin offers all replicas of a device, so a device has a single provider.
	ReplicaCounts map[string]ReplicaCount
	// Assigned are the devices that HAMi assigned to containers, as far as ApplyHAMi accepts
	// them.
	Assigned map[Holder]Accepted
	// Claimed is the claim through which a container holds a device: the last one, if it has
	// several claims on the device.
	Claimed map[string]map[Holder]Claim
	// Claims are all claims on a device, in the order of the kubelet.
	Claims map[string][]HeldClaim
	// ClaimDrivers are the DRA drivers whose claims exist, existed in an earlier Poll, or are
	// expected. They allocate the devices that no device plugin lists.
	ClaimDrivers map[string]bool
	// PluginDevices are the devices that a device plugin offers or offered in an earlier Poll.
	// A plugin withdraws an unhealthy device, which is then not in Allocatable.
	PluginDevices map[string]bool
	// ClaimDevices are the devices that a claim allocates or allocated in an earlier Poll.
	ClaimDevices map[string]bool
	// Parts is the whole device of each device that is a part of another one, if the id
	// contains it.
	Parts map[string]Part
	// UnknownFormat contains each id that matches no known format.
	UnknownFormat map[string]bool
}

func newMap() Map {
	return Map{Allocatable: map[string]string{}, Allocated: map[string]string{}, Holders: map[string][]Holder{}, Containers: map[[2]string][]string{}, Reserved: map[string][]Holder{}, Shared: map[string]bool{}, Replicas: map[string]map[Holder][]string{},
		ReplicaCounts: map[string]ReplicaCount{}, Claimed: map[string]map[Holder]Claim{}, Claims: map[string][]HeldClaim{}, Parts: map[string]Part{}, UnknownFormat: map[string]bool{}, ClaimDrivers: map[string]bool{}}
}

// IsWithdrawn reports whether a device plugin offered the device with these names before, and
// no claim ever allocated it. Such a device is not one that claims could allocate.
func (m Map) IsWithdrawn(names []string) bool {
	isIn := func(devices map[string]bool) bool {
		return slices.ContainsFunc(names, func(name string) bool { return devices[name] })
	}
	return isIn(m.PluginDevices) && !isIn(m.ClaimDevices)
}

// IsAllocated reports whether a device is allocated under any of its names.
func (m Map) IsAllocated(names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { _, ok := m.Allocated[name]; return ok })
}

// Poller queries the kubelet and keeps the last Map.
type Poller struct {
	client    podresources.PodResourcesListerClient
	conn      *grpc.ClientConn
	resources func(name string) bool

	// self is the namespace and name of a pod that the kubelet runs. Both are empty if none
	// is known.
	self [2]string

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
	p := &Poller{err: ErrUnknown, resources: func(name string) bool {
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

// withKeys returns a set with the elements of known and the keys of more. It does not change
// known, which is part of an earlier Map.
func withKeys[V any](known map[string]bool, more map[string]V) map[string]bool {
	all := maps.Clone(known)
	if all == nil {
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
	pods, err := p.client.List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return Map{}, fmt.Errorf("list pod resources of the kubelet: %w", err)
	}
	if !p.listsSelf(pods) {
		return Map{}, fmt.Errorf("the kubelet has not loaded its pods yet: it does not list the pod of the exporter, %s/%s", p.self[0], p.self[1])
	}
	m := newMap()
	allocatable, err := p.client.GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{})
	if err != nil {
		m.AllocatableErr = fmt.Errorf("get allocatable resources of the kubelet: %w", err)
	}
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
			p.addContainer(&m, held, Holder{pod.Namespace, pod.Name, c.Name}, c)
		}
	}
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
	key := [2]string{id.name, id.replica}
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

// reservationNamespaces are the namespaces of pods by which KAI Scheduler reserves a
// device for other pods. The pods that use the device request no device from the kubelet.
// The second name is that of earlier versions.
var reservationNamespaces = []string{"kai-resource-reservation", "runai-reservation"}

func isReservation(namespace string) bool { return slices.Contains(reservationNamespaces, namespace) }

// addHolder records that a container holds a device. A container that holds several
// replicas of a device is one holder. A reservation allocates the device for other pods,
// and the kubelet does not know how many.
func (m *Map) addHolder(id deviceID, resource string, h Holder) {
	m.Allocated[id.name] = resource
	if isReservation(h.Namespace) {
		m.Shared[id.name] = true
		m.Reserved[id.name] = append(m.Reserved[id.name], h)
		return
	}
	if !slices.Contains(m.Holders[id.name], h) {
		m.Holders[id.name] = append(m.Holders[id.name], h)
	}
	if id.replica == "" {
		return
	}
	if m.Replicas[id.name] == nil {
		m.Replicas[id.name] = map[Holder][]string{}
	}
	if !slices.Contains(m.Replicas[id.name][h], id.replica) {
		m.Replicas[id.name][h] = append(m.Replicas[id.name][h], id.replica)
	}
}

func (m *Map) countReplica(id deviceID, allocatable, allocated int) {
	if id.replica == "" {
		return
	}
	n := m.ReplicaCounts[id.name]
	m.ReplicaCounts[id.name] = ReplicaCount{id.provider, n.Allocatable + allocatable, n.Allocated + allocated}
}

func (m *Map) claim(id string, h Holder, c Claim) {
	if m.Claimed[id] == nil {
		m.Claimed[id] = map[Holder]Claim{}
	}
	m.Claimed[id][h] = c
	m.Claims[id] = append(m.Claims[id], HeldClaim{h, c})
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

// record records the properties of a device that its id contains.
func (m *Map) record(id deviceID) {
	if id.shared {
		m.Shared[id.name] = true
	}
	if id.part != (Part{}) {
		m.Parts[id.name] = id.part
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
