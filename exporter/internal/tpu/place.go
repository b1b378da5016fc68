package tpu

import (
	"cmp"
	"fmt"
	"slices"
)

// place the samples of a metric on chips, in the order of their devices: the runtime
// numbers devices in its own way, within the process or the whole slice. A chip has
// one sample, or one for each of its devices; with any other number it can't be told
// whose they are.
func place(values []sample, chips, devices int) ([][]float64, error) {
	each := 0
	switch len(values) {
	case chips:
		each = 1
	case chips * devices:
		each = devices
	default:
		return nil, fmt.Errorf("%d values for %d chips", len(values), chips)
	}
	ordered := slices.SortedStableFunc(slices.Values(values), func(a, b sample) int { return cmp.Compare(a.device, b.device) })
	for i := 1; i < len(ordered); i++ {
		if ordered[i].device == ordered[i-1].device {
			return nil, fmt.Errorf("device %d comes twice", ordered[i].device)
		}
	}
	placed := make([][]float64, chips)
	for i, s := range ordered {
		placed[i/each] = append(placed[i/each], s.value)
	}
	return placed, nil
}

// placeCores is place for what cores execute: one mark for each chip.
func placeCores(all []core, chips int) ([]uint64, error) {
	marks, order := map[int64]uint64{}, []int64(nil)
	for _, c := range all {
		if _, seen := marks[c.chip]; !seen {
			order = append(order, c.chip)
		}
		marks[c.chip] += c.mark // in whatever order they come
	}
	if len(order) != chips {
		return nil, fmt.Errorf("cores of %d chips for %d", len(order), chips)
	}
	slices.Sort(order)
	placed := make([]uint64, chips)
	for i, chip := range order {
		placed[i] = marks[chip]
	}
	return placed, nil
}

func sum(values []float64) (s float64) {
	for _, v := range values {
		s += v
	}
	return s
}

func mean(values []float64) float64 { return sum(values) / float64(len(values)) }
