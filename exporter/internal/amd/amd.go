// Package amd reads AMD GPUs from sysfs and hwmon, as the kernel's amdgpu driver provides
// them. It needs neither ROCm nor a device node.
package amd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// Options of a Source.
type Options struct {
	Node  string // name of the node, part of the UUID of a GPU that reports no id
	Sysfs string // where sysfs is mounted
	Log   *slog.Logger
}

// Source reads the GPUs of a node.
type Source struct {
	options Options
	sysfs   sysfs
	now     func() time.Time

	mu          sync.Mutex
	gpus        []*gpu // in the order of their discovery
	undescribed int
	loggedErr   string // of the topology, logged once
}

// gpu is a GPU that the source has seen.
type gpu struct {
	device.Device
	id         string          // that the GPU reports; empty if it has none
	card       string          // name in class/drm; empty while no driver is bound
	partitions []device.Device // empty if the GPU is not partitioned
	// partitionsUnknown is true if the driver failed to report the partition mode. The last
	// known partitions and names stay then.
	partitionsUnknown bool
}

// New returns a Source. It reads nothing before the first call of Devices.
func New(o Options) *Source {
	return &Source{options: o, sysfs: sysfs(o.Sysfs), now: time.Now}
}

// Devices lists the GPUs in the order of their discovery, and of their PCI addresses if
// discovered together. A removed GPU stays listed until another one takes its place.
func (s *Source) Devices(context.Context) ([]device.Device, error) {
	cards, err := s.sysfs.cards()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.update(cards)
	if len(s.gpus) == 0 {
		return nil, fmt.Errorf("no GPU with the amdgpu driver among the graphics devices of %s", s.options.Sysfs)
	}
	devices := make([]device.Device, len(s.gpus))
	for i, g := range s.gpus {
		devices[i] = g.Device
	}
	return devices, nil
}

// update applies the cards of a listing to the known GPUs. The card of a GPU changes if its
// driver is loaded again, and its partitions if an administrator changes the mode.
//
// A GPU is still the same if its driver was bound in the last listing and its id is the same,
// or cannot be read. Every other card is identified, because the GPU can have moved to another
// address, and another GPU can be in its place. The last step drops GPUs whose place another
// GPU has taken.
func (s *Source) update(cards []card) {
	s.undescribed = 0
	wasBound := map[string]bool{}
	for _, g := range s.gpus {
		wasBound[g.PCIBusID] = g.card != ""
		g.card = ""
	}
	var unknown []card
	for _, c := range cards {
		switch {
		case c.isPartition():
		case wasBound[c.device] && !s.isReplaced(c):
			s.at(c.device).card = c.name
		default:
			unknown = append(unknown, c)
		}
	}
	for _, c := range unknown {
		d, id, err := s.sysfs.identify(c, s.options.Node)
		if err != nil {
			s.undescribed++
			continue
		}
		s.assign(c, d, id)
	}
	s.gpus = slices.DeleteFunc(slices.Clone(s.gpus), func(g *gpu) bool { return s.at(g.PCIBusID) != g })
	s.updatePartitions(cards)
	s.updateLinks()
}

// isReplaced reports whether another GPU is at the address of a known one.
func (s *Source) isReplaced(c card) bool {
	id, err := s.sysfs.id(c)
	return err == nil && id != s.at(c.device).id
}

// assign assigns a card to the GPU that it is: to a known one without a card, which keeps its
// index, or to a new one. If another GPU in this listing reports the same id, the UUID
// consists of the node and the PCI address.
func (s *Source) assign(c card, d device.Device, id string) {
	if g := s.withUUID(d.UUID); g != nil && g.card != "" {
		d.UUID = addressUUID(s.options.Node, c.device)
	}
	g := s.withUUID(d.UUID)
	if g == nil {
		g = s.at(c.device) // another GPU was in this place
	}
	if g == nil {
		g = &gpu{Device: device.Device{Index: s.nextIndex()}}
		s.gpus = append(s.gpus, g)
	}
	d.Index = g.Index
	if d.UUID == g.UUID && d.PCIBusID == g.PCIBusID {
		d.Minor, d.KubeletID = g.Minor, g.KubeletID // of the partition mode
	} else {
		g.partitions = nil
	}
	g.Device, g.id, g.card = d, id, c.name
}

// at returns the GPU at a PCI address, or nil. A GPU with a card takes precedence over one that
// was there before.
func (s *Source) at(address string) (found *gpu) {
	for _, g := range s.gpus {
		if g.PCIBusID == address && (found == nil || found.card == "") {
			found = g
		}
	}
	return found
}

// withUUID returns the GPU with a UUID, or nil.
func (s *Source) withUUID(uuid string) *gpu {
	i := slices.IndexFunc(s.gpus, func(g *gpu) bool { return g.UUID == uuid })
	if i < 0 {
		return nil
	}
	return s.gpus[i]
}

