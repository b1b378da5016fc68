package nvml

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// renumbered tells whether the library counts other devices than before, whose
// indexes may all mean something else now: it is then to be loaded anew. While one
// hangs that would stall on it, and has to wait.
func (s *Source) renumbered(count int) bool {
	return s.count != 0 && count != s.count && !s.hangs()
}

// hangs tells whether some reading is still under way, which none is unless it has
// stalled.
func (s *Source) hangs() bool {
	if len(s.meeting) > 0 {
		return true
	}
	for _, u := range s.units {
		if !u.mu.TryLock() {
			return true
		}
		u.mu.Unlock()
	}
	return false
}

// update the list: those whose place another has taken go, and those that are not
// known are asked what they are. A device that is known is not asked again, for it
// may have come to hang.
func (s *Source) update(count int) {
	s.devices = slices.DeleteFunc(s.devices, s.superseded)
	if s.count == 0 || !s.hangs() {
		s.count = count
	}
	said := s.silent
	s.silent = map[int]string{}
	for i, err := range s.meet(count) {
		s.silent[i] = err.Error()
		if said[i] != s.silent[i] {
			s.log.Warn("a device does not tell what it is", "index", i, "err", err)
		}
	}
	slices.SortFunc(s.devices, func(a, b device.Device) int { return cmp.Compare(a.Index, b.Index) })
}

// errMute is of a device that has not said in time what it is.
var errMute = errors.New("it does not answer")

// meet those that are not known yet, all at a time so that one which hangs keeps
// nobody from being listed. It is waited for once, and met when it answers.
func (s *Source) meet(count int) map[int]error {
	patience, cancel := context.WithTimeout(context.Background(), s.courtesy)
	defer cancel()
	waited, done := context.WithCancel(context.Background())
	done()
	failures, until := map[int]error{}, map[int]context.Context{}
	for i := range count {
		if slices.ContainsFunc(s.devices, func(d device.Device) bool { return d.Index == i }) {
			continue
		}
		until[i] = waited
		if s.meeting[i] == nil {
			answer := make(chan introduction, 1)
			s.meeting[i], until[i] = answer, patience
			go func() { answer <- s.introduce(i) }()
		}
	}
	for i, limit := range until {
		in, answered := hear(limit, s.meeting[i])
		if !answered {
			failures[i] = errMute
			continue
		}
		delete(s.meeting, i)
		if err := s.add(in); err != nil {
			failures[i] = err
		}
	}
	return failures
}

// hear an answer that is there, or comes before the limit.
func hear(limit context.Context, answer <-chan introduction) (introduction, bool) {
	select {
	case in := <-answer:
		return in, true
	default:
	}
	select {
	case in := <-answer:
		return in, true
	case <-limit.Done():
		return introduction{}, false
	}
}

// superseded tells whether another device is in the place of one, and forgets that.
func (s *Source) superseded(d device.Device) bool {
	u := s.units[d.UUID]
	if !u.replaced {
		return false
	}
	maps.DeleteFunc(s.units, func(_ string, other *unit) bool { return other == u || other.parent == u })
	maps.DeleteFunc(s.uuids, func(_ nvml.Device, uuid string) bool { return uuid == d.UUID })
	u.free()
	return true
}

// succeeded asks, as a part of a reading in vain, whether another device has come to
// where the one that does not answer was.
func (s *Source) succeeded(u *unit, d device.Device) {
	if d.Instance != nil {
		return
	}
	u.mu.Lock() // so that it is seen to hang, if it does
	defer u.mu.Unlock()
	handle, ret := s.lib.DeviceGetHandleByIndex(d.Index)
	if ret != nvml.SUCCESS {
		return
	}
	if uuid, ret := handle.GetUUID(); ret == nvml.SUCCESS && uuid != d.UUID {
		s.mu.Lock()
		u.replaced = true
		s.mu.Unlock()
	}
}

// Undescribed devices are there, and did not tell what they are: most were lost
// before they could be asked.
func (s *Source) Undescribed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.silent)
}
