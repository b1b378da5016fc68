package conformance

import (
	"math"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// counters never fall while the driver is loaded.
var counters = []device.Field{
	device.TotalEnergy, device.PCIeReplay, device.CorrectableRemappedRows, device.UncorrectableRemappedRows,
	device.ECCSingleVolatile, device.ECCDoubleVolatile, device.ECCSingleAggregate, device.ECCDoubleAggregate,
	device.RetiredSingle, device.RetiredDouble, device.PowerViolation, device.ThermalViolation, device.SyncBoostViolation,
	device.BoardLimitViolation, device.LowUtilViolation, device.ReliabilityViolation, device.SWThermalSlowdown,
	device.HWThermalSlowdown, device.HWPowerBrake, device.NVLinkTx, device.NVLinkRx, device.NVLinkFlitErrors, device.NVLinkDataErrors,
	device.NVLinkReplays, device.NVLinkRecoveries, device.PCIeTxBytes, device.PCIeRxBytes,
}

// positive are what no device that works has none of: a 0 means that it can't tell.
var positive = []device.Field{
	device.SMClock, device.MemClock, device.GPUTemp, device.MemoryTemp, device.PowerUsage, device.PowerLimit, device.PowerManagementLimit,
	device.PowerMax, device.PowerDefault, device.FBTotal, device.SlowdownTemp,
}

// readings of a device are plausible, agree with each other, and go on.
func readings(t *testing.T, s Subject) {
	for _, d := range s.healthy(t) {
		s.Advance(time.Second)
		last := s.read(t, d)
		for range 3 {
			s.Advance(time.Second)
			now := s.read(t, d)
			if !now.Time.After(last.Time) {
				t.Errorf("%s was read at %s, and then at %s", d.UUID, last.Time, now.Time)
			}
			coherent(t, d, &now)
			goesOn(t, d, &last, &now)
			last = now
		}
		if t.Failed() {
			return // the others would say the same
		}
	}
}

// goesOn: counters don't fall, and what a device can tell it tells again.
func goesOn(t *testing.T, d device.Device, last, now *device.Reading) {
	t.Helper()
	for f := range device.NumFields {
		_, told := last.Get(f)
		if _, tells := now.Get(f); told != tells {
			t.Errorf("%s: field %d was told %t, then %t", d.UUID, f, told, tells)
		}
	}
	for _, f := range counters {
		from, _ := last.Get(f)
		if to, ok := now.Get(f); ok && to < from {
			t.Errorf("%s: counter %d falls from %g to %g", d.UUID, f, from, to)
		}
	}
}

// coherent is a reading whose values agree with one another and with the device.
func coherent(t *testing.T, d device.Device, r *device.Reading) {
	t.Helper()
	if r.Time.IsZero() {
		t.Errorf("%s: a reading of no time", d.UUID)
	}
	for f := range device.NumFields {
		if v, ok := r.Get(f); r.Bogus(f) || ok && (math.IsNaN(v) || math.IsInf(v, 0)) {
			t.Errorf("%s: field %d can't be what it tells", d.UUID, f)
		}
	}
	for _, f := range positive {
		if v, ok := r.Get(f); ok && v == 0 {
			t.Errorf("%s: field %d is 0", d.UUID, f)
		}
	}
	within := func(what string, fields []device.Field, ok func(v []float64) bool) {
		values := make([]float64, len(fields))
		for i, f := range fields {
			var told bool
			if values[i], told = r.Get(f); !told {
				return
			}
		}
		if !ok(values) {
			t.Errorf("%s: %s: %v", d.UUID, what, values)
		}
	}
	within("memory used, free and reserved is all there is", []device.Field{device.FBUsed, device.FBFree, device.FBReserved, device.FBTotal},
		func(v []float64) bool { return math.Abs(v[0]+v[1]+v[2]-v[3]) <= 3 }) // each is rounded down
	within("memory is what the device has", []device.Field{device.FBTotal},
		func(v []float64) bool { return math.Abs(v[0]-float64(d.MemoryMiB)) <= 1 })
	within("part of memory used", []device.Field{device.FBUsed, device.FBTotal, device.FBReserved, device.FBUsedRatio},
		func(v []float64) bool { return math.Abs(v[0]/(v[1]-v[2])-v[3]) < 0.001 })
	within("least power limit, default, greatest", []device.Field{device.PowerMin, device.PowerDefault, device.PowerMax},
		func(v []float64) bool { return v[0] <= v[1] && v[1] <= v[2] })
	within("power limit that is set is one that can be", []device.Field{device.PowerMin, device.PowerManagementLimit, device.PowerMax},
		func(v []float64) bool { return v[0] <= v[1] && v[1] <= v[2] })
	within("power drawn and its limit", []device.Field{device.PowerUsage, device.PowerLimit},
		func(v []float64) bool { return v[0] <= 1.5*v[1] }) // peaks go beyond it
	within("SMs are active while the engine is", []device.Field{device.SMActive, device.EngineActive},
		func(v []float64) bool { return v[0] <= v[1]+0.05 })
}
