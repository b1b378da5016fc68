package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// group of what a device tells together or not at all.
type group struct {
	what   string
	fields []device.Field
	call   string // of NVIDIA's library, without which no device tells it
	why    string // a device does not tell it although the library could
}

var groups = []group{
	{"clocks", []device.Field{device.SMClock, device.MemClock}, "nvmlDeviceGetClockInfo", "the devices don't support it"},
	{"power", []device.Field{device.PowerUsage, device.PowerLimit, device.TotalEnergy}, "nvmlDeviceGetPowerUsage", "the devices don't support it"},
	{"temperature", []device.Field{device.GPUTemp}, "nvmlDeviceGetTemperature", "the devices don't support it"},
	{"memory", []device.Field{device.FBUsed, device.FBFree}, "nvmlDeviceGetMemoryInfo", "the devices don't support it"},
	{"utilization", []device.Field{device.GPUUtil}, "nvmlDeviceGetUtilizationRates", "devices in MIG mode don't tell it"},
	{"ECC", []device.Field{device.ECCSingleVolatile, device.ECCDoubleVolatile, device.ECCSingleAggregate, device.ECCDoubleAggregate},
		"nvmlDeviceGetFieldValues", "ECC is switched off, or the model has none"},
	{"NVLink", []device.Field{device.NVLinkTx, device.NVLinkRx}, "nvmlDeviceGetFieldValues", "no link of the devices is in use"},
	{"GPM (DCGM_FI_PROF_*)", []device.Field{device.EngineActive, device.SMActive, device.TensorActive, device.DRAMActive}, "nvmlGpmMetricsGet", "it needs Hopper or newer"},
}

// seen of a device.
type seen struct {
	device  device.Device
	reading device.Reading
}

// inspectGroups says which groups are given, by how many of the devices that
// answer, and why the others are not. has tells what the vendor's library can.
func inspectGroups(devices []seen, has func(symbol string) bool) []finding {
	var findings []finding
	for _, g := range groups {
		findings = append(findings, toldBy(g.what, devices, g.reason(has), g.told))
	}
	events := toldBy("events (XIDs)", devices, "the driver does not let us watch for them", func(s seen) bool { return s.device.ReportsXIDs })
	instances := 0
	mig := toldBy("MIG", devices, "no device is in MIG mode", func(s seen) bool { instances += len(s.reading.Instances); return s.reading.MIG })
	if mig.without == "" {
		mig.more += fmt.Sprintf(", %d instances", instances)
	}
	return append(findings, events, mig)
}

func (g group) reason(has func(symbol string) bool) string {
	if !has(g.call) {
		return "the driver's library has no " + g.call + "; a newer driver has"
	}
	return g.why
}

// told is whether the device tells any of the group.
func (g group) told(s seen) bool {
	for _, f := range g.fields {
		if _, ok := s.reading.Get(f); ok {
			return true
		}
	}
	return false
}

func toldBy(what string, devices []seen, why string, by func(seen) bool) finding {
	n := 0
	for _, s := range devices {
		if by(s) {
			n++
		}
	}
	f := finding{what: what, more: fmt.Sprintf("%d of %d devices", n, len(devices))}
	if n < len(devices) {
		f.more += "; of the others: " + why
	}
	if n == 0 {
		f.without, f.more = why, ""
	}
	return f
}

// inspectProcesses says whether the host's processes are seen: its second one is the kernel's.
func inspectProcesses(procfs string) finding {
	f := finding{what: "processes of the host", more: "seen"}
	name, err := os.ReadFile(filepath.Join(procfs, "2", "comm"))
	switch {
	case os.IsPermission(err):
		f.without = "no permission to read " + procfs
	case err != nil || strings.TrimSpace(string(name)) != "kthreadd":
		f.without = "set hostPID for the pod; --attribution=process and TPUs' runtimes need it"
	}
	return f
}
