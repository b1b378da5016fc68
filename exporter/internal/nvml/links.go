package nvml

import (
	"context"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// linkInterval is the time after which the NVLinks of a device are read again. They are down
// until the fabric manager has started, and a failed link stays down. The calls are as many as
// those of two readings.
const linkInterval = 5 * time.Minute

// refreshLinks reads the NVLinks of a device again if it is time. The next call of Devices
// returns them.
func (s *Source) refreshLinks(ctx context.Context, h *deviceHandle, d device.Device, now time.Time) {
	h.mu.Lock() // hasStalledCall sees a hang of the calls below
	defer h.mu.Unlock()
	if h.linksRead.IsZero() {
		h.linksRead = now // right after the listing
	}
	if now.Sub(h.linksRead) < linkInterval {
		return
	}
	h.linksRead = now
	hasFailed := false
	links := s.linkPeers(h.Device, func(_ string, ret nvml.Return) {
		hasFailed = hasFailed || ret != nvml.SUCCESS && ret != nvml.ERROR_NOT_SUPPORTED // the driver does not know each peer
		device.ReportProgress(ctx)
	})
	if hasFailed {
		return // the last known links stay
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.devices {
		if s.handles[d.UUID] == h && s.devices[i].UUID == d.UUID {
			s.devices[i].Links = links
		}
	}
}

// linkPeers returns the peers of a device's active NVLinks, sorted and without duplicates:
// the PCI bus ID of another device, or device.NVSwitch. report receives the result of each
// call.
func (s *Source) linkPeers(handle nvml.Device, report func(property string, ret nvml.Return)) []string {
	if !s.Has("nvmlDeviceGetNvLinkState") || !s.Has("nvmlDeviceGetNvLinkRemotePciInfo_v2") {
		return nil
	}
	var peers []string
	for link := range nvml.NVLINK_MAX_LINKS {
		state, ret := handle.GetNvLinkState(link)
		if ret == nvml.ERROR_INVALID_ARGUMENT || ret == nvml.ERROR_NOT_SUPPORTED {
			break // the device has no more links
		}
		report("NVLink state", ret)
		if ret != nvml.SUCCESS || state != nvml.FEATURE_ENABLED {
			continue
		}
		if s.isSwitchLink(handle, link) {
			peers = append(peers, device.NVSwitch)
			continue
		}
		pci, ret := handle.GetNvLinkRemotePciInfo(link)
		if ret == nvml.SUCCESS {
			peers = append(peers, busID(pci))
		}
		report("NVLink peer", ret)
	}
	slices.Sort(peers)
	return slices.Compact(peers)
}

// isSwitchLink reports whether a link is known to lead to an NVSwitch.
func (s *Source) isSwitchLink(handle nvml.Device, link int) bool {
	if !s.Has("nvmlDeviceGetNvLinkRemoteDeviceType") {
		return false
	}
	peer, ret := handle.GetNvLinkRemoteDeviceType(link)
	return ret == nvml.SUCCESS && peer == nvml.NVLINK_DEVICE_TYPE_SWITCH
}
