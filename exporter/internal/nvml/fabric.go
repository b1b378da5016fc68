package nvml

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// fabricFailed is the status of a device whose fabric manager finished with an error. The
// other statuses are the states of NVML.
const fabricFailed = nvml.GPU_FABRIC_STATE_COMPLETED + 1

// readFabric sets the state of the device in its NVLink fabric: its cluster and clique,
// and their health. Devices of the same clique can be used together, also on different
// nodes.
func readFabric(h *deviceHandle, r *device.Reading) nvml.Return {
	info, ret := h.GetGpuFabricInfoV().V3()
	hasHealth := ret == nvml.SUCCESS
	if ret == nvml.ERROR_ARGUMENT_VERSION_MISMATCH || ret == nvml.ERROR_FUNCTION_NOT_FOUND {
		var older nvml.GpuFabricInfo_v2
		older, ret = h.GetGpuFabricInfoV().V2()
		info = nvml.GpuFabricInfo_v3{ClusterUuid: older.ClusterUuid, Status: older.Status, CliqueId: older.CliqueId, State: older.State, HealthMask: older.HealthMask}
	}
	if ret != nvml.SUCCESS {
		return ret
	}
	isCompleted := info.State == nvml.GPU_FABRIC_STATE_COMPLETED
	if isCompleted && nvml.Return(info.Status) != nvml.SUCCESS {
		r.Set(device.FabricStatus, fabricFailed)
		return ret
	}
	r.Set(device.FabricStatus, float64(info.State))
	if !isCompleted {
		return ret
	}
	r.Set(device.FabricClique, float64(info.CliqueId))
	r.Set(device.FabricHealthMask, float64(info.HealthMask))
	if hasHealth {
		r.Set(device.FabricHealth, float64(info.HealthSummary))
	}
	u := info.ClusterUuid
	if u == [16]uint8{} {
		return ret // the fabric of a single node has no id
	}
	r.FabricCluster = fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
	return ret
}
