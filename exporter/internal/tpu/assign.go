package tpu

import (
	"cmp"
	"fmt"
	"slices"
)

// assignSamples assigns the samples of a metric to chips, in the order of their device
// numbers. The runtime numbers devices within the process or within the slice, so only the
// order is meaningful. A chip has one sample, or one for each of its devices. Any other
// number of samples is an error.
func assignSamples(samples []sample, chips, devicesPerChip int) ([][]float64, error) {
	samplesPerChip := 0
	switch len(samples) {
	case chips:
		samplesPerChip = 1
	case chips * devicesPerChip:
		samplesPerChip = devicesPerChip
	default:
		return nil, fmt.Errorf("%d values for %d chips", len(samples), chips)
	}
	ordered := slices.SortedStableFunc(slices.Values(samples), func(a, b sample) int { return cmp.Compare(a.device, b.device) })
	for i := 1; i < len(ordered); i++ {
		if ordered[i].device == ordered[i-1].device {
			return nil, fmt.Errorf("duplicate device %d", ordered[i].device)
		}
	}
	assigned := make([][]float64, chips)
	for i, s := range ordered {
		assigned[i/samplesPerChip] = append(assigned[i/samplesPerChip], s.value)
	}
	return assigned, nil
}

// assignCores combines the marks of the cores of each chip and assigns them to chips, in the
// order of the runtime's chip numbers.
func assignCores(cores []core, chips int) ([]uint64, error) {
	marks, order := map[int64]uint64{}, []int64(nil)
	for _, c := range cores {
		if _, known := marks[c.chip]; !known {
			order = append(order, c.chip)
		}
		marks[c.chip] += c.mark // addition does not depend on the order of the cores
	}
	if len(order) != chips {
		return nil, fmt.Errorf("the core states are of %d chips, expected %d", len(order), chips)
	}
	slices.Sort(order)
	assigned := make([]uint64, chips)
	for i, chip := range order {
		assigned[i] = marks[chip]
	}
	return assigned, nil
}

func sum(values []float64) (s float64) {
	for _, v := range values {
		s += v
	}
	return s
}

func mean(values []float64) float64 { return sum(values) / float64(len(values)) }
