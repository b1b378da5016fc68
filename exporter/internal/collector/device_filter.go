package collector

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// DeviceFilter selects the devices for dcgm-exporter's metrics. Plimsoll's own metrics
// cover every device. The zero value selects every MIG instance, and every device for
// the metrics that its instances do not have.
type DeviceFilter struct {
	kind    string // g for whole devices, i for MIG instances, empty for the default
	numbers []int  // of devices or GPU instances; empty for all
}

// ParseDeviceFilter parses the value of dcgm-exporter's --devices: f, g, g:0,2-4, i or
// i:0,1. Numbers after g are device numbers, and numbers after i are values of GPU_I_ID.
func ParseDeviceFilter(text string) (DeviceFilter, error) {
	kind, list, numbered := strings.Cut(strings.TrimSpace(text), ":")
	switch {
	case kind == "f" && !numbered:
		return DeviceFilter{}, nil
	case kind != "g" && kind != "i":
		return DeviceFilter{}, fmt.Errorf("must be f, g[:NUMBERS] or i[:NUMBERS], such as g:0,2-4, not %q", text)
	}
	f := DeviceFilter{kind: kind}
	for _, item := range strings.Split(list, ",") {
		if !numbered {
			break
		}
		first, last, isRange := strings.Cut(strings.TrimSpace(item), "-")
		if !isRange {
			last = first
		}
		from, err := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err != nil || err2 != nil || from < 0 || to < from || to > 1<<10 {
			return DeviceFilter{}, fmt.Errorf("%q must be a device number or a range such as 2-4", item)
		}
		for n := from; n <= to; n++ {
			f.numbers = append(f.numbers, n)
		}
	}
	return f, nil
}

// CheckDevices returns an error if the filter selects device numbers that the node does
// not have. If no source lists its devices, the numbers are not checked, because the
// devices may appear later. Ids of GPU instances are not checked, because they change with
// the partitioning.
func (c *Collector) CheckDevices(ctx context.Context) error {
	if f := c.cfg.Labels.Devices; f.kind != "g" || len(f.numbers) == 0 {
		return nil
	}
	if err := c.Collect(ctx); err != nil {
		c.cfg.Log.Warn("the device numbers of --devices are not checked", "err", err)
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	count := 0
	for _, v := range c.vendors {
		count += len(v.devices) + v.undescribed
	}
	for _, n := range c.cfg.Labels.Devices.numbers {
		if n >= count {
			return fmt.Errorf("--devices selects device %d, but this node has %d devices, numbered from 0", n, count)
		}
	}
	return nil
}

// includes reports whether the filter selects the device.
func (f DeviceFilter) includes(d device.Device) bool {
	number := d.Index
	if d.Instance != nil && f.kind == "i" {
		number = d.Instance.GI
	}
	if f.kind != "" && (f.kind == "i") != (d.Instance != nil) {
		return false
	}
	return len(f.numbers) == 0 || slices.Contains(f.numbers, number)
}

// prefersInstances reports whether the MIG instances of a device replace the device in
// the metrics that they have.
func (f DeviceFilter) prefersInstances(d *deviceSnapshot) bool {
	return f.kind != "g" && len(d.instances) > 0
}
