package nvml

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// fieldsByCall are fields of one call each, by the number of the call in the fake.
var fieldsByCall = map[int]device.Field{
	0: device.SMClock, 1: device.GPUTemp, 2: device.PowerUsage, 6: device.GPUUtil, 7: device.EncUtil, 8: device.DecUtil, 10: device.CorrectableRemappedRows,
	17: device.ClockEvents, 18: device.SlowdownTemp, 20: device.VGPULicensed, 57: device.MemoryTemp,
}

// Whatever a call returns instead of success, its field is absent and never 0. The device
// stays readable unless the code says that no program can use it.
func TestReturnCodeOfEveryCall(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	s := f.open()
	d := listDevices(t, s)[0]
	for _, tc := range []struct {
		code   nvml.Return
		usable bool
		is     error
	}{
		{nvml.ERROR_INVALID_ARGUMENT, true, nil}, {nvml.ERROR_NOT_SUPPORTED, true, nil}, {nvml.ERROR_NO_PERMISSION, true, nil}, {nvml.ERROR_NOT_FOUND, true, nil},
		{nvml.ERROR_TIMEOUT, true, nil}, {nvml.ERROR_FUNCTION_NOT_FOUND, true, nil}, {nvml.ERROR_CORRUPTED_INFOROM, true, nil}, {nvml.ERROR_IN_USE, true, nil},
		{nvml.ERROR_INSUFFICIENT_RESOURCES, true, nil}, {nvml.ERROR_ARGUMENT_VERSION_MISMATCH, true, nil}, {nvml.ERROR_NOT_READY, true, nil}, {nvml.ERROR_UNKNOWN, true, nil},
		{nvml.ERROR_GPU_IS_LOST, false, device.ErrLost}, {nvml.ERROR_RESET_REQUIRED, false, nil}, {nvml.ERROR_DRIVER_NOT_LOADED, false, errNotOpen}, {nvml.ERROR_UNINITIALIZED, false, errNotOpen},
	} {
		for call, field := range fieldsByCall {
			t.Run(fmt.Sprintf("%d/call %d", tc.code, call), func(t *testing.T) {
				listDevices(t, s) // opens the library again after the last codes
				f.setDevice(0, devFailing, 1<<call)
				f.setDevice(0, devFailure, uint64(tc.code))
				r, err := s.Read(context.Background(), d)
				f.setDevice(0, devFailing, 0)
				if (err == nil) != tc.usable || tc.is != nil && !errors.Is(err, tc.is) {
					t.Fatalf("the error is %v, usable: %t", err, tc.usable)
				}
				expectAbsent(t, r, field)
				if tc.usable {
					expectValue(t, r, device.PowerLimit, 700)
				}
			})
		}
	}
}

// migCalls are the calls about the memory and the MIG instances of a device, by the number of the call in the
// fake.
var migCalls = map[int]string{9: "memory", 40: "GPU instance", 41: "compute instance", 42: "attributes", 46: "number of instances", 47: "handle", 48: "placement", 61: "name", 62: "UUID"}

// Whichever call says that no program can use the device, the device fails: without its instances it
// would look like a healthy one. Any other code only costs the instance.
func TestReturnCodeOfMIGCalls(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.partition(0, 0, fakeInstance{1, 1, 10, 7, 0}, fakeInstance{3, 3, 40, 2, 0})
	s := f.open()
	d := listDevices(t, s)[0]
	for code, want := range map[nvml.Return]string{
		nvml.ERROR_GPU_IS_LOST: device.ErrLost.Error(), nvml.ERROR_RESET_REQUIRED: "GPU requires reset", nvml.ERROR_UNINITIALIZED: errNotOpen.Error(), nvml.ERROR_DRIVER_NOT_LOADED: errNotOpen.Error(),
		nvml.ERROR_UNKNOWN: "", nvml.ERROR_NOT_FOUND: "", nvml.ERROR_NO_PERMISSION: "",
	} {
		for call, name := range migCalls {
			t.Run(fmt.Sprintf("%d/%s", code, name), func(t *testing.T) {
				listDevices(t, s) // opens the library again after the last codes
				f.setDevice(0, devFailing, 1<<call)
				f.setDevice(0, devFailure, uint64(code))
				_, err := s.Read(context.Background(), d)
				f.setDevice(0, devFailing, 0)
				if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("the error is %v, want %q", err, want)
				}
			})
		}
	}
	listDevices(t, s)
	if r := readDevice(t, s, d); len(r.Instances) != 2 {
		t.Errorf("instances are %q after the failures", instanceNames(r))
	}
}

