package nvml

import (
	"fmt"
	"maps"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// requiredSymbols are the calls needed to identify a device.
var requiredSymbols = []string{"nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetMinorNumber", "nvmlDeviceGetMemoryInfo"}

// load loads the library if necessary and returns the number of devices.
func (s *Source) load() (count int, err error) {
	if !s.loaded {
		if ret := s.lib.Init(); ret != nvml.SUCCESS {
			err := fmt.Errorf("load NVIDIA's driver library (libnvidia-ml.so.1): %s", message(ret))
			if ret == nvml.ERROR_LIB_RM_VERSION_MISMATCH && s.matched {
				return 0, fmt.Errorf("%w: another driver was loaded: %w", device.ErrRestart, err)
			}
			s.matched = s.matched || ret != nvml.ERROR_LIB_RM_VERSION_MISMATCH
			return 0, err
		}
		s.matched = true
		s.loaded = true
		if err := s.selectGetters(); err != nil {
			s.reset()
			return 0, err
		}
		s.checkEvents()
	}
	count, ret := s.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		s.reset()
		return 0, fmt.Errorf("count the devices: %s", message(ret))
	}
	return count, nil
}

// reset unloads the library and drops all state of the session. The next call of Devices
// loads the library again.
func (s *Source) reset() {
	s.freeEvents(slices.Collect(maps.Values(s.handles))...)
	for _, h := range s.handles {
		h.free()
	}
	if s.loaded {
		_ = s.lib.Shutdown() // fails if the driver was unloaded
	}
	s.identifying = map[int]chan identification{} // pending results belong to the old session
	s.loaded, s.handles, s.devices, s.lastCount = false, map[string]*deviceHandle{}, nil, 0
}

// selectGetters looks up which calls the library has. Calling a missing symbol would end the
// process.
func (s *Source) selectGetters() error {
	for _, symbol := range requiredSymbols {
		if !s.Has(symbol) {
			return fmt.Errorf("NVIDIA's driver library has no %s: the driver is too old, update it", symbol)
		}
	}
	s.deviceGetters, s.instanceGetters = s.supported(s.enabledGetters), s.supported(allInstanceGetters)
	return nil
}

// supported returns the getters available in the library, with fallbacks for older drivers.
func (s *Source) supported(candidates []getter) (available []getter) {
	for _, g := range candidates {
		if found := s.firstAvailable(&g); found != nil {
			available = append(available, *found)
		} else {
			s.log.Info("the driver lacks a call; its metrics are not exported", "call", g.symbol)
		}
	}
	return available
}

// firstAvailable returns g or the first of its fallbacks available in the library, or nil.
func (s *Source) firstAvailable(g *getter) *getter {
	for g != nil && !s.hasAll(append(slices.Clip(g.requires), g.symbol)) {
		g = g.fallback
	}
	return g
}

func (s *Source) hasAll(symbols []string) bool {
	return !slices.ContainsFunc(symbols, func(symbol string) bool { return !s.Has(symbol) })
}

// Has reports whether the loaded library exports symbol.
func (s *Source) Has(symbol string) bool { return s.lib.Extensions().LookupSymbol(symbol) == nil }

func isUnloaded(ret nvml.Return) bool {
	return ret == nvml.ERROR_UNINITIALIZED || ret == nvml.ERROR_DRIVER_NOT_LOADED
}

// isUnusable reports whether no program can use the device, whatever other calls return.
func isUnusable(ret nvml.Return) bool {
	return ret == nvml.ERROR_GPU_IS_LOST || ret == nvml.ERROR_RESET_REQUIRED || isUnloaded(ret)
}

// message returns the text of a return code. It also works without the library and adds a
// hint if the user can fix the cause.
func message(ret nvml.Return) string {
	switch ret {
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return "library not found; is the driver installed, and the library visible in this container?"
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return "Driver Not Loaded; is it installed, and /dev/nvidiactl visible in this container?"
	case nvml.ERROR_NO_PERMISSION:
		return "Insufficient Permissions; may this user and container open /dev/nvidiactl?"
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return "Driver/library version mismatch; the library in this container is not that of the loaded driver"
	}
	return nvml.ErrorString(ret)
}
