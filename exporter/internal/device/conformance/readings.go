package conformance

import (
	"math"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// counters are the fields that never decrease while the driver is loaded.
var counters = []device.Field{
	device.TotalEnergy, device.PCIeReplay, device.CorrectableRemappedRows, device.UncorrectableRemappedRows,
	device.ECCSingleVolatile, device.ECCDoubleVolatile, device.ECCSingleAggregate, device.ECCDoubleAggregate,
	device.RetiredSingle, device.RetiredDouble, device.PowerViolation, device.ThermalViolation, device.SyncBoostViolation,
	device.BoardLimitViolation, device.LowUtilViolation, device.ReliabilityViolation, device.SWThermalSlowdown,
	device.HWThermalSlowdown, device.HWPowerBrake, device.NVLinkTx, device.NVLinkRx, device.NVLinkFlitErrors, device.NVLinkDataErrors,
	device.NVLinkReplays, device.NVLinkRecoveries, device.PCIeTxBytes, device.PCIeRxBytes,
}

// positive are the fields that are above 0 on every working device. A 0 would mean that
// the source reported an unreadable field instead of leaving the field out.
var positive = []device.Field{
	device.SMClock, device.MemClock, device.GPUTemp, device.MemoryTemp, device.PowerUsage, device.PowerLimit, device.PowerManagementLimit,
	device.PowerMax, device.PowerDefault, device.FBTotal, device.SlowdownTemp,
}

// checkReadings checks that the readings of each device are plausible, coherent and
// consecutive.
func checkReadings(t *testing.T, s Subject) {
	for _, d := range s.readable(t) {
		s.Advance(time.Second)
		last := s.read(t, d)
		for range 3 {
			s.Advance(time.Second)
			now := s.read(t, d)
			if !now.Time.After(last.Time) {
				t.Errorf("%s was read at %s, and then at %s", d.UUID, last.Time, now.Time)
			}
			checkCoherence(t, d, &now)
			checkContinuity(t, d, &last, &now)
			last = now
		}
		if t.Failed() {
			return // the other devices would repeat the same errors
		}
	}
}

// checkContinuity checks that counters do not decrease and that the device keeps
// reporting the same fields.
func checkContinuity(t *testing.T, d device.Device, last, now *device.Reading) {
	t.Helper()
	for f := range device.NumFields {
		_, before := last.Get(f)
		if _, after := now.Get(f); before != after {
			t.Errorf("%s: field %d is reported: %t, then %t", d.UUID, f, before, after)
		}
	}
	for _, f := range counters {
		from, _ := last.Get(f)
		if to, ok := now.Get(f); ok && to < from {
			t.Errorf("%s: counter %d decreases from %g to %g", d.UUID, f, from, to)
		}
	}
}

// checkCoherence checks that the values of a reading agree with each other and with the
// device.
func checkCoherence(t *testing.T, d device.Device, r *device.Reading) {
	t.Helper()
	if r.Time.IsZero() {
		t.Errorf("%s: the reading has no time", d.UUID)
	}
	for f := range device.NumFields {
		if v, ok := r.Get(f); r.Bogus(f) || ok && (math.IsNaN(v) || math.IsInf(v, 0)) {
			t.Errorf("%s: field %d has an impossible value", d.UUID, f)
		}
	}
	for _, f := range positive {
		if v, ok := r.Get(f); ok && v == 0 {
			t.Errorf("%s: field %d is 0", d.UUID, f)
		}
	}
	require := func(rule string, fields []device.Field, holds func(v []float64) bool) {
		values := make([]float64, len(fields))
		for i, f := range fields {
			var ok bool
			if values[i], ok = r.Get(f); !ok {
				return
			}
		}
		if !holds(values) {
			t.Errorf("%s: not true: %s: %v", d.UUID, rule, values)
		}
	}
	require("used, free and reserved memory add up to the total", []device.Field{device.FBUsed, device.FBFree, device.FBReserved, device.FBTotal},
		func(v []float64) bool { return math.Abs(v[0]+v[1]+v[2]-v[3]) <= 3 }) // each is rounded down
	require("total memory is the memory of the device", []device.Field{device.FBTotal},
		func(v []float64) bool { return math.Abs(v[0]-float64(d.MemoryMiB)) <= 1 })
	require("the used ratio follows from used, total and reserved memory", []device.Field{device.FBUsed, device.FBTotal, device.FBReserved, device.FBUsedRatio},
		func(v []float64) bool { return math.Abs(v[0]/(v[1]-v[2])-v[3]) < 0.001 })
	require("minimum <= default <= maximum power limit", []device.Field{device.PowerMin, device.PowerDefault, device.PowerMax},
		func(v []float64) bool { return v[0] <= v[1] && v[1] <= v[2] })
	require("minimum <= configured <= maximum power limit", []device.Field{device.PowerMin, device.PowerManagementLimit, device.PowerMax},
		func(v []float64) bool { return v[0] <= v[1] && v[1] <= v[2] })
	require("power draw is near or below its limit", []device.Field{device.PowerUsage, device.PowerLimit},
		func(v []float64) bool { return v[0] <= 1.5*v[1] }) // short peaks exceed the limit
	require("SMs are active only while the engine is", []device.Field{device.SMActive, device.EngineActive},
		func(v []float64) bool { return v[0] <= v[1]+0.05 })
}