// nextIndex returns the index of a new GPU. Indexes of dropped GPUs are not used again, except
// the last one.
func (s *Source) nextIndex() int {
	next := 0
	for _, g := range s.gpus {
		next = max(next, g.Index+1)
	}
	return next
}

// updatePartitions sets the partitions of each GPU, and the names by which the kubelet
// refers to the GPU. The first partition has the PCI device of the GPU, so a partitioned GPU
// has no name of its own.
func (s *Source) updatePartitions(cards []card) {
	var topology map[string]node
	for _, g := range s.gpus {
		i := slices.IndexFunc(cards, func(c card) bool { return g.card != "" && c.name == g.card })
		if i < 0 {
			continue // the last known names stay
		}
		profile, err := s.sysfs.profile(g.card)
		if g.partitionsUnknown = err != nil; err != nil {
			continue
		}
		if profile == "" {
			g.partitions, g.Minor, g.KubeletID = nil, cards[i].render, g.PCIBusID
			continue
		}
		if topology == nil {
			topology = s.readTopology()
		}
		g.partitions, g.Minor, g.KubeletID = g.partition(profile, cards, topology), g.card, ""
	}
}

// readTopology returns the topology of the kernel's compute driver, by render node. It logs
// an error when it first occurs, and returns what is readable.
func (s *Source) readTopology() map[string]node {
	topology, err := s.sysfs.topology()
	switch {
	case err == nil:
		s.loggedErr = ""
	case err.Error() != s.loggedErr:
		s.loggedErr = err.Error()
		s.options.Log.Warn("cannot read which GPU a partition belongs to; its allocation counts as unknown", "err", err)
	}
	return topology
}

// partition returns the partitions of a GPU in the order of their render nodes.
func (g *gpu) partition(profile string, cards []card, topology map[string]node) []device.Device {
	var partitions []device.Device
	for _, c := range cards {
		n, known := topology[c.render]
		if c.device != g.PCIBusID && (!known || n.address != g.PCIBusID) {
			continue
		}
		i := len(partitions)
		d := g.Device
		d.UUID, d.Minor, d.KubeletID = g.UUID+"-xcp"+strconv.Itoa(i), c.render, c.device
		d.MemoryMiB, d.Links = n.memory>>20, nil
		d.Instance = &device.Instance{Parent: g.UUID, Profile: profile, GI: i}
		partitions = append(partitions, d)
	}
	for i := range partitions {
		if partitions[i].MemoryMiB == 0 { // unknown
			partitions[i].MemoryMiB = g.MemoryMiB / int64(len(partitions))
		}
	}
	return partitions
}

// updateLinks sets the xGMI links of each GPU. The GPUs of a hive are all connected.
func (s *Source) updateLinks() {
	members := map[string][]string{}
	hives := make([]string, len(s.gpus))
	for i, g := range s.gpus {
		if hives[i] = s.sysfs.hive(g.card); hives[i] != "" {
			members[hives[i]] = append(members[hives[i]], g.PCIBusID)
		}
	}
	for i, g := range s.gpus {
		g.Links = nil
		for _, address := range members[hives[i]] {
			if address != g.PCIBusID {
				g.Links = append(g.Links, address)
			}
		}
	}
}

// Undescribed returns the number of GPUs that have a driver but cannot be described.
func (s *Source) Undescribed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.undescribed
}

// errNoDriver is the error of Read for a GPU that the amdgpu driver does not serve.
var errNoDriver = errors.New("the amdgpu driver is not bound to the device")

// Read reads the sensors of a GPU. A partition has no sensors of its own. Read returns
// device.ErrLost if the GPU is no longer on the PCI bus, and an error if every sensor fails,
// for example during a reset.
func (s *Source) Read(ctx context.Context, d device.Device) (device.Reading, error) {
	g, ok := s.find(d)
	if !ok {
		return device.Reading{}, fmt.Errorf("device %s is not listed", d.UUID)
	}
	if !s.sysfs.exists("bus/pci/devices/" + g.PCIBusID) {
		return device.Reading{}, device.ErrLost
	}
	if g.card == "" {
		return device.Reading{}, errNoDriver
	}
	if d.Instance != nil {
		return device.Reading{Time: s.now()}, nil
	}
	r, err := s.sysfs.readSensors(ctx, g.card)
	r.Time = s.now()
	r.MIG, r.Instances, r.PartitionsUnknown = len(g.partitions) > 0, g.partitions, g.partitionsUnknown
	return r, err
}

// find returns the GPU of a device or partition.
func (s *Source) find(d device.Device) (gpu, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.gpus {
		if d.UUID == g.UUID || d.Instance != nil && d.Instance.Parent == g.UUID {
			return *g, true
		}
	}
	return gpu{}, false
}

// XIDs returns nil. Only NVIDIA devices have XIDs.
func (s *Source) XIDs() []device.XID { return nil }

// Close does nothing.
func (s *Source) Close() error { return nil }
