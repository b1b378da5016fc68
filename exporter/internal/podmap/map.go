package podmap

import (
	"cmp"
	"slices"
	"strings"
	"time"
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
	// At is the time before the query. The Map may lack what happened after it.
	At time.Time
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
	// ReplicaCounts are the numbers of replicas of each device that has some. The provider is
	// the one that offers them.
	ReplicaCounts map[string]ReplicaCount
	// Mixed contains each device that a container holds as a whole or through a claim, or whose
	// replicas have several providers. If the device has replicas, what is free of it is unknown.
	Mixed map[string]bool
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
	// Unprepared contains the id of each claim for which the kubelet reports no device yet.
	Unprepared map[string]bool
	// UnknownFormat contains each id that matches no known format.
	UnknownFormat map[string]bool
}

func newMap() Map {
	return Map{Allocatable: map[string]string{}, Allocated: map[string]string{}, Holders: map[string][]Holder{}, Containers: map[[2]string][]string{}, Reserved: map[string][]Holder{}, Shared: map[string]bool{}, Mixed: map[string]bool{}, Replicas: map[string]map[Holder][]string{},
		ReplicaCounts: map[string]ReplicaCount{}, Claimed: map[string]map[Holder]Claim{}, Claims: map[string][]HeldClaim{}, Parts: map[string]Part{}, Unprepared: map[string]bool{}, UnknownFormat: map[string]bool{}, ClaimDrivers: map[string]bool{}}
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
	if id.replica == "" {
		m.Mixed[id.name] = true
	}
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

// countReplica counts a replica. The offered ones are counted first. A pod that has run since
// before another plugin took over the node still holds a replica of the old one.
func (m *Map) countReplica(id deviceID, allocatable, allocated int) {
	if id.replica == "" {
		return
	}
	n, exists := m.ReplicaCounts[id.name]
	if exists && n.Provider != id.provider {
		m.Mixed[id.name] = true
	} else {
		n.Provider = id.provider
	}
	m.ReplicaCounts[id.name] = ReplicaCount{n.Provider, n.Allocatable + allocatable, n.Allocated + allocated}
}

func (m *Map) claim(id string, h Holder, c Claim) {
	if m.Claimed[id] == nil {
		m.Claimed[id] = map[Holder]Claim{}
	}
	m.Claimed[id][h] = c
	m.Claims[id] = append(m.Claims[id], HeldClaim{h, c})
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
