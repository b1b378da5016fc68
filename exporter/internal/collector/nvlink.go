package collector

import (
	"fmt"
	"slices"
	"strings"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// linkEnds returns the remote ends of the NVLinks of a device. If the driver reports a
// fabric, switches connect the device only with the devices in its clique.
func linkEnds(d device.Device, r device.Reading) []string {
	if status, ok := r.Get(device.FabricStatus); !ok || status == 0 {
		return d.Links
	}
	ends := slices.DeleteFunc(slices.Clone(d.Links), func(end string) bool { return end == device.NVSwitch })
	if clique, ok := r.Get(device.FabricClique); ok {
		ends = append(ends, fmt.Sprintf("%s/%s/%g", device.NVSwitch, r.FabricCluster, clique))
	}
	return ends
}

// largestGroup returns the size of the largest group of devices that NVLink connects,
// directly, through other devices in the group, or through the node's switches.
func largestGroup(devices []device.Device) (size int) {
	byEnd := map[string][]int{} // devices by the remote end that leads to them
	for i, d := range devices {
		byEnd[d.PCIBusID] = append(byEnd[d.PCIBusID], i)
		for _, end := range d.Links {
			if strings.HasPrefix(end, device.NVSwitch) {
				byEnd[end] = append(byEnd[end], i)
			}
		}
	}
	seen := make([]bool, len(devices))
	for i := range devices {
		size = max(size, countConnected(devices, byEnd, seen, i))
	}
	return size
}

// countConnected counts device i and the devices connected to i that are not in seen.
func countConnected(devices []device.Device, byEnd map[string][]int, seen []bool, i int) int {
	if seen[i] {
		return 0
	}
	seen[i] = true
	size := 1
	for _, end := range devices[i].Links {
		for _, next := range byEnd[end] {
			size += countConnected(devices, byEnd, seen, next)
		}
	}
	return size
}
