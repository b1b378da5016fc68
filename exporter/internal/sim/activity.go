package sim

import (
	"math"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// parts of a device that are active while it trains, of its utilization. FP64 rests.
var parts = map[device.Field]float64{
	device.EngineActive: 1, device.SMActive: 0.9, device.SMOccupancy: 0.4, device.TensorActive: 0.55,
	device.DRAMActive: 0.45, device.FP64Active: 0, device.FP32Active: 0.12, device.FP16Active: 0.05,
}

// traffic of a device since it is there, in bytes.
type traffic struct{ pcie, nvlink float64 }

// activity is what the device's monitors tell of the last dt seconds.
func (l *live) activity(r *device.Reading, can product, dt float64, linked bool) {
	if can.monitored {
		for field, part := range parts {
			r.Set(field, part*l.utilization)
		}
	}
	pcie, nvlink := can.pcie*l.utilization, can.nvlink*l.utilization
	l.moved.pcie += pcie * dt
	l.moved.nvlink += nvlink * dt
	r.Set(device.PCIeTx, pcie/4)
	r.Set(device.PCIeRx, pcie)
	r.Set(device.PCIeTxBytes, math.Round(l.moved.pcie/4))
	r.Set(device.PCIeRxBytes, math.Round(l.moved.pcie))
	if linked {
		r.Set(device.NVLinkBandwidth, math.Round(2*nvlink/1e6))
		r.Set(device.NVLinkTx, math.Round(l.moved.nvlink))
		r.Set(device.NVLinkRx, math.Round(l.moved.nvlink))
		for _, field := range []device.Field{device.NVLinkFlitErrors, device.NVLinkDataErrors, device.NVLinkReplays, device.NVLinkRecoveries} {
			r.Set(field, 0)
		}
	}
}

// Bits of NVML's clock events.
const (
	eventIdle      = 1 << 0
	eventSlowdown  = 1 << 3
	eventHWThermal = 1 << 6
)

// restraint is what limits the device, and whether it does.
func (l *live) restraint(r *device.Reading, can product, temperature float64) {
	for field, watts := range map[device.Field]float64{device.PowerLimit: can.limit, device.PowerManagementLimit: can.limit,
		device.PowerMin: can.least, device.PowerMax: can.limit, device.PowerDefault: can.limit} {
		r.Set(field, watts)
	}
	events := 0.0
	switch {
	case temperature >= throttleAt:
		events = eventSlowdown | eventHWThermal
	case l.utilization < 0.01:
		events = eventIdle
	}
	r.Set(device.ClockEvents, events)
	r.Set(device.SlowdownTemp, throttleAt)
	r.Set(device.ThermalMargin, throttleAt-math.Round(temperature))
	for field, ns := range map[device.Field]float64{device.PowerViolation: 0, device.ThermalViolation: l.hotNS,
		device.HWThermalSlowdown: l.hotNS, device.SWThermalSlowdown: 0, device.HWPowerBrake: 0} {
		r.Set(field, math.Round(ns))
	}
}
