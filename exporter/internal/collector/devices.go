package collector

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// Devices are those that have dcgm-exporter's metrics; the others are counted all the
// same. The zero value is every instance, and every device for what no instance tells.
type Devices struct {
	kind    string // g for whole devices, i for MIG instances, "" for instances where there are any
	numbers []int  // of the devices, or of the GPU instances; all for none
}

// ParseDevices reads dcgm-exporter's form: f, g, g:0,2-4, i or i:0,1, where a number
// after i is that of GPU instances, as GPU_I_ID tells it.
func ParseDevices(text string) (Devices, error) {
	kind, list, numbered := strings.Cut(strings.TrimSpace(text), ":")
	switch {
	case kind == "f" && !numbered:
		return Devices{}, nil
	case kind != "g" && kind != "i":
		return Devices{}, fmt.Errorf("must be f, g[:NUMBERS] or i[:NUMBERS], such as g:0,2-4, not %q", text)
	}
	d := Devices{kind: kind}
	for _, part := range strings.Split(list, ",") {
		if !numbered {
			break
		}
		first, last, ranged := strings.Cut(strings.TrimSpace(part), "-")
		if !ranged {
			last = first
		}
		from, err := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err != nil || err2 != nil || from < 0 || to < from || to > 1<<10 {
			return Devices{}, fmt.Errorf("%q is no number of a device, nor a range such as 2-4", part)
		}
		for n := from; n <= to; n++ {
			d.numbers = append(d.numbers, n)
		}
	}
	return d, nil
}

func (s Devices) shows(d device.Device) bool {
	number := d.Index
	if d.Instance != nil && s.kind == "i" {
		number = d.Instance.GI
	}
	if s.kind != "" && (s.kind == "i") != (d.Instance != nil) {
		return false
	}
	return len(s.numbers) == 0 || slices.Contains(s.numbers, number)
}

// inParts tells whether a device's instances stand for it in what they can tell.
func (s Devices) inParts(k *known) bool { return s.kind != "g" && len(k.parts) > 0 }
