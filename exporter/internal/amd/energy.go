package amd

import (
	"encoding/binary"
	"math"
	"slices"
)

// layout is the format and content revision of a file gpu_metrics, which are its third and
// fourth byte. The kernel's header kgd_pp_interface.h defines the layouts.
type layout [2]byte

// energyOffsets are the positions of the energy counter. Its unit is 2^-16 J in these
// layouts. Other layouts have no counter, or none of a known unit.
var energyOffsets = map[layout]int{{1, 3}: 24, {1, 4}: 24, {1, 5}: 88, {1, 6}: 16, {1, 7}: 24, {1, 8}: 24}

var (
	// In layout 1.3 the unit depends on the GPU. It is known for the MI200 series.
	mi200 = []string{"0x7408", "0x740c", "0x740f", "0x7410"}
	// Layout 1.6 exists in two forms. Only the one of this size is in released kernels.
	sizeOfLayout16 uint16 = 1664
)

// decodeEnergy returns the energy counter in a file gpu_metrics of a GPU with this PCI device
// ID, in mJ since the driver was loaded. ok is false if the GPU has no known counter.
func decodeEnergy(content []byte, pciID string) (mJ float64, ok bool) {
	if len(content) < 4 {
		return 0, false
	}
	revision := layout{content[2], content[3]}
	offset, ok := energyOffsets[revision]
	switch {
	case !ok || len(content) < offset+8:
		return 0, false
	case revision == layout{1, 3} && !slices.Contains(mi200, pciID):
		return 0, false
	case revision == layout{1, 6} && binary.LittleEndian.Uint16(content) != sizeOfLayout16:
		return 0, false
	}
	counter := binary.LittleEndian.Uint64(content[offset:])
	if counter == 0 || counter == math.MaxUint64 { // not measured
		return 0, false
	}
	return float64(counter) / (1 << 16) * 1000, true
}
