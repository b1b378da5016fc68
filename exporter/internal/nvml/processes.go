package nvml

import (
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// processGetters read the processes on a device. The calls take milliseconds, so they are
// only made if EnableProcesses was called.
var processGetters = []getter{
	{symbol: "nvmlDeviceGetComputeRunningProcesses_v3", read: readProcesses,
		fallback: &getter{symbol: "nvmlDeviceGetComputeRunningProcesses_v2", read: readProcesses,
			fallback: &getter{symbol: "nvmlDeviceGetComputeRunningProcesses", read: readProcesses}}},
	{symbol: "nvmlDeviceGetMPSComputeRunningProcesses_v3", read: readMPSProcesses},
	{symbol: "nvmlDeviceGetProcessUtilization", read: readProcessUtilization},
}

// EnableProcesses includes processes in the readings of whole devices. It must be called
// before the first call of Devices.
func (s *Source) EnableProcesses() { s.enabledGetters = append(s.enabledGetters, processGetters...) }

func readProcesses(h *deviceHandle, r *device.Reading) nvml.Return {
	list, ret := h.GetComputeRunningProcesses()
	return addProcesses(r, list, ret)
}

// readMPSProcesses reads the clients of an MPS server, which GetComputeRunningProcesses does
// not return.
func readMPSProcesses(h *deviceHandle, r *device.Reading) nvml.Return {
	list, ret := h.GetMPSComputeRunningProcesses()
	return addProcesses(r, list, ret)
}

// memoryNotAvailable is the memory of a process if the driver does not manage its memory.
const memoryNotAvailable = 1<<64 - 1

func addProcesses(r *device.Reading, list []nvml.ProcessInfo, ret nvml.Return) nvml.Return {
	if ret != nvml.SUCCESS {
		return ret
	}
	if r.Processes == nil {
		r.Processes = &device.Processes{Memory: map[int]float64{}}
	}
	for _, p := range list {
		bytes := float64(p.UsedGpuMemory)
		if p.UsedGpuMemory == memoryNotAvailable {
			bytes = 0
		}
		r.Processes.Memory[int(p.Pid)] += bytes
	}
	return nvml.SUCCESS
}

// readProcessUtilization sets the SM utilization of each process since the last reading. The
// driver buffers old samples, so the first reading requests the samples of the last second
// only.
func readProcessUtilization(h *deviceHandle, r *device.Reading) nvml.Return {
	if r.Processes == nil {
		return nvml.ERROR_NOT_SUPPORTED
	}
	if h.lastProcessSample == 0 {
		h.lastProcessSample = uint64(r.Time.Add(-time.Second).UnixMicro())
	}
	samples, ret := h.GetProcessUtilization(h.lastProcessSample)
	noSamples := ret == nvml.ERROR_NOT_FOUND || ret == nvml.ERROR_INSUFFICIENT_SIZE && samples != nil
	if ret != nvml.SUCCESS && !noSamples {
		return ret
	}
	sum, n := map[int]float64{}, map[int]float64{}
	for _, s := range samples {
		sum[int(s.Pid)] += float64(s.SmUtil)
		n[int(s.Pid)]++
		h.lastProcessSample = max(h.lastProcessSample, s.TimeStamp)
	}
	r.Processes.Busy = map[int]float64{}
	for pid := range sum {
		r.Processes.Busy[pid] = sum[pid] / n[pid]
	}
	return nvml.SUCCESS
}
