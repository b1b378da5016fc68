package podmap

import (
	"regexp"
	"strings"

	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

const unknownForm = "unknown device id form"

var (
	node        = regexp.MustCompile(`^nvidia\d+$`)
	claimedName = regexp.MustCompile(`^gpu-(\d+)(-mig-.+)?$`)
)

// plain turns the forms that device plugins use into the id of the whole device:
// GPU-<uuid>, GPU-<uuid>::<replica>, MIG-<uuid>, nvidia0, nvidia0/gi3/vgpu1.
func plain(raw string) (id string, shared, ok bool) {
	id, _, shared = strings.Cut(raw, "::")
	first, _, slice := strings.Cut(id, "/")
	switch {
	case strings.HasPrefix(id, "GPU-"):
		return id, shared, true
	case strings.HasPrefix(id, "MIG-GPU-"): // MIG-GPU-<uuid>/<gi>/<ci>
		return strings.TrimPrefix(first, "MIG-"), true, true
	case strings.HasPrefix(id, "MIG-"):
		return id, true, true
	case node.MatchString(first):
		return first, shared || slice, true
	}
	return "", false, false
}

// claimed notes a device of a claim. NVIDIA's driver for dynamic resources calls
// devices gpu-<minor>, and slices gpu-<minor>-mig-…; claims on other drivers are
// of no device here.
func claimed(r *podresources.ClaimResource, m *Map, use func(id string)) {
	if r.DriverName != "gpu.nvidia.com" {
		return
	}
	name := claimedName.FindStringSubmatch(r.DeviceName)
	if name == nil {
		m.Unmapped[unknownForm]++
		return
	}
	id := "nvidia" + name[1]
	if name[2] != "" || r.ShareId != nil {
		m.Shared[id] = true
	}
	use(id)
}
