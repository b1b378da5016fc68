package nvml

import (
	"context"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// unit is a device's handle and what is kept between its readings.
type unit struct {
	nvml.Device
	lib    nvml.Interface
	fields []fieldValue // those that its driver has

	memoryMiB int64
	placed    bool  // its driver tells where instances lie
	parent    *unit // of a MIG instance
	cut       cut   // that a MIG instance is a part of
	replaced  bool  // another device is where it was; under the source's lock

	mu             sync.Mutex // held while it is read
	beat           func()     // tells whoever waits that a call returned
	parts          []part     // instances as of the last reading
	newest         uint64     // time stamp of a process' sample that was told, in µs
	gpm            gpm
	cuts           map[cut]*gpm // of the GPU instances
	links, out, in rate
}

// tell makes every call, and returns the reading with the number of calls that
// succeeded and the last failure. What the device does not support is neither;
// a failure after which the others are in vain ends it.
func (u *unit) tell(ctx context.Context, getters []getter, now time.Time) (r device.Reading, told int, failure nvml.Return) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.beat = func() { device.ReportProgress(ctx) }
	r, failure = device.Reading{Time: now, Calls: make([]device.Call, 0, len(getters))}, nvml.SUCCESS
	for _, g := range getters {
		start := time.Now()
		ret := g.get(u, &r)
		r.Calls = append(r.Calls, device.Call{Name: g.symbol, Took: time.Since(start)})
		u.beat()
		switch ret {
		case nvml.SUCCESS:
			told++
		case nvml.ERROR_NOT_SUPPORTED:
		case nvml.ERROR_GPU_IS_LOST, nvml.ERROR_UNINITIALIZED, nvml.ERROR_DRIVER_NOT_LOADED:
			return r, 0, ret
		default:
			failure = ret
		}
	}
	u.derive(&r)
	return r, told, failure
}

// derive what follows from this reading and the one before.
func (u *unit) derive(r *device.Reading) {
	tx, ok := r.Get(device.NVLinkTx)
	rx, both := r.Get(device.NVLinkRx)
	if ok && both {
		if v, ok := u.links.of(tx+rx, r.Time); ok {
			r.Set(device.NVLinkBandwidth, v/1e6)
		}
	}
	for _, way := range []struct {
		rate     *rate
		from, to device.Field
	}{{&u.out, device.PCIeTxBytes, device.PCIeTx}, {&u.in, device.PCIeRxBytes, device.PCIeRx}} {
		total, ok := r.Get(way.from)
		if _, told := r.Get(way.to); told || !ok {
			continue
		}
		if v, ok := way.rate.of(total, r.Time); ok {
			r.Set(way.to, v)
		}
	}
	slowdown, ok := r.Get(device.SlowdownTemp)
	now, both := r.Get(device.GPUTemp)
	if _, told := r.Get(device.ThermalMargin); ok && both && !told {
		r.Set(device.ThermalMargin, slowdown-now)
	}
}

// rate of a count between two readings.
type rate struct {
	last float64
	at   time.Time
}

// of a count: how much it rose each second since it was last asked; false the
// first time, and when it went back to zero.
func (c *rate) of(count float64, at time.Time) (perSecond float64, ok bool) {
	elapsed := at.Sub(c.at).Seconds()
	ok = !c.at.IsZero() && elapsed > 0 && count >= c.last
	perSecond = (count - c.last) / elapsed
	c.last, c.at = count, at
	return perSecond, ok
}

// free what the unit holds in the library, unless a reading that stalled still
// uses it: that much is lost with the device.
func (u *unit) free() {
	if u.mu.TryLock() {
		u.gpm.free()
		for _, g := range u.cuts {
			g.free()
		}
		u.mu.Unlock()
	}
}
