package device

import "fmt"

// Instance is what MIG cut off a device.
type Instance struct {
	Parent  string // UUID of the device it was cut off
	Profile string // 1g.10gb, or 1c.2g.20gb where a compute instance is less than its GPU instance
	GI, CI  int    // ids of its GPU instance and compute instance
	// Placement as claims write it, profile id, start and size: 19-0-1; "" where the
	// driver does not tell.
	Placement string
}

// Names are what device plugins and claims call the device.
func (d Device) Names() []string {
	if d.Instance == nil {
		return []string{d.UUID, d.Minor}
	}
	i := d.Instance
	names := []string{d.UUID, fmt.Sprintf("%s/gi%d", d.Minor, i.GI), fmt.Sprintf("%s/%d/%d", i.Parent, i.GI, i.CI)}
	if i.Placement != "" {
		names = append(names, d.Minor+"/mig-"+i.Placement)
	}
	return names
}
