package nvml

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// deviceHandle is the open handle of a device or MIG instance, with the state kept between
// readings.
type deviceHandle struct {
	nvml.Device
	lib          nvml.Interface
	fields       []fieldValue // field values supported by the driver
	memoryMiB    int64
	hasPlacement bool // the driver reports the placement of MIG instances

	// parent and gpuInstance are set for a MIG instance.
	parent      *deviceHandle
	gpuInstance gpuInstance

	events *deviceEvents // nil without events, and for a MIG instance; guarded by Source.eventsMu

	replaced bool // another device took the place of this device; guarded by Source.mu

	mu          sync.Mutex // held during a reading
	beat        func()     // reports each returned call to the collector
	instances   []migInstance
	instanceErr error      // why MIG instances are missing from instances
	gpm         gpmSampler // of the whole device
	instanceGPM map[gpuInstance]*gpmSampler
	// lastProcessSample is the timestamp of the newest process utilization sample, in µs.
	lastProcessSample                      uint64
	nvlinkRate, nvlinkTxRate, nvlinkRxRate counterRate
	pcieTxRate, pcieRxRate                 counterRate
	linksRead                              time.Time // time of the last reading of NVLinks, or of the first reading

	// loggedInstanceErr is the last logged instanceErr; guarded by Source.mu.
	loggedInstanceErr string
}

// read makes the calls of all getters. It returns the reading, the number of calls that
// succeeded and the last failure. An unsupported call counts as neither. read stops if the
// device is lost or requires a reset, or if the driver is unloaded: some of the other calls
// would still succeed, but no program can use the device.
func (h *deviceHandle) read(ctx context.Context, getters []getter, now time.Time) (r device.Reading, succeeded int, failure nvml.Return) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.beat = func() { device.ReportProgress(ctx) }
	r, failure = device.Reading{Time: now, Calls: make([]device.Call, 0, len(getters))}, nvml.SUCCESS
	for _, g := range getters {
		start := time.Now()
		ret := g.read(h, &r)
		r.Calls = append(r.Calls, device.Call{Name: g.symbol, Took: time.Since(start), Err: callError(ret)})
		h.beat()
		switch {
		case ret == nvml.SUCCESS:
			succeeded++
		case isUnusable(ret):
			return r, 0, ret
		case ret != nvml.ERROR_NOT_SUPPORTED:
			failure = ret
		}
	}
	h.derive(&r)
	return r, succeeded, failure
}

// callError returns the error of a call, or nil if it succeeded or is not supported.
func callError(ret nvml.Return) error {
	switch ret {
	case nvml.SUCCESS, nvml.ERROR_NOT_SUPPORTED:
		return nil
	case nvml.ERROR_NO_PERMISSION:
		return fmt.Errorf("%w: it requires root or CAP_SYS_ADMIN", device.ErrDenied)
	}
	return errors.New(message(ret))
}

// derive sets fields calculated from other fields of this and the previous reading. A field
// reported by the device takes precedence.
func (h *deviceHandle) derive(r *device.Reading) {
	tx, hasTx := r.Get(device.NVLinkTx)
	rx, hasRx := r.Get(device.NVLinkRx)
	if hasTx && hasRx {
		if bytesPerSecond, ok := h.nvlinkRate.observe(tx+rx, r.Time); ok {
			r.Set(device.NVLinkBandwidth, bytesPerSecond/1024/1000)
		}
	}
	h.nvlinkTxRate.set(r, device.NVLinkTxRate, device.NVLinkTx)
	h.nvlinkRxRate.set(r, device.NVLinkRxRate, device.NVLinkRx)
	h.pcieTxRate.set(r, device.PCIeTx, device.PCIeTxBytes)
	h.pcieRxRate.set(r, device.PCIeRx, device.PCIeRxBytes)
	slowdown, hasSlowdown := r.Get(device.SlowdownTemp)
	temperature, hasTemperature := r.Get(device.GPUTemp)
	if _, reported := r.Get(device.ThermalMargin); hasSlowdown && hasTemperature && !reported {
		r.Set(device.ThermalMargin, slowdown-temperature)
	}
}

// counterRate calculates the rate of a counter between two readings.
type counterRate struct {
	last     float64
	lastTime time.Time
}

// set derives the field rate from the field counter, unless the device reports the rate.
func (c *counterRate) set(r *device.Reading, rate, counter device.Field) {
	total, ok := r.Get(counter)
	if _, reported := r.Get(rate); reported || !ok {
		return
	}
	if perSecond, ok := c.observe(total, r.Time); ok {
		r.Set(rate, perSecond)
	}
}

// observe returns the increase per second since the previous call. It returns false for the
// first value and after a counter reset.
func (c *counterRate) observe(count float64, now time.Time) (perSecond float64, ok bool) {
	elapsed := now.Sub(c.lastTime).Seconds()
	ok = !c.lastTime.IsZero() && elapsed > 0 && count >= c.last
	perSecond = (count - c.last) / elapsed
	c.last, c.lastTime = count, now
	return perSecond, ok
}

// free releases the GPM samples of the handle. If a stalled reading still uses them, free
// leaks them: freeing them could crash the process.
func (h *deviceHandle) free() {
	if !h.mu.TryLock() {
		return
	}
	defer h.mu.Unlock()
	h.gpm.free()
	for _, sampler := range h.instanceGPM {
		sampler.free()
	}
}
