package nvml

import (
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// maxXIDs limits the events read per collection. Each device has an equal part of it, so that an
// event storm on one device does not delay the events of the others. The next collection reads the
// rest of the storm.
const maxXIDs = 1000

// eventSymbols are the calls needed for XIDs, apart from the wait call.
var eventSymbols = []string{"nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlEventSetFree"}

// waitSymbol is the name of the wait call in the readings.
const waitSymbol = "nvmlEventSetWait"

// deviceEvents is the event set of a device. Each device has its own: once a device of a set is lost,
// each wait for events of the set fails.
type deviceEvents struct {
	nvml.EventSet             // nil once it is freed
	last          device.Call // the last wait; without a name before the first
}

// checkEvents looks up whether the driver has the calls for events. Without them no XIDs are exported.
func (s *Source) checkEvents() {
	s.hasEvents = s.hasAll(eventSymbols) && (s.Has("nvmlEventSetWait_v2") || s.Has(waitSymbol))
	if !s.hasEvents {
		s.log.Info("the driver has no events; XIDs are not exported")
	}
}

// registerEvents subscribes to the XIDs of a device. It returns nil if they cannot be read.
func (s *Source) registerEvents(handle nvml.Device, uuid string) *deviceEvents {
	if !s.hasEvents {
		return nil
	}
	set, ret := s.lib.EventSetCreate()
	if ret != nvml.SUCCESS {
		s.log.Warn("creating an event set failed; the device's XIDs are not exported", "uuid", uuid, "err", message(ret))
		return nil
	}
	if ret = handle.RegisterEvents(nvml.EventTypeXidCriticalError, set); ret == nvml.SUCCESS {
		return &deviceEvents{EventSet: set}
	}
	if ret != nvml.ERROR_NOT_SUPPORTED {
		s.log.Warn("registering for XID events failed; the device's XIDs are not exported", "uuid", uuid, "err", message(ret))
	}
	_ = set.Free() // fails if the driver was unloaded
	return nil
}

// freeEvents frees the event sets of handles once no call waits for their events.
func (s *Source) freeEvents(handles ...*deviceHandle) {
	s.eventsMu.Lock()
	defer s.eventsMu.Unlock()
	for _, h := range handles {
		if h.events != nil && h.events.EventSet != nil {
			_ = h.events.Free() // fails if the driver was unloaded
			h.events.EventSet = nil
		}
	}
}

// XIDs returns the critical events since the last call, at most maxXIDs. It waits for each device for
// 1 ms at most, the shortest wait.
func (s *Source) XIDs() (xids []device.XID) {
	s.mu.Lock()
	devices, events := slices.Clone(s.devices), map[string]*deviceEvents{}
	for uuid, h := range s.handles {
		if h.events != nil {
			events[uuid] = h.events
		}
	}
	s.mu.Unlock()
	s.eventsMu.Lock()
	defer s.eventsMu.Unlock()
	for _, d := range devices {
		e := events[d.UUID]
		if e == nil || e.EventSet == nil {
			continue
		}
		for range max(1, maxXIDs/len(devices)) {
			code, ok := s.nextXID(d, e)
			if !ok {
				break
			}
			xids = append(xids, device.XID{UUID: d.UUID, Code: code})
		}
	}
	return xids
}

// nextXID returns the next event of a device. ok is false if none is pending or the wait fails. It
// logs an error when it first occurs. The caller holds eventsMu.
func (s *Source) nextXID(d device.Device, e *deviceEvents) (code uint64, ok bool) {
	start := time.Now()
	event, ret := e.Wait(1)
	call := device.Call{Name: waitSymbol, Took: time.Since(start)}
	if ret != nvml.ERROR_TIMEOUT {
		call.Err = callError(ret)
	}
	if call.Err != nil && (e.last.Err == nil || e.last.Err.Error() != call.Err.Error()) {
		s.log.Warn("reading XID events failed", "uuid", d.UUID, "err", call.Err)
	}
	e.last = call
	return event.EventData, ret == nvml.SUCCESS
}

// addWait adds the last wait for events of a device to its reading.
func (s *Source) addWait(h *deviceHandle, r *device.Reading) {
	s.eventsMu.Lock()
	defer s.eventsMu.Unlock()
	if h.events != nil && h.events.last.Name != "" {
		r.Calls = append(r.Calls, h.events.last)
	}
}