// A call for the field values succeeds, and the code of a single value says that no program
// can use the device.
func TestFieldValueOfUnusableDevice(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	s := f.open()
	d := listDevices(t, s)[0]
	for code, want := range map[nvml.Return]string{nvml.ERROR_GPU_IS_LOST: device.ErrLost.Error(), nvml.ERROR_RESET_REQUIRED: "GPU requires reset"} {
		f.setDevice(0, devFieldResult, uint64(code))
		if _, err := s.Read(context.Background(), d); err == nil || err.Error() != want {
			t.Errorf("code %d: %v, want %s", code, err, want)
		}
	}
	f.setDevice(0, devFieldResult, uint64(nvml.ERROR_NOT_FOUND))
	expectAbsent(t, readDevice(t, s, d), device.MemoryTemp)
}

// Drivers report patterns of ones for a value that they do not know.
func TestUnknownPatternsAreAbsent(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	const narrow, wide = 1<<32 - 1, 1<<64 - 1
	for word, v := range map[int]uint64{
		devSMClock: narrow, devMemClock: narrow, devTemperature: narrow, devPower: narrow, devPowerLimit: narrow, devEnergy: wide, devReplay: narrow, devUtil: narrow, devMemUtil: narrow,
		devEnc: narrow, devDec: narrow, devTotal: wide, devUsed: wide, devReserved: wide, devCorrectable: narrow, devUncorrectable: narrow, devMemTemp: narrow, devSlowdown: narrow,
		devMargin: 1 << 31, devPowerSet: narrow, devEvents: wide, devNVLink: wide - 1000, devPCIe: wide - 1000, devLinkGen: narrow, devLinkWidth: narrow, devFan: narrow, devPState: 32, devComputeMode: narrow,
	} {
		f.setDevice(0, word, v)
	}
	s := f.open()
	r := readDevice(t, s, listDevices(t, s)[0])
	for _, field := range []device.Field{
		device.SMClock, device.MemClock, device.GPUTemp, device.PowerUsage, device.PowerLimit, device.TotalEnergy, device.PCIeReplay, device.GPUUtil, device.MemCopyUtil, device.EncUtil, device.DecUtil,
		device.FBTotal, device.FBUsed, device.FBReserved, device.CorrectableRemappedRows, device.UncorrectableRemappedRows, device.MemoryTemp, device.SlowdownTemp, device.ThermalMargin,
		device.PowerManagementLimit, device.ClockEvents, device.NVLinkTx, device.PCIeTxBytes, device.PCIeLinkGeneration, device.PCIeLinkWidth, device.FanSpeed, device.PerformanceState, device.ComputeMode,
	} {
		expectAbsent(t, r, field)
	}
}

// A device that shares the memory of the CPU has no memory of its own.
func TestDeviceWithoutOwnMemory(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	for _, word := range []int{devTotal, devUsed, devReserved} {
		f.setDevice(0, word, 0)
		f.setDevice(1, word, 0)
	}
	f.setUnsupported(1, 1<<9) // the older call responds
	f.setUnsupported(2, 1<<9|1<<58)
	s := f.open()
	for i, d := range listDevices(t, s)[:3] {
		r := readDevice(t, s, d)
		for _, field := range []device.Field{device.FBTotal, device.FBUsed, device.FBFree, device.FBReserved, device.FBUsedRatio} {
			expectAbsent(t, r, field)
		}
		if d.MemoryMiB != 0 {
			t.Errorf("device %d has %d MiB", i, d.MemoryMiB)
		}
		expectValue(t, r, device.PowerLimit, 700)
	}
}

// While the driver does not say whether a device is in MIG mode, the device may not be
// allocatable as a whole.
func TestUnreadableMIGMode(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	s := f.open()
	d := listDevices(t, s)[0]
	for code, unknown := range map[nvml.Return]bool{nvml.ERROR_UNKNOWN: true, nvml.ERROR_TIMEOUT: true, nvml.ERROR_NO_PERMISSION: true, nvml.ERROR_NOT_SUPPORTED: false, nvml.ERROR_FUNCTION_NOT_FOUND: false} {
		f.setDevice(0, devFailing, 1<<45)
		f.setDevice(0, devFailure, uint64(code))
		if r := readDevice(t, s, d); r.PartitionsUnknown != unknown {
			t.Errorf("code %d: the partitions are unknown: %t, want %t", code, r.PartitionsUnknown, unknown)
		}
	}
	f.setDevice(0, devFailing, 0)
	if readDevice(t, s, d).PartitionsUnknown {
		t.Error("the partitions stay unknown")
	}
}

func TestProfileWithoutDeviceMemory(t *testing.T) {
	a := nvml.DeviceAttributes{GpuInstanceSliceCount: 1, ComputeInstanceSliceCount: 1, MemorySizeMB: 9856}
	if got := profileName(a, 0); got != "1g.10gb" {
		t.Errorf("the profile is %s, want 1g.10gb", got)
	}
}
