// Package fake builds a sysfs with AMD GPUs for tests.
package fake

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Sysfs is a folder with the structure of sysfs.
type Sysfs struct {
	Root string
	t    testing.TB
}

// New returns a sysfs of a node without GPUs.
func New(t testing.TB) *Sysfs {
	t.Helper()
	s := &Sysfs{t.TempDir(), t}
	for _, folder := range []string{"bus/pci/devices", "class/drm", "bus/pci/drivers/amdgpu"} {
		s.mkdir(folder)
	}
	return s
}

func (s *Sysfs) mkdir(path string) {
	s.t.Helper()
	if err := os.MkdirAll(filepath.Join(s.Root, path), 0o700); err != nil {
		s.t.Fatal(err)
	}
}

func (s *Sysfs) link(target, path string) {
	s.t.Helper()
	s.mkdir(filepath.Dir(path))
	relative, err := filepath.Rel(filepath.Dir(filepath.Join(s.Root, path)), filepath.Join(s.Root, target))
	if err == nil {
		err = os.Symlink(relative, filepath.Join(s.Root, path))
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// mi300x are the attributes of an idle MI300X.
var mi300x = map[string]string{
	"vendor": "0x1002", "device": "0x74a1", "product_name": "AMD Instinct MI300X OAM",
	"mem_info_vram_total": "206141652992", "mem_info_vram_used": "298844160", "gpu_busy_percent": "0", "mem_busy_percent": "0",
	"current_compute_partition": "SPX", "current_memory_partition": "NPS1",
	"hwmon/hwmon3/name": "amdgpu", "hwmon/hwmon3/power1_input": "139000000", "hwmon/hwmon3/power1_cap": "750000000",
	"hwmon/hwmon3/temp2_label": "junction", "hwmon/hwmon3/temp2_input": "41000", "hwmon/hwmon3/temp2_crit": "100000",
	"hwmon/hwmon3/temp3_label": "mem", "hwmon/hwmon3/temp3_input": "34000", "hwmon/hwmon3/temp3_crit": "105000",
	"hwmon/hwmon3/freq1_input": "132000000", "hwmon/hwmon3/freq1_label": "sclk", "hwmon/hwmon3/freq2_input": "900000000",
}

// AddGPU adds an idle MI300X with the driver. Its card and render node have the numbers card
// and 128 + card.
func (s *Sysfs) AddGPU(address string, card int) {
	s.t.Helper()
	path := "devices/pci0000:00/" + address
	s.mkdir(path)
	s.link(path, "bus/pci/devices/"+address)
	for name, value := range mi300x {
		s.Set(address, name, value)
	}
	s.Set(address, "unique_id", fmt.Sprintf("a1b2c3d4%08x", card))
	s.SetEnergy(address, 1, 7, 24, 1<<16)
	s.Bind(address, card)
}

// Bind binds the driver to a GPU.
func (s *Sysfs) Bind(address string, card int) {
	s.t.Helper()
	s.link("bus/pci/drivers/amdgpu", "devices/pci0000:00/"+address+"/driver")
	s.addCard("devices/pci0000:00/"+address, card)
}

// addCard adds the card and the render node of a device.
func (s *Sysfs) addCard(path string, card int) {
	name := fmt.Sprintf("card%d", card)
	s.mkdir(fmt.Sprintf("%s/drm/renderD%d", path, 128+card))
	s.mkdir(fmt.Sprintf("%s/drm/%s", path, name))
	s.link(path, fmt.Sprintf("%s/drm/%s/device", path, name))
	s.link(path+"/drm/"+name, "class/drm/"+name)
}

// Unbind removes the driver of a GPU.
func (s *Sysfs) Unbind(address string) {
	s.t.Helper()
	path := filepath.Join(s.Root, "devices/pci0000:00", address)
	cards, err := filepath.Glob(filepath.Join(path, "drm/card*"))
	failures := []error{err}
	for _, card := range cards {
		failures = append(failures, os.Remove(filepath.Join(s.Root, "class/drm", filepath.Base(card))))
	}
	failures = append(failures, os.RemoveAll(filepath.Join(path, "drm")), os.Remove(filepath.Join(path, "driver")))
	if err := errors.Join(failures...); err != nil {
		s.t.Fatal(err)
	}
}

// Remove removes a GPU from the PCI bus.
func (s *Sysfs) Remove(address string) {
	s.t.Helper()
	s.Unbind(address)
	if err := errors.Join(os.Remove(filepath.Join(s.Root, "bus/pci/devices", address)), os.RemoveAll(filepath.Join(s.Root, "devices/pci0000:00", address))); err != nil {
		s.t.Fatal(err)
	}
}

// Set sets an attribute of a GPU.
func (s *Sysfs) Set(address, name, value string) {
	s.t.Helper()
	s.write("devices/pci0000:00/"+address+"/"+name, value+"\n")
}

// Break makes every read of an attribute fail with an error that is not ENOENT.
func (s *Sysfs) Break(address, name string) {
	s.t.Helper()
	s.Unset(address, name)
	s.mkdir("devices/pci0000:00/" + address + "/" + name)
}

// Unset removes an attribute.
func (s *Sysfs) Unset(address, name string) {
	s.t.Helper()
	if err := os.RemoveAll(filepath.Join(s.Root, "devices/pci0000:00", address, name)); err != nil {
		s.t.Fatal(err)
	}
}

// SetEnergy writes a file gpu_metrics of the layout format.content, with the energy counter
// at offset in units of 2^-16 J.
func (s *Sysfs) SetEnergy(address string, format, content byte, offset int, counter uint64) {
	s.t.Helper()
	metrics := make([]byte, 1664)
	binary.LittleEndian.PutUint16(metrics, uint16(len(metrics)))
	metrics[2], metrics[3] = format, content
	binary.LittleEndian.PutUint64(metrics[offset:], counter)
	s.write("devices/pci0000:00/"+address+"/gpu_metrics", string(metrics))
}

// Partition puts a GPU into a partition mode, such as CPX and NPS4, with cards for the
// partitions after the first. The topology contains them.
func (s *Sysfs) Partition(address, compute, memory string, firstCard int, cards ...int) {
	s.t.Helper()
	s.Set(address, "current_compute_partition", compute)
	s.Set(address, "current_memory_partition", memory)
	for i, card := range append([]int{firstCard}, cards...) {
		if i > 0 {
			name := fmt.Sprintf("amdgpu_xcp_%d", card)
			s.mkdir("devices/platform/" + name)
			s.addCard("devices/platform/"+name, card)
		}
		s.addNode(address, i, 128+card, 206141652992/int64(1+len(cards)))
	}
}

// addNode adds a node to the topology of the compute driver. Node 0 is a CPU.
func (s *Sysfs) addNode(address string, partition, renderMinor int, memory int64) {
	s.t.Helper()
	const nodes = "class/kfd/kfd/topology/nodes/"
	s.write(nodes+"0/properties", "cpu_cores_count 96\ndrm_render_minor 0\n")
	part := strings.FieldsFunc(address, func(r rune) bool { return r == ':' || r == '.' })
	var numbers [3]int64
	for i := range numbers {
		n, err := strconv.ParseInt(part[i], 16, 64)
		if err != nil {
			s.t.Fatal(err)
		}
		numbers[i] = n
	}
	location := numbers[1]<<8 | numbers[2]<<3 | int64(partition)
	folder := fmt.Sprintf("%s%d/", nodes, renderMinor)
	s.write(folder+"properties", fmt.Sprintf("simd_count 152\nlocation_id %d\ndomain %d\ndrm_render_minor %d\nunique_id 18381201043546353665\n", location, numbers[0], renderMinor))
	s.write(folder+"mem_banks/0/properties", fmt.Sprintf("heap_type 1\nsize_in_bytes %d\n", memory))
}

func (s *Sysfs) write(path, content string) {
	s.t.Helper()
	s.mkdir(filepath.Dir(path))
	if err := os.WriteFile(filepath.Join(s.Root, path), []byte(content), 0o600); err != nil {
		s.t.Fatal(err)
	}
}
