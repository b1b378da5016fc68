package sim

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// product has the limits of a GPU model, from its data sheet.
type product struct {
	idleWatts, minWatts, maxWatts float64
	minSMClock, maxSMClock        float64 // MHz
	memoryClock                   float64 // MHz
	pcie, nvlink                  float64 // B/s at full utilization
	hasGPM                        bool    // Hopper and newer
}

var products = map[string]product{
	"L4":   {idleWatts: 16, minWatts: 40, maxWatts: 72, minSMClock: 210, maxSMClock: 2040, memoryClock: 6251, pcie: 4e9},
	"A100": {idleWatts: 55, minWatts: 100, maxWatts: 400, minSMClock: 210, maxSMClock: 1410, memoryClock: 1593, pcie: 8e9, nvlink: 120e9},
	// AMD reports no minimum of the power limit, and its links are not counted.
	"MI300X": {idleWatts: 140, maxWatts: 750, minSMClock: 132, maxSMClock: 2100, memoryClock: 1300},
	"H100":   {idleWatts: 70, minWatts: 200, maxWatts: 700, minSMClock: 345, maxSMClock: 1980, memoryClock: 2619, pcie: 12e9, nvlink: 180e9},
}

var hopperOrNewer = regexp.MustCompile(`\bG?[HB]\d{3}`)

// productOf returns the product of a model name. An unknown model has the limits of an H100.
func productOf(model string) product {
	p := products["H100"]
	for _, word := range strings.FieldsFunc(model, func(r rune) bool { return r == ' ' || r == '-' }) {
		if known, ok := products[word]; ok {
			p = known
		}
	}
	p.hasGPM = hopperOrNewer.MatchString(model)
	return p
}

// traffic is the number of bytes transferred by a device.
type traffic struct{ pcie, nvlink float64 }

const (
	idleTemperature = 34 // °C
	maxTemperature  = 105
	// throttleTemperature is the temperature in °C at which clock and power are halved.
	throttleTemperature = 87
)

// readGPU advances a whole GPU to now and returns its values.
func (s *Source) readGPU(d device.Device, state DeviceState, now time.Time) device.Reading {
	p := productOf(d.Model)
	l, dt, load := s.advanceGPU(d, state, p, now)
	r := device.Reading{Time: now}
	if !state.MIG { // MIG mode has no utilization of the whole device
		l.setUtilization(&r)
		l.setActivity(&r, p)
		l.setTraffic(&r, p, dt, len(d.Links) > 0)
	}
	load.set(&r, l, p)
	setMemory(&r, l.utilization, float64(d.MemoryMiB))
	setErrorCounters(&r)
	l.setLimits(&r, p, load.temperature)
	r.MIG, r.Instances = state.MIG, state.instances(d)
	state.setProcesses(&r)
	if state.MPS {
		r.Set(device.ComputeMode, device.ExclusiveProcess)
	}
	return r
}

// gpuLoad is the effect of the utilization on a GPU.
type gpuLoad struct{ clock, power, temperature float64 }

// advanceGPU advances a whole GPU to now. dt is the number of seconds since the last reading.
func (s *Source) advanceGPU(d device.Device, state DeviceState, p product, now time.Time) (l *liveState, dt float64, load gpuLoad) {
	l = s.liveStateOf(d.UUID, now)
	target := s.gpuTarget(d, state)
	if target > 0 {
		target = math.Min(1, math.Max(0, target+0.02*s.noise(d.UUID, now)))
	}
	dt = l.advance(target, now)
	l.temperature = approach(l.temperature, idleTemperature+42*l.utilization, dt, 8)
	load = gpuLoad{
		power:       p.idleWatts + 0.97*(p.maxWatts-p.idleWatts)*l.utilization,
		clock:       p.minSMClock + (p.maxSMClock-p.minSMClock)*math.Min(1, 2*l.utilization),
		temperature: math.Min(maxTemperature, l.temperature+state.Heat),
	}
	if load.temperature >= throttleTemperature {
		l.throttledNS += dt * 1e9
		load.clock, load.power = load.clock/2, load.power/2
	}
	l.energyMJ += load.power * dt * 1000
	return l, dt, load
}

// set sets the clocks, temperatures, power and energy of a GPU.
func (g gpuLoad) set(r *device.Reading, l *liveState, p product) {
	r.Set(device.SMClock, math.Round(g.clock))
	r.Set(device.MemClock, p.memoryClock)
	r.Set(device.GPUTemp, math.Round(g.temperature))
	r.Set(device.MemoryTemp, math.Round(g.temperature+8))
	r.Set(device.PowerUsage, math.Round(g.power*1000)/1000)
	r.Set(device.TotalEnergy, math.Round(l.energyMJ))
}

// gpuTarget returns the target utilization of a whole GPU: of its processes, of its MIG
// instances weighted by their memory, or of the device.
func (s *Source) gpuTarget(d device.Device, state DeviceState) float64 {
	if len(state.Processes) > 0 {
		return state.busy()
	}
	if !state.MIG {
		return s.targetUtilization(d, state.Background)
	}
	sum := 0.0
	for _, i := range state.instances(d) {
		sum += s.targetUtilization(i, state.Background) * float64(i.MemoryMiB)
	}
	return sum / float64(d.MemoryMiB)
}

// noise returns a value within -1..1 that depends only on the seed, the device and the second.
func (s *Source) noise(uuid string, now time.Time) float64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d/%s/%d", s.state.Seed, uuid, now.Unix()))
	return float64(binary.BigEndian.Uint32(sum[:4]))/float64(1<<31) - 1
}

