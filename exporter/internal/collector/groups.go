package collector

import "plimsoll.dev/plimsoll/exporter/internal/device"

// largestGroup is how many of the devices are connected by NVLink, directly or
// through one another, or through the node's switches.
func largestGroup(devices []device.Device) (size int) {
	at := map[string][]int{} // who can be reached at an end
	for i, d := range devices {
		at[d.PCIBusID] = append(at[d.PCIBusID], i)
		for _, end := range d.Links {
			if end == device.NVSwitch {
				at[end] = append(at[end], i)
			}
		}
	}
	seen := make([]bool, len(devices))
	for i := range devices {
		size = max(size, reach(devices, at, seen, i))
	}
	return size
}

// reach counts the devices that are connected with device i and not seen yet.
func reach(devices []device.Device, at map[string][]int, seen []bool, i int) int {
	if seen[i] {
		return 0
	}
	seen[i] = true
	size := 1
	for _, end := range devices[i].Links {
		for _, next := range at[end] {
			size += reach(devices, at, seen, next)
		}
	}
	return size
}
