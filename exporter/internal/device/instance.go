package device

import "fmt"

// Instance is a MIG instance of a device, or a partition of an AMD GPU.
type Instance struct {
	Parent  string // UUID of the partitioned device
	Profile string // 1g.10gb; 1c.2g.20gb if the compute instance is smaller than its GPU instance; CPX-NPS4 for AMD
	GI, CI  int    // ids of the GPU instance and the compute instance; GI is the number of an AMD partition
	// Placement identifies the GPU instance as resource claims do: the id of its profile
	// and its first memory slice, such as 19-0. Empty if the driver does not report it.
	Placement string
}

// Names returns every id by which device plugins and resource claims refer to the device. A
// device without a device node has no name of it.
func (d Device) Names() []string {
	names := []string{d.UUID}
	if d.Instance == nil || d.Vendor != NVIDIA {
		for _, name := range []string{d.Minor, d.KubeletID} {
			if name != "" {
				names = append(names, name)
			}
		}
		return names
	}
	i := d.Instance
	if d.Minor != "" {
		names = append(names, fmt.Sprintf("%s/gi%d", d.Minor, i.GI))
	}
	names = append(names, fmt.Sprintf("%s/%d/%d", i.Parent, i.GI, i.CI))
	if d.Minor != "" && i.Placement != "" {
		names = append(names, d.Minor+"/mig-"+i.Placement)
	}
	return names
}
