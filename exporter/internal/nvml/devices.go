package nvml

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// wasRenumbered reports whether the number of devices changed. Every index may then refer
// to another device, and the library has to be loaded again. Loading would block behind a
// stalled call, so wasRenumbered returns false until the call returns.
func (s *Source) wasRenumbered(count int) bool {
	return s.lastCount != 0 && count != s.lastCount && !s.hasStalledCall()
}

// hasStalledCall reports whether a call to the driver is still in progress. Readings and
// listings do not overlap, so a call in progress has exceeded its deadline.
func (s *Source) hasStalledCall() bool {
	if len(s.identifying) > 0 {
		return true
	}
	for _, h := range s.handles {
		if !h.mu.TryLock() {
			return true
		}
		h.mu.Unlock()
	}
	return false
}

// updateDevices removes replaced devices from the list and identifies new ones. A listed
// device is not identified again, because the call could hang. The result are the indexes at
// which a device responds that is listed with another index, and the messages about them.
func (s *Source) updateDevices(count int) (repeated map[int]string) {
	s.devices = slices.DeleteFunc(s.devices, s.dropIfReplaced)
	if s.lastCount == 0 || !s.hasStalledCall() {
		s.lastCount = count
	}
	logged := s.unidentified
	s.unidentified, repeated = map[int]string{}, map[int]string{}
	for i, err := range s.identifyNew(count) {
		s.unidentified[i] = err.Error()
		if errors.Is(err, errListed) {
			repeated[i] = err.Error()
		}
		if logged[i] != s.unidentified[i] {
			s.log.Warn("identifying a device failed; it is not exported", "index", i, "err", err)
		}
	}
	slices.SortFunc(s.devices, func(a, b device.Device) int { return cmp.Compare(a.Index, b.Index) })
	return repeated
}

// errNoResponse is the error of a device whose identification is still in progress.
var errNoResponse = errors.New("the device does not respond")

// errListed is the error of a device with the UUID of a listed device. Either the driver
// numbers the devices differently since the listing, or two devices report the same UUID.
var errListed = errors.New("a device with this UUID is listed already")

// identifyNew identifies the devices below count that are not listed, and lists them. The
// returned errors are by device index.
//
// All devices are identified in parallel, so a hung device does not delay the others. A new
// identification is awaited for identifyTimeout. A pending one is only polled: the device is
// listed by the first call of Devices after its response.
func (s *Source) identifyNew(count int) map[int]error {
	timeout, cancel := context.WithTimeout(context.Background(), s.identifyTimeout)
	defer cancel()
	poll, cancelPoll := context.WithCancel(context.Background())
	cancelPoll()
	limits := map[int]context.Context{}
	for i := range count {
		if slices.ContainsFunc(s.devices, func(d device.Device) bool { return d.Index == i }) {
			continue
		}
		limits[i] = poll
		if s.identifying[i] == nil {
			result := make(chan identification, 1)
			s.identifying[i], limits[i] = result, timeout
			go func() { result <- s.identify(i) }()
		}
	}
	failures := map[int]error{}
	for _, i := range slices.Sorted(maps.Keys(limits)) {
		found, ok := awaitIdentification(limits[i], s.identifying[i])
		if !ok {
			failures[i] = errNoResponse
			continue
		}
		delete(s.identifying, i)
		if found.err != nil {
			failures[i] = found.err
			continue
		}
		if uuid := found.device.UUID; s.handles[uuid] != nil {
			failures[i] = fmt.Errorf("%w: %s", errListed, uuid)
			continue
		}
		s.addDevice(found)
	}
	return failures
}

// awaitIdentification returns a result that is available or arrives before limit ends.
func awaitIdentification(limit context.Context, result <-chan identification) (identification, bool) {
	select {
	case found := <-result:
		return found, true
	default:
	}
	select {
	case found := <-result:
		return found, true
	case <-limit.Done():
		return identification{}, false
	}
}

// addDevice lists an identified device and opens its handle.
func (s *Source) addDevice(found identification) {
	d := found.device
	events := s.registerEvents(found.handle, d.UUID)
	d.ReportsXIDs = events != nil
	s.devices = append(s.devices, d)
	s.handles[d.UUID] = &deviceHandle{
		Device:       found.handle,
		events:       events,
		lib:          s.lib,
		fields:       fieldsFor(d.Driver),
		memoryMiB:    d.MemoryMiB,
		hasPlacement: s.hasAll(placementSymbols),
		instanceGPM:  map[gpuInstance]*gpmSampler{},
	}
}

// dropIfReplaced closes the handles of d and its MIG instances if another device took its
// place, and reports whether this is the case.
func (s *Source) dropIfReplaced(d device.Device) bool {
	h := s.handles[d.UUID]
	if !h.replaced {
		return false
	}
	maps.DeleteFunc(s.handles, func(_ string, other *deviceHandle) bool { return other == h || other.parent == h })
	s.freeEvents(h)
	h.free()
	return true
}

// checkReplaced marks d as replaced if another device responds at its index. Read calls it
// after a failed reading, because the call may hang like any other call to the device.
func (s *Source) checkReplaced(h *deviceHandle, d device.Device) {
	if d.Instance != nil {
		return
	}
	h.mu.Lock() // hasStalledCall sees a hang of the calls below
	defer h.mu.Unlock()
	handle, ret := s.lib.DeviceGetHandleByIndex(d.Index)
	if ret != nvml.SUCCESS {
		return // the failed device is still in place
	}
	if uuid, ret := handle.GetUUID(); ret == nvml.SUCCESS && uuid != d.UUID {
		s.mu.Lock()
		h.replaced = true
		s.mu.Unlock()
	}
}

// Undescribed returns the number of devices in the last listing that could not be
// identified. Most of them were lost before the exporter started.
func (s *Source) Undescribed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.unidentified)
}