func (l *liveState) setUtilization(r *device.Reading) {
	r.Set(device.GPUUtil, math.Round(100*l.utilization))
	r.Set(device.MemCopyUtil, math.Round(45*l.utilization))
	r.Set(device.EncUtil, 0)
	r.Set(device.DecUtil, 0)
}

// trainingActivity is the activity of the parts of a device in training, relative to its
// utilization. Training does not use FP64.
var trainingActivity = map[device.Field]float64{
	device.EngineActive: 1, device.SMActive: 0.9, device.SMOccupancy: 0.4, device.TensorActive: 0.55,
	device.DRAMActive: 0.45, device.FP64Active: 0, device.FP32Active: 0.12, device.FP16Active: 0.05,
}

// setActivity sets the GPM metrics of a product with GPM.
func (l *liveState) setActivity(r *device.Reading, p product) {
	if !p.hasGPM {
		return
	}
	for field, ratio := range trainingActivity {
		r.Set(field, ratio*l.utilization)
	}
}

// setTraffic adds the PCIe and NVLink traffic of the last dt seconds.
func (l *liveState) setTraffic(r *device.Reading, p product, dt float64, hasLinks bool) {
	pcie, nvlink := p.pcie*l.utilization, p.nvlink*l.utilization
	l.traffic.pcie += pcie * dt
	l.traffic.nvlink += nvlink * dt
	for field, v := range map[device.Field]float64{device.PCIeLinkGeneration: 5, device.PCIeMaxLinkGeneration: 5, device.PCIeLinkWidth: 16, device.PCIeMaxLinkWidth: 16, device.PerformanceState: 0} {
		r.Set(field, v)
	}
	r.Set(device.PCIeTx, pcie/4)
	r.Set(device.PCIeRx, pcie)
	r.Set(device.PCIeTxBytes, math.Round(l.traffic.pcie/4))
	r.Set(device.PCIeRxBytes, math.Round(l.traffic.pcie))
	if !hasLinks {
		return
	}
	r.Set(device.NVLinkBandwidth, math.Round(2*nvlink/1024/1000))
	r.Set(device.NVLinkTxRate, nvlink)
	r.Set(device.NVLinkRxRate, nvlink)
	r.Set(device.NVLinkTx, math.Round(l.traffic.nvlink))
	r.Set(device.NVLinkRx, math.Round(l.traffic.nvlink))
	for _, field := range []device.Field{device.NVLinkFlitErrors, device.NVLinkDataErrors, device.NVLinkReplays, device.NVLinkRecoveries} {
		r.Set(field, 0)
	}
}

func setErrorCounters(r *device.Reading) {
	for _, field := range []device.Field{device.PCIeReplay, device.VGPULicensed, device.ECCSingleVolatile, device.ECCDoubleVolatile,
		device.CorrectableRemappedRows, device.UncorrectableRemappedRows, device.RowRemapFailure, device.RowRemapPending} {
		r.Set(field, 0)
	}
}

// Bits of NVML's clock event reasons.
const (
	eventIdle      = 1 << 0
	eventSlowdown  = 1 << 3
	eventHWThermal = 1 << 6
)

// setLimits sets the power and temperature limits of the device and their effects.
func (l *liveState) setLimits(r *device.Reading, p product, temperature float64) {
	for field, watts := range map[device.Field]float64{device.PowerLimit: p.maxWatts, device.PowerManagementLimit: p.maxWatts,
		device.PowerMin: p.minWatts, device.PowerMax: p.maxWatts, device.PowerDefault: p.maxWatts} {
		r.Set(field, watts)
	}
	events := 0.0
	switch {
	case temperature >= throttleTemperature:
		events = eventSlowdown | eventHWThermal
	case l.utilization < 0.01:
		events = eventIdle
	}
	r.Set(device.ClockEvents, events)
	r.Set(device.SlowdownTemp, throttleTemperature)
	r.Set(device.ThermalMargin, throttleTemperature-math.Round(temperature))
	for field, ns := range map[device.Field]float64{device.PowerViolation: 0, device.ThermalViolation: l.throttledNS,
		device.HWThermalSlowdown: l.throttledNS, device.SWThermalSlowdown: 0, device.HWPowerBrake: 0} {
		r.Set(field, math.Round(ns))
	}
}

// setMemory sets the memory of a device or MIG instance, in MiB, by its utilization.
func setMemory(r *device.Reading, utilization, total float64) {
	setUsedMemory(r, math.Round(utilization*0.8*total), total)
}

func setUsedMemory(r *device.Reading, used, total float64) {
	reserved := math.Round(total * 0.006)
	r.Set(device.FBUsed, used)
	r.Set(device.FBReserved, reserved)
	r.Set(device.FBFree, total-used-reserved)
	r.Set(device.FBTotal, total)
	r.Set(device.FBUsedRatio, used/(total-reserved))
}

// setProcesses sets the processes of a device and their memory, if the state has processes.
func (d DeviceState) setProcesses(r *device.Reading) {
	if len(d.Processes) == 0 {
		return
	}
	r.Processes = &device.Processes{Memory: map[int]float64{}, Busy: map[int]float64{}}
	used := 0.0
	for _, p := range d.Processes {
		r.Processes.Memory[p.PID], r.Processes.Busy[p.PID] = float64(p.MemoryMiB<<20), 100*p.Busy
		used += float64(p.MemoryMiB)
	}
	setUsedMemory(r, used, float64(d.MemoryMiB))
}

// busy returns the utilization (0..1) caused by the processes of the device.
func (d DeviceState) busy() float64 {
	sum := 0.0
	for _, p := range d.Processes {
		sum += p.Busy
	}
	return math.Min(1, sum)
}
