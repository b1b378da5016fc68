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
// replica is what follows where the id is of one: GPU-<uuid>::3, nvidia0/gi3/vgpu1.
func plain(raw string) (id, replica string, ok bool) {
	id, replica, _ = strings.Cut(raw, "::")
	whole, vgpu, _ := strings.Cut(id, "/vgpu")
	switch {
	case strings.HasPrefix(id, "GPU-"):
		return id, replica, true
	case instance.MatchString(whole):
		return strings.TrimPrefix(whole, "MIG-"), replica + vgpu, true
	case node.MatchString(whole):
		return whole, replica + vgpu, true
	case strings.HasPrefix(id, "MIG-") && !strings.HasPrefix(id, "MIG-GPU-"):
		return id, replica, true
	}
	return "", "", false
}

// claimed notes a device of a claim. NVIDIA's driver for dynamic resources calls
// devices gpu-<minor>, and MIG instances gpu-<minor>-mig-<profile>-<start>-<size>;
// claims on other drivers are of no device here.
func claimed(r *podresources.ClaimResource, m *Map, use func(id, replica string)) {
	if r.DriverName != "gpu.nvidia.com" {
		return
	}
	m.Claims = true
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
	use(id, "")
}
