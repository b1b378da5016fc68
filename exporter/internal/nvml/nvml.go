// Package nvml reads NVIDIA devices through libnvidia-ml, which is loaded at run
// time: without it the program starts all the same, and says what is missing.
package nvml

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// Source of NVIDIA devices.
type Source struct {
	lib nvml.Interface
	log *slog.Logger
	now func() time.Time

	mu      sync.Mutex
	up      bool
	asked   []getter // what readings are to tell
	getters []getter // those of them that the loaded library has
	ofParts []getter // the same, of what instances are to tell
	units   map[string]*unit
	uuids   map[nvml.Device]string // of handles, which a lost device can't tell
	devices []device.Device
	count   int            // that the library told last
	silent  map[int]string // why those at an index do not tell what they are

	meeting  map[int]chan introduction // those at an index that were asked what they are
	courtesy time.Duration             // how long they may take: one that was idle wakes up first

	hearing sync.Mutex // of events; never taken before mu by whoever takes both
	events  nvml.EventSet
}

// New source over the library at path; the loader's own search for "".
func New(path string, log *slog.Logger) *Source {
	var options []nvml.LibraryOption
	if path != "" {
		options = append(options, nvml.WithLibraryPath(path))
	}
	return &Source{lib: nvml.New(options...), log: log, now: time.Now, units: map[string]*unit{}, uuids: map[nvml.Device]string{}, meeting: map[int]chan introduction{}, courtesy: 5 * time.Second, asked: slices.Clone(getters)}
}

// Devices loads the library if need be and lists its devices. A device that
// stopped answering is still listed, until another is in its place.
func (s *Source) Devices(context.Context) ([]device.Device, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	count, err := s.load()
	if err == nil && s.renumbered(count) {
		s.reset()
		count, err = s.load()
	}
	if err != nil {
		return nil, err
	}
	s.update(count)
	if len(s.devices) == 0 && len(s.meeting) > 1 {
		return nil, fmt.Errorf("none of %d devices says what it is; something holds the driver's lock", count)
	}
	return append([]device.Device(nil), s.devices...), nil
}

// load the library unless it is, and count the devices.
func (s *Source) load() (count int, err error) {
	if !s.up {
		if ret := s.lib.Init(); ret != nvml.SUCCESS {
			return 0, fmt.Errorf("load NVIDIA's driver library (libnvidia-ml.so.1): %s", message(ret))
		}
		s.up = true
		if err := s.look(); err != nil {
			s.reset()
			return 0, err
		}
		s.watchXIDs()
	}
	count, ret := s.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		s.reset()
		return 0, fmt.Errorf("count the devices: %s", message(ret))
	}
	return count, nil
}

func (s *Source) add(in introduction) error {
	d := in.device
	if in.err != nil {
		return in.err
	}
	d.ReportsXIDs = s.register(in.handle)
	s.devices = append(s.devices, d)
	s.units[d.UUID] = &unit{Device: in.handle, lib: s.lib, fields: fieldsOf(d.Driver), memoryMiB: d.MemoryMiB, cuts: map[cut]*gpm{}, placed: s.hasAll(placementSymbols)}
	s.uuids[in.handle] = d.UUID
	return nil
}

// introduction is what a device says of itself when it is met, or why it does not.
type introduction struct {
	device device.Device
	handle nvml.Device
	err    error
}

// introduce asks the device at an index what it is.
func (s *Source) introduce(index int) (in introduction) {
	var ret nvml.Return
	if in.handle, ret = s.lib.DeviceGetHandleByIndex(index); ret != nvml.SUCCESS {
		in.err = errors.New(message(ret))
		return in
	}
	if in.device, in.err = describe(in.handle, index); in.err != nil {
		return in
	}
	in.device.Links = s.links(in.handle)
	if s.has("nvmlSystemGetDriverVersion") {
		if version, ret := s.lib.SystemGetDriverVersion(); ret == nvml.SUCCESS {
			in.device.Driver = version
		}
	}
	in.device.Facts = s.facts(in.handle)
	return in
}

func describe(handle nvml.Device, index int) (device.Device, error) {
	d := device.Device{Index: index}
	var ret nvml.Return
	if d.UUID, ret = handle.GetUUID(); ret != nvml.SUCCESS {
		return d, fmt.Errorf("UUID: %s", message(ret))
	}
	if d.Model, ret = handle.GetName(); ret != nvml.SUCCESS {
		return d, fmt.Errorf("name: %s", message(ret))
	}
	minor, ret := handle.GetMinorNumber()
	if ret != nvml.SUCCESS {
		minor = index
	}
	d.Minor = fmt.Sprintf("nvidia%d", minor)
	if pci, ret := handle.GetPciInfo(); ret == nvml.SUCCESS {
		d.PCIBusID = busID(pci)
	}
	if memory, ret := handle.GetMemoryInfo(); ret == nvml.SUCCESS {
		d.MemoryMiB = int64(memory.Total >> 20)
	}
	return d, nil
}

