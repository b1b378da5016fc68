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

// Names returns every id by which device plugins and resource claims refer to the device.
func (d Device) Names() []string {
	if d.KubeletID != "" {
		return []string{d.UUID, d.Minor, d.KubeletID}
	}
	if d.Instance == nil || d.Vendor != NVIDIA {
		return []string{d.UUID, d.Minor}
	}
	i := d.Instance
	names := []string{d.UUID, fmt.Sprintf("%s/gi%d", d.Minor, i.GI), fmt.Sprintf("%s/%d/%d", i.Parent, i.GI, i.CI)}
	if i.Placement != "" {
		names = append(names, d.Minor+"/mig-"+i.Placement)
	}
	return names
}
