package podmap

import "regexp"

const tpuResource = "google.com/tpu"

var tpuNode = regexp.MustCompile(`^(?:accel|vfio/|vfio)?(\d+)$`)

// chip turns the ids of Google's device plugin into the chip's: it calls chips by
// their device nodes, accel0 up to v4, and by the vfio group alone from v5e.
func chip(raw string) (id string, ok bool) {
	m := tpuNode.FindStringSubmatch(raw)
	if m == nil {
		return "", false
	}
	return "tpu" + m[1], true
}
