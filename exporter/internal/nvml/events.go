package nvml

import (
	"maps"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// maxXIDs limits the events read per collection. The next collection reads the rest of an
// event storm.
const maxXIDs = 1000

// eventSymbols are the calls needed for XIDs, apart from the wait call.
var eventSymbols = []string{"nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlEventSetFree"}

// createEventSet prepares the reading of critical events. Without driver support no XIDs
// are exported.
func (s *Source) createEventSet() {
	if !s.hasAll(eventSymbols) || !s.Has("nvmlEventSetWait_v2") && !s.Has("nvmlEventSetWait") {
		s.log.Info("the driver has no events; XIDs are not exported")
		return
	}
	events, ret := s.lib.EventSetCreate()
	if ret != nvml.SUCCESS {
		s.log.Warn("creating the XID event set failed; XIDs are not exported", "err", message(ret))
		return
	}
	s.eventsMu.Lock()
	s.events = events
	s.eventsMu.Unlock()
}

// freeEventSet frees the event set once no call waits for its events.
func (s *Source) freeEventSet() {
	s.eventsMu.Lock()
	defer s.eventsMu.Unlock()
	if s.events != nil {
		_ = s.events.Free() // fails if the driver was unloaded
		s.events, s.eventsErr = nil, nvml.SUCCESS
	}
}

// registerEvents subscribes to the XIDs of a device and reports whether they can be read.
func (s *Source) registerEvents(handle nvml.Device, uuid string) bool {
	if s.events == nil {
		return false
	}
	ret := handle.RegisterEvents(nvml.EventTypeXidCriticalError, s.events)
	if ret != nvml.SUCCESS && ret != nvml.ERROR_NOT_SUPPORTED {
		s.log.Warn("registering for XID events failed; the device's XIDs are not exported", "uuid", uuid, "err", message(ret))
	}
	return ret == nvml.SUCCESS
}

// XIDs returns the critical events since the last call, at most maxXIDs.
func (s *Source) XIDs() []device.XID {
	s.mu.Lock()
	uuids := maps.Clone(s.uuidByHandle)
	s.mu.Unlock()
	s.eventsMu.Lock()
	defer s.eventsMu.Unlock()
	if s.events == nil {
		return nil
	}
	var xids []device.XID
	for range maxXIDs {
		event, ret := s.events.Wait(1) // 1 ms is the shortest wait
		if ret != nvml.SUCCESS {
			s.logWaitError(ret)
			return xids
		}
		uuid, ok := uuids[event.Device]
		if !ok {
			s.log.Warn("dropping an XID of a removed device", "xid", event.EventData)
			continue
		}
		xids = append(xids, device.XID{UUID: uuid, Code: event.EventData})
	}
	return xids
}

// logWaitError logs an error of waiting for events when it first occurs. A timeout means
// no pending events.
func (s *Source) logWaitError(ret nvml.Return) {
	if ret == nvml.ERROR_TIMEOUT {
		ret = nvml.SUCCESS
	}
	if ret != nvml.SUCCESS && ret != s.eventsErr {
		s.log.Warn("reading XID events failed", "err", message(ret))
	}
	s.eventsErr = ret
}
