package collector

import "plimsoll.dev/plimsoll/exporter/internal/device"

// largestGroup returns the size of the largest group of devices that NVLink connects,
// directly, through other devices in the group, or through the node's switches.
func largestGroup(devices []device.Device) (size int) {
	byEnd := map[string][]int{} // devices by the remote end that leads to them
	for i, d := range devices {
		byEnd[d.PCIBusID] = append(byEnd[d.PCIBusID], i)
		for _, end := range d.Links {
			if end == device.NVSwitch {
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
