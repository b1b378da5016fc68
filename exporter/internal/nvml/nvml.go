// Package nvml reads NVIDIA devices through libnvidia-ml. The library is loaded at run
// time, so the exporter also starts on a node without the driver and reports the error.
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

// Source reads the NVIDIA devices of the node.
type Source struct {
	lib nvml.Interface
	log *slog.Logger
	now func() time.Time

	mu     sync.Mutex
	loaded bool
	// matched is true once the library returned anything but a version mismatch. A mismatch
	// then means that another driver was loaded. This process keeps the old library mapped, but
	// a new container has that of the new driver. A mismatch from the start stays in a new
	// container as well, so it is an error like any other.
	matched bool

	// enabledGetters are the device getters selected by the exporter's options.
	enabledGetters []getter
	// deviceGetters and instanceGetters are the getters supported by the loaded library.
	deviceGetters   []getter
	instanceGetters []getter

	devices      []device.Device
	handles      map[string]*deviceHandle // by UUID, MIG instances included
	lastCount    int                      // device count of the last listing; 0 before the first
	unidentified map[int]string           // by index: why the device could not be identified
	repeated     map[int]string           // of unidentified: devices with the UUID of a listed one right after the library was loaded

	// identifying holds the identification calls in progress, by index.
	identifying map[int]chan identification
	// identifyTimeout limits the wait for new identifications. An idle device has to wake
	// up first.
	identifyTimeout time.Duration

	hasEvents bool       // the driver has the calls for events
	eventsMu  sync.Mutex // guards the deviceEvents; lock mu first if both are needed
}

// New returns a Source for the library at path. An empty path uses the search path of the
// dynamic loader.
func New(path string, log *slog.Logger) *Source {
	var options []nvml.LibraryOption
	if path != "" {
		options = append(options, nvml.WithLibraryPath(path))
	}
	return &Source{
		lib:             nvml.New(options...),
		log:             log,
		now:             time.Now,
		enabledGetters:  slices.Clone(allDeviceGetters),
		handles:         map[string]*deviceHandle{},
		identifying:     map[int]chan identification{},
		identifyTimeout: 5 * time.Second,
	}
}

// Devices loads the library if necessary and lists its devices. A lost or hung device stays
// listed until another device takes its place.
func (s *Source) Devices(context.Context) ([]device.Device, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	count, err := s.load()
	if err == nil && s.wasRenumbered(count) {
		s.reset()
		count, err = s.load()
	}
	if err != nil {
		return nil, err
	}
	if repeated := s.updateDevices(count); len(repeated) > 0 && !maps.Equal(repeated, s.repeated) && !s.hasStalledCall() {
		s.reset() // the driver numbers the devices differently since the last listing
		if count, err = s.load(); err != nil {
			return nil, err
		}
		s.repeated = s.updateDevices(count)
	}
	if len(s.devices) == 0 && len(s.identifying) > 1 {
		return nil, fmt.Errorf("none of %d devices can be identified: another process may hold the driver's lock", count)
	}
	return slices.Clone(s.devices), nil
}

// errNotOpen is returned by Read for a device without an open handle, for example between
// the unloading of the driver and the next call of Devices.
var errNotOpen = errors.New("the driver was unloaded or the device was removed")

// Read reads one device or MIG instance. Unsupported fields are absent from the reading.
// Read returns device.ErrLost if the device fell off the bus.
func (s *Source) Read(ctx context.Context, d device.Device) (device.Reading, error) {
	s.mu.Lock()
	h, ok := s.handles[d.UUID]
	getters := s.deviceGetters
	if d.Instance != nil {
		getters = s.instanceGetters
	}
	s.mu.Unlock()
	if !ok {
		return device.Reading{}, errNotOpen
	}
	r, succeeded, failure := h.read(ctx, getters, s.now())
	switch {
	case failure == nvml.ERROR_GPU_IS_LOST:
		s.checkReplaced(h, d)
		return device.Reading{}, device.ErrLost
	case isUnloaded(failure):
		s.resetIfCurrent(h, d)
		return device.Reading{}, fmt.Errorf("%w: %s", errNotOpen, message(failure))
	case failure == nvml.ERROR_RESET_REQUIRED:
		s.checkReplaced(h, d)
		return device.Reading{}, errors.New(message(failure))
	case succeeded == 0 && failure != nvml.SUCCESS:
		s.checkReplaced(h, d)
		return device.Reading{}, fmt.Errorf("every call to the driver failed: %s", message(failure))
	}
	if d.Instance == nil {
		s.addWait(h, &r)
		s.addInstances(h, d, &r)
		s.refreshLinks(ctx, h, d, r.Time)
	}
	return r, nil
}

// resetIfCurrent unloads the library after the handle of d failed. A stalled call may return
// after the library was loaded again: the handle then belongs to the previous session, and
// the new session stays.
func (s *Source) resetIfCurrent(h *deviceHandle, d device.Device) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handles[d.UUID] == h {
		s.reset()
	}
}

// Close unloads the library.
func (s *Source) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reset()
	return nil
}
