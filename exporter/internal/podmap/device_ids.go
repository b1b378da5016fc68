package podmap

import (
	"regexp"
	"strings"

	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

const (
	tpuResource  = "google.com/tpu"
	nvidiaDriver = "gpu.nvidia.com" // NVIDIA's driver for dynamic resource allocation

	// UnknownIDFormat is the reason in Map.Unmapped for a device id that matches no known format.
	UnknownIDFormat = "unknown_id_format"
)

var (
	deviceNode  = regexp.MustCompile(`^nvidia\d+$`)
	migInstance = regexp.MustCompile(`^(nvidia\d+/gi\d+|MIG-GPU-[0-9a-fA-F-]+/\d+/\d+)$`)
	claimedName = regexp.MustCompile(`^gpu-(\d+)(-mig-\d+-\d+-\d+)?$`)
	tpuDevice   = regexp.MustCompile(`^(?:accel|vfio/|vfio)?(\d+)$`)
)

// parseNVIDIA converts an id of an NVIDIA device plugin into the id of a device or of a
// MIG instance: GPU-<uuid>, MIG-<uuid>, GPU-<uuid>/<gi>/<ci>, nvidia0 or nvidia0/gi3.
// replica is the suffix of a time-sliced or virtual GPU: 3 for GPU-<uuid>::3, and 1 for
// nvidia0/gi3/vgpu1.
func parseNVIDIA(raw string) (id, replica string, ok bool) {
	id, replica, _ = strings.Cut(raw, "::")
	whole, vgpu, _ := strings.Cut(id, "/vgpu")
	switch {
	case strings.HasPrefix(id, "GPU-"):
		return id, replica, true
	case migInstance.MatchString(whole):
		return strings.TrimPrefix(whole, "MIG-"), replica + vgpu, true
	case deviceNode.MatchString(whole):
		return whole, replica + vgpu, true
	case strings.HasPrefix(id, "MIG-") && !strings.HasPrefix(id, "MIG-GPU-"):
		return id, replica, true
	}
	return "", "", false
}

// parseTPU converts an id of Google's device plugin into the id of a chip. The plugin
// names chips by their device nodes: accel0 for TPU v4 and older, and the number of
// the VFIO group for v5e and newer.
func parseTPU(raw string) (id string, ok bool) {
	m := tpuDevice.FindStringSubmatch(raw)
	if m == nil {
		return "", false
	}
	return "tpu" + m[1], true
}

// addClaimed records a device of a resource claim and calls hold with its id. NVIDIA's
// driver names devices gpu-<minor>, and MIG instances
// gpu-<minor>-mig-<profile>-<start>-<size>. Claims on other drivers are ignored.
func (m *Map) addClaimed(r *podresources.ClaimResource, hold func(id string)) {
	if r.DriverName != nvidiaDriver {
		return
	}
	m.UsesClaims = true
	name := claimedName.FindStringSubmatch(r.DeviceName)
	if name == nil {
		m.Unmapped[UnknownIDFormat]++
		return
	}
	id := "nvidia" + name[1]
	if name[2] != "" {
		id += "/" + name[2][1:]
	}
	if r.ShareId != nil {
		m.Shared[id] = true
	}
	hold(id)
}
