package amd

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// driverName is the name of the kernel's driver. Older GPUs have the driver radeon, which
// has no sensors for computing.
const driverName = "amdgpu"

// sysfs is the path of a mounted sysfs.
type sysfs string

// card is a graphics device of the driver: a GPU, or a partition of one.
type card struct {
	name   string // card1
	device string // PCI address of a GPU, such as 0000:19:00.0; amdgpu_xcp_3 for a partition
	render string // render node, such as renderD129; empty if there is none
}

// isPartition reports whether the card is a partition other than the first of a GPU. The
// first has the PCI device of the GPU.
func (c card) isPartition() bool { return strings.HasPrefix(c.device, "amdgpu_xcp") }

// cardName matches the cards in class/drm. The other entries are connectors and render nodes.
var cardName = regexp.MustCompile(`^card\d+$`)

// cards returns the graphics devices of the driver: the GPUs in the order of their PCI
// addresses, then the partitions in the order of their render nodes.
func (s sysfs) cards() ([]card, error) {
	entries, err := os.ReadDir(filepath.Join(string(s), "class/drm"))
	if err != nil && (!errors.Is(err, fs.ErrNotExist) || !s.exists("class")) {
		return nil, fmt.Errorf("list the graphics devices: --amd-sysfs-root must be a mounted sysfs: %w", err)
	}
	var cards []card
	for _, e := range entries {
		if !cardName.MatchString(e.Name()) {
			continue
		}
		path := s.ofCard(e.Name(), "")
		target, err := filepath.EvalSymlinks(path)
		if err != nil {
			continue // the device was removed in the meantime
		}
		c := card{name: e.Name(), device: filepath.Base(target), render: renderNode(path)}
		driver, _ := filepath.EvalSymlinks(filepath.Join(path, "driver")) // a virtual device has none
		if c.isPartition() || filepath.Base(driver) == driverName {
			cards = append(cards, c)
		}
	}
	slices.SortFunc(cards, func(a, b card) int {
		if a.isPartition() && b.isPartition() {
			return cmp.Or(cmp.Compare(len(a.render), len(b.render)), cmp.Compare(a.render, b.render))
		}
		return cmp.Compare(a.device, b.device) // an address is before amdgpu_xcp
	})
	return cards, nil
}

// renderNode returns the render node of the device in a folder.
func renderNode(path string) string {
	nodes, _ := filepath.Glob(filepath.Join(path, "drm", "renderD*")) // the pattern is valid
	if len(nodes) == 0 {
		return ""
	}
	return filepath.Base(nodes[0])
}

// ofCard returns the path of an attribute of a card's device.
func (s sysfs) ofCard(card, name string) string {
	return filepath.Join(string(s), "class/drm", card, "device", name)
}

func (s sysfs) exists(path string) bool {
	_, err := os.Stat(filepath.Join(string(s), path))
	return err == nil
}

// text returns the content of an attribute of a card's device, or an empty string if the
// attribute cannot be read.
func (s sysfs) text(card, name string) string {
	content, err := os.ReadFile(s.ofCard(card, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content))
}

// models are the product names of data center GPUs by PCI device ID, from AMD's table
// amdgpu.ids. They apply if the board does not report its name.
var models = map[string]string{
	"0x738c": "AMD Instinct MI100", "0x7408": "AMD Instinct MI250X", "0x740c": "AMD Instinct MI250", "0x740f": "AMD Instinct MI210",
	"0x74a0": "AMD Instinct MI300A", "0x74a1": "AMD Instinct MI300X", "0x74a2": "AMD Instinct MI308X", "0x74a5": "AMD Instinct MI325X",
	"0x74b5": "AMD Instinct MI300X VF", "0x74b9": "AMD Instinct MI325X VF", "0x75a0": "AMD Instinct MI350X", "0x75a3": "AMD Instinct MI355X",
}

// addressUUID returns the UUID of a GPU that has no id of its own.
func addressUUID(node, address string) string { return "AMD-" + node + "-" + address }

// identify describes the GPU of a card and returns its id. It fails if the driver does not
// report the memory, and if the id cannot be read.
func (s sysfs) identify(c card, node string) (d device.Device, id string, err error) {
	bytes, err := strconv.ParseInt(s.text(c.name, "mem_info_vram_total"), 10, 64)
	if err != nil {
		return d, "", fmt.Errorf("read the memory of %s: %w", c.device, err)
	}
	if id, err = s.id(c); err != nil {
		return d, "", err
	}
	d = device.Device{Vendor: device.AMD, UUID: addressUUID(node, c.device), Minor: c.render, KubeletID: c.device, PCIBusID: c.device, MemoryMiB: bytes >> 20}
	if id != "" {
		d.UUID = "GPU-" + id // as ROCR_VISIBLE_DEVICES expects
	}
	pciID := s.text(c.name, "device")
	d.Model = cmp.Or(s.text(c.name, "product_name"), models[pciID], "AMD GPU "+strings.TrimPrefix(pciID, "0x"))
	version, _ := os.ReadFile(filepath.Join(string(s), "module", driverName, "version")) // the kernel's own driver has none
	d.Driver = strings.TrimSpace(string(version))
	return d, id, nil
}

// id returns the id of the GPU of a card, which the driver keeps in memory. It is empty if the
// GPU has none.
func (s sysfs) id(c card) (string, error) {
	text, err := os.ReadFile(s.ofCard(c.name, "unique_id"))
	if err != nil && !isUnsupported(err) {
		return "", fmt.Errorf("read the id of %s: %w", c.device, err)
	}
	id := strings.TrimSpace(string(text))
	if strings.Trim(id, "0") == "" {
		return "", nil
	}
	return id, nil
}

// profile returns the compute and memory partition mode of a GPU, such as CPX-NPS4. It is
// empty if the GPU is not partitioned. It fails if the driver does not report a mode that is
// known here: during a reset the mode cannot be read, and after a failed change the driver
// reports UNKNOWN.
func (s sysfs) profile(card string) (string, error) {
	content, err := os.ReadFile(s.ofCard(card, "current_compute_partition"))
	if err != nil && !isUnsupported(err) {
		return "", err
	}
	switch compute := strings.TrimSpace(string(content)); compute {
	case "DPX", "TPX", "QPX", "CPX":
		return strings.TrimSuffix(compute+"-"+s.text(card, "current_memory_partition"), "-"), nil
	case "SPX", "": // empty if the GPU has no partition modes
		return "", nil
	default:
		return "", fmt.Errorf("unknown compute partition mode %q", compute)
	}
}

// hive returns the id of the GPUs that xGMI links connect with the GPU of a card. It is
// empty if there are none.
func (s sysfs) hive(card string) string {
	if card == "" {
		return ""
	}
	id := s.text(card, "xgmi_hive_info/xgmi_hive_id")
	if strings.Trim(id, "0") == "" {
		return ""
	}
	return id
}
