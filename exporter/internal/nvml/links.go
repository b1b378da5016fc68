package nvml

import (
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// links are the far ends of a device's active NVLinks, each once, in order.
func (s *Source) links(handle nvml.Device) []string {
	if !s.has("nvmlDeviceGetNvLinkState") || !s.has("nvmlDeviceGetNvLinkRemotePciInfo_v2") {
		return nil
	}
	kinds := s.has("nvmlDeviceGetNvLinkRemoteDeviceType")
	var ends []string
	for link := range nvml.NVLINK_MAX_LINKS {
		state, ret := handle.GetNvLinkState(link)
		if ret == nvml.ERROR_INVALID_ARGUMENT || ret == nvml.ERROR_NOT_SUPPORTED {
			break // it has no more links
		}
		if ret != nvml.SUCCESS || state != nvml.FEATURE_ENABLED {
			continue
		}
		if kinds {
			if kind, ret := handle.GetNvLinkRemoteDeviceType(link); ret == nvml.SUCCESS && kind == nvml.NVLINK_DEVICE_TYPE_SWITCH {
				ends = append(ends, device.NVSwitch)
				continue
			}
		}
		if pci, ret := handle.GetNvLinkRemotePciInfo(link); ret == nvml.SUCCESS {
			ends = append(ends, busID(pci))
		}
	}
	slices.Sort(ends)
	return slices.Compact(ends)
}

func busID(pci nvml.PciInfo) string {
	return fmt.Sprintf("%08X:%02X:%02X.0", pci.Domain, pci.Bus, pci.Device)
}
