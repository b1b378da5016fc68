// Package nvml reads NVIDIA devices through libnvidia-ml, which is loaded at run
// time: without it the program starts all the same, and says what is missing.
package nvml

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// Source of NVIDIA devices.
type Source struct {
	lib nvml.Interface
	log *slog.Logger

	mu      sync.Mutex
	up      bool
	handles map[string]nvml.Device
	devices []device.Device
	events  nvml.EventSet
}

// New source over the library at path; the loader's own search for "".
func New(path string, log *slog.Logger) *Source {
	var options []nvml.LibraryOption
	if path != "" {
		options = append(options, nvml.WithLibraryPath(path))
	}
	return &Source{lib: nvml.New(options...), log: log, handles: map[string]nvml.Device{}}
}

// Devices loads the library if need be and lists its devices. A device that
// stopped answering is still listed.
func (s *Source) Devices(context.Context) ([]device.Device, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.up {
		if ret := s.lib.Init(); ret != nvml.SUCCESS {
			return nil, fmt.Errorf("load NVIDIA's driver library (libnvidia-ml.so.1): %s; is the driver installed, and the library visible in this container?", message(ret))
		}
		s.up = true
		s.watchXIDs()
	}
	count, ret := s.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		s.reset()
		return nil, fmt.Errorf("count the devices: %s", message(ret))
	}
	for i := range count {
		handle, ret := s.lib.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			// Known ones stay listed, and reading them tells that they are lost.
			continue
		}
		d, err := describe(handle, i)
		if err != nil {
			s.log.Warn("a device does not tell what it is", "index", i, "err", err)
			continue
		}
		if _, known := s.handles[d.UUID]; !known {
			s.devices = append(s.devices, d)
			s.register(handle)
		}
		s.handles[d.UUID] = handle
	}
	return append([]device.Device(nil), s.devices...), nil
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
		d.PCIBusID = fmt.Sprintf("%08X:%02X:%02X.0", pci.Domain, pci.Bus, pci.Device)
	}
	if memory, ret := handle.GetMemoryInfo(); ret == nvml.SUCCESS {
		d.MemoryMiB = int64(memory.Total >> 20)
	}
	return d, nil
}

// Read one device. What it doesn't support is absent from the reading.
func (s *Source) Read(_ context.Context, d device.Device) (device.Reading, error) {
	s.mu.Lock()
	handle, ok := s.handles[d.UUID]
	s.mu.Unlock()
	if !ok {
		return device.Reading{}, device.ErrLost
	}
	r := device.Reading{Time: time.Now()}
	for _, get := range getters {
		switch ret := get(handle, &r); {
		case ret == nvml.ERROR_GPU_IS_LOST:
			return device.Reading{}, device.ErrLost
		case ret == nvml.ERROR_UNINITIALIZED || ret == nvml.ERROR_DRIVER_NOT_LOADED:
			s.mu.Lock()
			s.reset()
			s.mu.Unlock()
			return device.Reading{}, errors.New("the driver went away: " + message(ret))
		}
	}
	return r, nil
}

// reset forgets the library's state, so that the next Devices loads it anew.
func (s *Source) reset() {
	if s.up {
		_ = s.lib.Shutdown()
	}
	s.up, s.handles, s.devices, s.events = false, map[string]nvml.Device{}, nil, nil
}

// watchXIDs asks for critical events; a driver that has none simply has no XIDs.
func (s *Source) watchXIDs() {
	events, ret := s.lib.EventSetCreate()
	if ret != nvml.SUCCESS {
		s.log.Warn("no XID events from this driver", "err", message(ret))
		return
	}
	s.events = events
}

func (s *Source) register(handle nvml.Device) {
	if s.events == nil {
		return
	}
	if ret := handle.RegisterEvents(nvml.EventTypeXidCriticalError, s.events); ret != nvml.SUCCESS && ret != nvml.ERROR_NOT_SUPPORTED {
		s.log.Warn("no XID events from a device", "err", message(ret))
	}
}

// XIDs since the last call.
func (s *Source) XIDs() []device.XID {
	s.mu.Lock()
	events := s.events
	s.mu.Unlock()
	if events == nil {
		return nil
	}
	var xids []device.XID
	for {
		// A millisecond is the least that the library waits.
		event, ret := events.Wait(1)
		if ret != nvml.SUCCESS {
			return xids
		}
		if uuid, ret := event.Device.GetUUID(); ret == nvml.SUCCESS {
			xids = append(xids, device.XID{UUID: uuid, Code: event.EventData})
		}
	}
}

// Close gives the library back.
func (s *Source) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reset()
	return nil
}

// message of a return code, also where the library that would word it is absent.
func message(ret nvml.Return) string {
	if ret == nvml.ERROR_LIBRARY_NOT_FOUND {
		return "library not found"
	}
	return nvml.ErrorString(ret)
}
