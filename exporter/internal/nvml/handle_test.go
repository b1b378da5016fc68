package nvml

import (
	"testing"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

func TestPCIeRateWithoutGPM(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.setUnsupported(0, 1<<15)
	f.setDevice(1, devNarrow, 1)
	f.setUnsupported(1, 1<<15)
	s := f.open()
	devices := listDevices(t, s)
	readAt, readNarrowAt := s.readerAt(t, devices[0]), s.readerAt(t, devices[1])
	expectAbsent(t, readAt(0), device.PCIeTx)
	readNarrowAt(0)
	f.setDevice(0, devPCIe, 8_000_000_000)
	f.setDevice(1, devPCIe, 8_000_000_000)
	r := readAt(2 * time.Second)
	expectValue(t, r, device.PCIeTx, 1.5e9)
	expectValue(t, r, device.PCIeRx, 1.5e9)
	expectAbsent(t, r, device.TensorActive)
	for _, field := range []device.Field{device.PCIeTx, device.PCIeTxBytes} {
		expectAbsent(t, readNarrowAt(2*time.Second), field) // a 32-bit counter can wrap within 0.1 s
	}
	f.setDevice(0, devPCIe, 0)
	if r = readAt(3 * time.Second); r.Bogus(device.PCIeTx) {
		t.Error("a counter reset produces a rate")
	}
	expectAbsent(t, r, device.PCIeTx)
}

func TestThermalMarginFallsBackToSlowdownTemperature(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.setUnsupported(0, 1<<19)
	f.setUnsupported(1, 1<<19|1<<18)
	s := f.open()
	devices := listDevices(t, s)
	expectValue(t, readDevice(t, s, devices[0]), device.ThermalMargin, 49) // 89 °C - 40 °C
	expectAbsent(t, readDevice(t, s, devices[1]), device.ThermalMargin)
}