// Read one device. What it doesn't support is absent from the reading.
func (s *Source) Read(ctx context.Context, d device.Device) (device.Reading, error) {
	s.mu.Lock()
	u, ok := s.units[d.UUID]
	getters := s.getters
	if d.Instance != nil {
		getters = s.ofParts
	}
	s.mu.Unlock()
	if !ok {
		return device.Reading{}, errGone
	}
	switch r, told, failure := u.tell(ctx, getters, s.now()); {
	case failure == nvml.ERROR_GPU_IS_LOST:
		s.succeeded(u, d)
		return device.Reading{}, device.ErrLost
	case failure == nvml.ERROR_UNINITIALIZED, failure == nvml.ERROR_DRIVER_NOT_LOADED:
		s.mu.Lock()
		if s.units[d.UUID] == u { // else it speaks of a session that is over
			s.reset()
		}
		s.mu.Unlock()
		return device.Reading{}, fmt.Errorf("%w: %s", errGone, message(failure))
	case told == 0 && failure != nvml.SUCCESS:
		s.succeeded(u, d)
		return device.Reading{}, fmt.Errorf("it answers no call: %s", message(failure))
	default:
		if d.Instance == nil {
			s.adopt(u, d, &r)
		}
		return r, nil
	}
}

// errGone is what Read answers between the driver's going and the next Devices.
var errGone = errors.New("the driver went away")

// needed are the calls without which there is nothing to tell.
var needed = []string{"nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetMinorNumber", "nvmlDeviceGetMemoryInfo"}

// look finds which calls the library has: calling one that it lacks would end the process.
func (s *Source) look() error {
	for _, symbol := range needed {
		if !s.has(symbol) {
			return fmt.Errorf("NVIDIA's driver library has no %s: the driver is too old, update it", symbol)
		}
	}
	s.getters, s.ofParts = s.those(s.asked), s.those(ofInstance)
	return nil
}

// those of the getters that the library has.
func (s *Source) those(asked []getter) (have []getter) {
	for _, g := range asked {
		if found := s.find(&g); found != nil {
			have = append(have, *found)
		} else {
			s.log.Info("this driver has no such call; its metrics are absent", "call", g.symbol)
		}
	}
	return have
}

// find the first of a getter and those instead of it that the library has.
func (s *Source) find(g *getter) *getter {
	for g != nil && !s.hasAll(append(slices.Clip(g.also), g.symbol)) {
		g = g.instead
	}
	return g
}

func (s *Source) hasAll(symbols []string) bool {
	return !slices.ContainsFunc(symbols, func(symbol string) bool { return !s.has(symbol) })
}

// Has tells whether the library, once it is loaded, has a call.
func (s *Source) Has(symbol string) bool { return s.has(symbol) }

func (s *Source) has(symbol string) bool { return s.lib.Extensions().LookupSymbol(symbol) == nil }

// reset forgets the library's state, so that the next Devices loads it anew.
func (s *Source) reset() {
	s.hearing.Lock() // an event set that is waited for must not be freed
	if s.events != nil {
		_ = s.events.Free() // of a driver that may be gone
		s.events = nil
	}
	s.hearing.Unlock()
	for _, u := range s.units {
		u.free()
	}
	if s.up {
		_ = s.lib.Shutdown()
	}
	s.meeting = map[int]chan introduction{} // what those say is of a session that is over
	s.up, s.units, s.uuids, s.devices, s.count = false, map[string]*unit{}, map[nvml.Device]string{}, nil, 0
}

// eventSymbols are all needed to hear of XIDs, besides the one to wait with.
var eventSymbols = []string{"nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlEventSetFree"}

// watchXIDs asks for critical events; a driver that has none simply has no XIDs.
func (s *Source) watchXIDs() {
	if !s.hasAll(eventSymbols) || !s.has("nvmlEventSetWait_v2") && !s.has("nvmlEventSetWait") {
		s.log.Info("this driver has no events; XIDs are absent")
		return
	}
	events, ret := s.lib.EventSetCreate()
	if ret != nvml.SUCCESS {
		s.log.Warn("no XID events from this driver", "err", message(ret))
		return
	}
	s.hearing.Lock()
	s.events = events
	s.hearing.Unlock()
}

func (s *Source) register(handle nvml.Device) bool {
	if s.events == nil {
		return false
	}
	ret := handle.RegisterEvents(nvml.EventTypeXidCriticalError, s.events)
	if ret != nvml.SUCCESS && ret != nvml.ERROR_NOT_SUPPORTED {
		s.log.Warn("no XID events from a device", "err", message(ret))
	}
	return ret == nvml.SUCCESS
}

// XIDs since the last call.
func (s *Source) XIDs() []device.XID {
	s.mu.Lock()
	uuids := maps.Clone(s.uuids)
	s.mu.Unlock()
	s.hearing.Lock()
	defer s.hearing.Unlock()
	if s.events == nil {
		return nil
	}
	var xids []device.XID
	for range maxXIDs {
		// A millisecond is the least that the library waits.
		event, ret := s.events.Wait(1)
		if ret != nvml.SUCCESS {
			return xids
		}
		if uuid, ok := uuids[event.Device]; ok {
			xids = append(xids, device.XID{UUID: uuid, Code: event.EventData})
		}
	}
	return xids
}

// maxXIDs is how many events one collection takes; a storm's others wait for the next.
const maxXIDs = 1000

// Close gives the library back.
func (s *Source) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reset()
	return nil
}

// message of a return code, also where the library that would word it is absent,
// and what to do about those that a user can mend.
func message(ret nvml.Return) string {
	switch ret {
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return "library not found; is the driver installed, and the library visible in this container?"
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return "Driver Not Loaded; is it installed, and /dev/nvidiactl visible in this container?"
	case nvml.ERROR_NO_PERMISSION:
		return "Insufficient Permissions; may this user and container open /dev/nvidiactl?"
	}
	return nvml.ErrorString(ret)
}
