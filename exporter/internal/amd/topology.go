package amd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// node is a GPU or a partition in the topology of the kernel's compute driver (KFD).
type node struct {
	address string // PCI address of the GPU
	memory  int64  // bytes; 0 if unknown
}

// topology returns the nodes by render node. The kernel refuses a node whose device the
// container may not open. topology then returns the other nodes and an error.
func (s sysfs) topology() (map[string]node, error) {
	folders, err := filepath.Glob(filepath.Join(string(s), "class/kfd/kfd/topology/nodes/*"))
	if err != nil {
		return nil, err
	}
	nodes := map[string]node{}
	var failures []error
	for _, folder := range folders {
		properties, err := readProperties(filepath.Join(folder, "properties"))
		if err != nil {
			failures = append(failures, err)
			continue
		}
		minor := properties["drm_render_minor"]
		if minor <= 0 {
			continue // a CPU
		}
		n := node{address: pciAddress(properties["domain"], properties["location_id"])}
		banks, _ := filepath.Glob(filepath.Join(folder, "mem_banks/*/properties")) // the pattern is valid
		for _, bank := range banks {
			memory, err := readProperties(bank)
			if err != nil {
				failures = append(failures, err)
			}
			n.memory += memory["size_in_bytes"]
		}
		nodes["renderD"+strconv.FormatInt(minor, 10)] = n
	}
	return nodes, errors.Join(failures...)
}

// pciAddress returns the address of the GPU of a node. The last three bits of a location are
// the number of the partition.
func pciAddress(domain, location int64) string {
	return fmt.Sprintf("%04x:%02x:%02x.0", domain, location>>8&0xff, location>>3&0x1f)
}

// readProperties reads the lines "name value" of a file. Values that are no 64-bit numbers
// are left out.
func readProperties(path string) (map[string]int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	properties := map[string]int64{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			properties[name] = n
		}
	}
	return properties, nil
}
