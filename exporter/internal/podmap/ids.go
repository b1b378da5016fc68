package podmap

import (
	"regexp"
	"strings"

	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

const unknownForm = "unknown device id form"

var (
	node        = regexp.MustCompile(`^nvidia\d+$`)
	instance    = regexp.MustCompile(`^(nvidia\d+/gi\d+|MIG-GPU-[0-9a-fA-F-]+/\d+/\d+)$`)
	claimedName = regexp.MustCompile(`^gpu-(\d+)(-mig-\d+-\d+-\d+)?$`)
)

// plain turns the forms that device plugins use into the id of a device or of a
// MIG instance: GPU-<uuid>, MIG-<uuid>, GPU-<uuid>/<gi>/<ci>, nvidia0, nvidia0/gi3.
// shared tells that the id is of a replica: GPU-<uuid>::3, nvidia0/gi3/vgpu1.
func plain(raw string) (id string, shared, ok bool) {
	id, _, shared = strings.Cut(raw, "::")
	whole, _, vgpu := strings.Cut(id, "/vgpu")
	switch {
	case strings.HasPrefix(id, "GPU-"):
		return id, shared, true
	case instance.MatchString(whole):
		return strings.TrimPrefix(whole, "MIG-"), shared || vgpu, true
	case node.MatchString(whole):
		return whole, shared || vgpu, true
	case strings.HasPrefix(id, "MIG-") && !strings.HasPrefix(id, "MIG-GPU-"):
		return id, shared, true
	}
	return "", false, false
}

// claimed notes a device of a claim. NVIDIA's driver for dynamic resources calls
// devices gpu-<minor>, and MIG instances gpu-<minor>-mig-<profile>-<start>-<size>;
// claims on other drivers are of no device here.
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
	if name[2] != "" {
		id += "/" + name[2][1:]
	}
	if r.ShareId != nil {
		m.Shared[id] = true
	}
	use(id)
}
