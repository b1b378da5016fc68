package amd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// reader reads the sensors of a GPU.
type reader struct {
	ctx      context.Context
	reading  device.Reading
	sensors  int // number of sensors that responded
	failures []error
}

// readSensors reads the sensors of a card's GPU. It fails if no sensor of the hardware
// responds and at least one fails.
func (s sysfs) readSensors(ctx context.Context, card string) (device.Reading, error) {
	r := &reader{ctx: ctx}
	gpu := s.ofCard(card, "")
	r.readMemory(gpu)
	r.set(device.GPUUtil, filepath.Join(gpu, "gpu_busy_percent"), 1)
	r.set(device.MemCopyUtil, filepath.Join(gpu, "mem_busy_percent"), 1)
	if hwmon := hwmonOf(gpu); hwmon != "" {
		r.readHwmon(hwmon)
	}
	if content, ok := r.file(filepath.Join(gpu, "gpu_metrics")); ok {
		if energy, ok := decodeEnergy(content, s.text(card, "device")); ok {
			r.reading.Set(device.TotalEnergy, energy)
		}
	}
	if r.sensors == 0 && len(r.failures) > 0 {
		return device.Reading{}, fmt.Errorf("no sensor responds: %w", errors.Join(r.failures...))
	}
	return r.reading, nil
}

// hwmonOf returns the folder with the driver's hwmon sensors, or an empty string.
func hwmonOf(gpu string) string {
	folders, _ := filepath.Glob(filepath.Join(gpu, "hwmon", "hwmon*")) // the pattern is valid
	for _, folder := range folders {
		if name, err := os.ReadFile(filepath.Join(folder, "name")); err == nil && strings.TrimSpace(string(name)) == driverName {
			return folder
		}
	}
	return ""
}

// readMemory reads the device memory. The driver counts it, so the values do not show whether
// the hardware responds.
func (r *reader) readMemory(gpu string) {
	const mib = 1 << 20 // exact, because a 64-bit float keeps 53 bits
	total, totalOK := r.number(filepath.Join(gpu, "mem_info_vram_total"))
	used, usedOK := r.number(filepath.Join(gpu, "mem_info_vram_used"))
	if totalOK {
		r.reading.Set(device.FBTotal, total/mib)
	}
	if totalOK && usedOK && total > 0 {
		r.reading.Set(device.FBUsed, used/mib)
		r.reading.Set(device.FBFree, max(0, total-used)/mib)
		r.reading.Set(device.FBUsedRatio, used/total)
	}
	r.sensors = 0
}

// readHwmon reads power, temperatures and clocks. hwmon's units are microwatts,
// thousandths of a degree and hertz.
func (r *reader) readHwmon(hwmon string) {
	at := func(name string) string { return filepath.Join(hwmon, name) }
	if !r.set(device.PowerUsage, at("power1_average"), 1e6) {
		r.set(device.PowerUsage, at("power1_input"), 1e6) // MI300 has no average
	}
	r.set(device.PowerLimit, at("power1_cap"), 1e6)
	r.set(device.SMClock, at("freq1_input"), 1e6)
	r.set(device.MemClock, at("freq2_input"), 1e6)
	for _, label := range []string{"junction", "edge"} { // the hottest point, if there is a sensor
		if i := channelOf(hwmon, label); i != "" && r.set(device.GPUTemp, at("temp"+i+"_input"), 1e3) {
			limit, ok := r.number(at("temp" + i + "_crit"))
			if temperature, read := r.reading.Get(device.GPUTemp); ok && read && limit > 0 {
				r.reading.Set(device.ThermalMargin, limit/1e3-temperature)
			}
			break
		}
	}
	if i := channelOf(hwmon, "mem"); i != "" {
		r.set(device.MemoryTemp, at("temp"+i+"_input"), 1e3)
	}
}

// channelOf returns the number of the temperature sensor with a label, or an empty string.
func channelOf(hwmon, label string) string {
	for _, i := range []string{"1", "2", "3"} {
		if text, err := os.ReadFile(filepath.Join(hwmon, "temp"+i+"_label")); err == nil && strings.TrimSpace(string(text)) == label {
			return i
		}
	}
	return ""
}

// set sets a field to a sensor's value in units of scale. It returns false if the sensor
// does not exist or fails.
func (r *reader) set(f device.Field, path string, scale float64) bool {
	v, ok := r.number(path)
	if ok {
		r.reading.Set(f, v/scale)
	}
	return ok
}

// number returns the number in a file.
func (r *reader) number(path string) (v float64, ok bool) {
	content, ok := r.file(path)
	if !ok {
		return 0, false
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(string(content)), 64)
	if err != nil {
		r.failures = append(r.failures, fmt.Errorf("%s: %w", filepath.Base(path), err))
		return 0, false
	}
	r.sensors++
	return v, true
}

// unsupported are the errors by which the driver says that the GPU has no such sensor.
// During a reset it returns EPERM or EBUSY.
var unsupported = []error{fs.ErrNotExist, syscall.ENODATA, syscall.EOPNOTSUPP, syscall.EINVAL, syscall.ENOSYS}

func isUnsupported(err error) bool {
	return slices.ContainsFunc(unsupported, func(u error) bool { return errors.Is(err, u) })
}

// file returns the content of a file. ok is false if the file does not exist or fails.
func (r *reader) file(path string) (content []byte, ok bool) {
	start := time.Now()
	content, err := os.ReadFile(path)
	call := device.Call{Name: filepath.Base(path), Took: time.Since(start)}
	if err != nil && !isUnsupported(err) {
		call.Err = err
		r.failures = append(r.failures, err)
	}
	r.reading.Calls = append(r.reading.Calls, call)
	device.ReportProgress(r.ctx)
	return content, err == nil
}
