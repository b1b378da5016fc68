package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// capability is a group of fields that a device reports together.
type capability struct {
	name   string
	fields []device.Field
	symbol string // function of NVIDIA's library that provides the fields
	reason string // why a device lacks the fields although the library has the function
}

var capabilities = []capability{
	{"clocks", []device.Field{device.SMClock, device.MemClock}, "nvmlDeviceGetClockInfo", "the devices do not support it"},
	{"power", []device.Field{device.PowerUsage, device.PowerLimit, device.TotalEnergy}, "nvmlDeviceGetPowerUsage", "the devices do not support it"},
	{"temperature", []device.Field{device.GPUTemp}, "nvmlDeviceGetTemperature", "the devices do not support it"},
	{"memory", []device.Field{device.FBUsed, device.FBFree}, "nvmlDeviceGetMemoryInfo", "the devices do not support it"},
	{"utilization", []device.Field{device.GPUUtil}, "nvmlDeviceGetUtilizationRates", "devices in MIG mode do not report utilization"},
	{"ECC", []device.Field{device.ECCSingleVolatile, device.ECCDoubleVolatile, device.ECCSingleAggregate, device.ECCDoubleAggregate},
		"nvmlDeviceGetFieldValues", "ECC is disabled or the model does not support it"},
	{"NVLink", []device.Field{device.NVLinkTx, device.NVLinkRx}, "nvmlDeviceGetFieldValues", "no NVLink of the devices is active"},
	{"GPM (DCGM_FI_PROF_*)", []device.Field{device.EngineActive, device.SMActive, device.TensorActive, device.DRAMActive}, "nvmlGpmMetricsGet", "requires Hopper or newer"},
}

// deviceReading is a device with its reading.
type deviceReading struct {
	device  device.Device
	reading device.Reading
}

// checkCapabilities checks which capabilities the readable devices have. hasSymbol reports
// whether the vendor's library has a function.
func checkCapabilities(devices []deviceReading, hasSymbol func(symbol string) bool) []finding {
	var findings []finding
	for _, c := range capabilities {
		f := checkSupport(c.name, devices, c.missingReason(hasSymbol), c.isSupportedBy)
		if c.isDenied(devices) {
			f = finding{check: c.name, err: errDenied}
		}
		findings = append(findings, f)
	}
	events := checkSupport("events (XIDs)", devices, "the driver does not support event registration", func(d deviceReading) bool { return d.device.ReportsXIDs })
	mig := checkSupport("MIG", devices, "no device is in MIG mode", func(d deviceReading) bool { return d.reading.MIG })
	if mig.notAvailable == "" {
		instances := 0
		for _, d := range devices {
			instances += len(d.reading.Instances)
		}
		mig.detail += fmt.Sprintf(", %d instances", instances)
	}
	return append(findings, events, mig)
}

// errDenied explains a call that the driver denies.
var errDenied = errors.New("the driver denies the call: add the capability SYS_ADMIN to the container, or load the driver with NVreg_RestrictProfilingToAdminUsers=0")

// isDenied reports whether the driver denies the capability on a device.
func (c capability) isDenied(devices []deviceReading) bool {
	return slices.ContainsFunc(devices, func(d deviceReading) bool {
		return slices.ContainsFunc(d.reading.Calls, func(call device.Call) bool { return call.Name == c.symbol && errors.Is(call.Err, device.ErrDenied) })
	})
}

func (c capability) missingReason(hasSymbol func(symbol string) bool) string {
	if !hasSymbol(c.symbol) {
		return "the driver library lacks " + c.symbol + "; a newer driver is required"
	}
	return c.reason
}

// isSupportedBy reports whether the device reports any field of the capability.
func (c capability) isSupportedBy(d deviceReading) bool {
	for _, f := range c.fields {
		if _, ok := d.reading.Get(f); ok {
			return true
		}
	}
	return false
}

// checkSupport counts the devices that support a capability. reason explains why others
// do not.
func checkSupport(check string, devices []deviceReading, reason string, isSupported func(deviceReading) bool) finding {
	n := 0
	for _, d := range devices {
		if isSupported(d) {
			n++
		}
	}
	if n == 0 {
		return finding{check: check, notAvailable: reason}
	}
	f := finding{check: check, detail: fmt.Sprintf("%d of %d devices", n, len(devices))}
	if n < len(devices) {
		f.detail += "; others: " + reason
	}
	return f
}

// checkHostProcesses checks whether procfs shows the host's processes. On the host,
// process 2 is kthreadd.
func checkHostProcesses(procfs string) finding {
	f := finding{check: "host processes", detail: "visible"}
	name, err := os.ReadFile(filepath.Join(procfs, "2", "comm"))
	switch {
	case os.IsPermission(err):
		f.notAvailable = "no permission to read " + procfs
	case err != nil || strings.TrimSpace(string(name)) != "kthreadd":
		f.notAvailable = "not visible; set hostPID: true in the pod for --attribution=process and for the runtime metrics of TPUs"
	}
	return f
}
