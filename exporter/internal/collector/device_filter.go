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
type DeviceFilter struct{ devices, instances *numberSet }

// numberSet is a set of device numbers or ids of GPU instances. An empty set has all.
type numberSet struct{ numbers []int }

func (s *numberSet) has(n int) bool {
	return s != nil && (len(s.numbers) == 0 || slices.Contains(s.numbers, n))
}

// ParseDeviceFilter parses the value of dcgm-exporter's --devices: f, or g (whole devices)
// and i (MIG instances), each with an optional list of numbers, such as g:0,2-4 or g+i:0.
// Numbers after g are device numbers, and numbers after i are values of GPU_I_ID.
func ParseDeviceFilter(text string) (DeviceFilter, error) {
	f := DeviceFilter{}
	if strings.TrimSpace(text) == "f" {
		return f, nil
	}
	for part := range strings.SplitSeq(strings.TrimSpace(text), "+") {
		kind, list, isNumbered := strings.Cut(part, ":")
		set := map[string]**numberSet{"g": &f.devices, "i": &f.instances}[kind]
		if set == nil || *set != nil {
			return DeviceFilter{}, fmt.Errorf("must be f, g[:NUMBERS], i[:NUMBERS] or g[:NUMBERS]+i[:NUMBERS], such as g:0,2-4, not %q", text)
		}
		*set = &numberSet{}
		if !isNumbered {
			continue
		}
		var err error
		if (*set).numbers, err = parseNumbers(list); err != nil {
			return DeviceFilter{}, err
		}
	}
	return f, nil
}

// maxDeviceNumber limits the numbers of a filter.
const maxDeviceNumber = 1 << 10

// parseNumbers parses numbers and ranges such as 0,2-4.
func parseNumbers(list string) (numbers []int, err error) {
	for item := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(item), "-")
		if !isRange {
			last = first
		}
		from, err := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err != nil || err2 != nil || from < 0 || to < from || to > maxDeviceNumber {
			return nil, fmt.Errorf("%q must be a device number or a range such as 2-4", item)
		}
		for n := from; n <= to; n++ {
			numbers = append(numbers, n)
		}
	}
	return numbers, nil
}

// CheckDevices returns an error if the filter selects device numbers that the node does
// not have. If no source lists its devices, the numbers are not checked, because the
// devices may appear later. Ids of GPU instances are not checked, because they change with
// the partitioning.
func (c *Collector) CheckDevices(ctx context.Context) error {
	selected := c.cfg.Labels.Devices.devices
	if selected == nil || len(selected.numbers) == 0 {
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
	for _, n := range selected.numbers {
		if n >= count {
			return fmt.Errorf("--devices selects device %d, but this node has %d devices, numbered from 0", n, count)
		}
	}
	return nil
}

// isDefault reports whether the filter selects instances instead of their devices.
func (f DeviceFilter) isDefault() bool { return f.devices == nil && f.instances == nil }

// includes reports whether the filter selects the device.
func (f DeviceFilter) includes(d device.Device) bool {
	if d.Instance != nil {
		return f.isDefault() || f.instances.has(d.Instance.GI)
	}
	return f.isDefault() || f.devices.has(d.Index)
}

// prefersInstances reports whether the MIG instances of a device replace the device in
// the metrics that they have.
func (f DeviceFilter) prefersInstances(d *deviceSnapshot) bool {
	return f.isDefault() && len(d.instances) > 0
}
