package nvml

import (
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// processGetters tell which processes use a device. They take milliseconds, so that
// they are asked only where processes are attributed to pods.
var processGetters = []getter{
	{symbol: "nvmlDeviceGetComputeRunningProcesses_v3", get: processes,
		instead: &getter{symbol: "nvmlDeviceGetComputeRunningProcesses_v2", get: processes,
			instead: &getter{symbol: "nvmlDeviceGetComputeRunningProcesses", get: processes}}},
	{symbol: "nvmlDeviceGetMPSComputeRunningProcesses_v3", get: mpsProcesses},
	{symbol: "nvmlDeviceGetProcessUtilization", get: busy},
}

// TellProcesses makes readings of whole devices tell their processes.
func (s *Source) TellProcesses() { s.asked = append(s.asked, processGetters...) }

func processes(u *unit, r *device.Reading) nvml.Return {
	list, ret := u.GetComputeRunningProcesses()
	return addProcesses(r, list, ret)
}

// mpsProcesses are the clients of an MPS server, which the other list leaves out.
func mpsProcesses(u *unit, r *device.Reading) nvml.Return {
	list, ret := u.GetMPSComputeRunningProcesses()
	return addProcesses(r, list, ret)
}

// notAvailable is what stands for a process' memory that the driver does not manage.
const notAvailable = 1<<64 - 1

func addProcesses(r *device.Reading, list []nvml.ProcessInfo, ret nvml.Return) nvml.Return {
	if ret != nvml.SUCCESS {
		return ret
	}
	if r.Processes == nil {
		r.Processes = &device.Processes{Memory: map[int]float64{}}
	}
	for _, p := range list {
		bytes := float64(p.UsedGpuMemory)
		if p.UsedGpuMemory == notAvailable {
			bytes = 0
		}
		r.Processes.Memory[int(p.Pid)] += bytes
	}
	return nvml.SUCCESS
}

// busy is how much of the time since the last reading each process kept the SMs
// busy. The driver keeps samples for a while, and asked for all since 0 it gives
// those of long ago as well.
func busy(u *unit, r *device.Reading) nvml.Return {
	if r.Processes == nil {
		return nvml.ERROR_NOT_SUPPORTED
	}
	if u.newest == 0 {
		u.newest = uint64(r.Time.Add(-time.Second).UnixMicro())
	}
	samples, ret := u.GetProcessUtilization(u.newest)
	nobody := ret == nvml.ERROR_NOT_FOUND || ret == nvml.ERROR_INSUFFICIENT_SIZE && samples != nil
	if ret != nvml.SUCCESS && !nobody {
		return ret
	}
	sum, n := map[int]float64{}, map[int]float64{}
	for _, s := range samples {
		sum[int(s.Pid)] += float64(s.SmUtil)
		n[int(s.Pid)]++
		u.newest = max(u.newest, s.TimeStamp)
	}
	r.Processes.Busy = map[int]float64{}
	for pid := range sum {
		r.Processes.Busy[pid] = sum[pid] / n[pid]
	}
	return nvml.SUCCESS
}
