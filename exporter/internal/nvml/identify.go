package nvml

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// identification is the result of identify: a device with its handle, or an error.
type identification struct {
	device device.Device
	handle nvml.Device
	err    error
}

// identify reads the constant properties of the device at index.
func (s *Source) identify(index int) (found identification) {
	var ret nvml.Return
	if found.handle, ret = s.lib.DeviceGetHandleByIndex(index); ret != nvml.SUCCESS {
		found.err = errors.New(message(ret))
		return found
	}
	if found.device, found.err = s.describeDevice(found.handle, index); found.err != nil {
		return found
	}
	if s.Has("nvmlSystemGetDriverVersion") {
		version, ret := s.lib.SystemGetDriverVersion()
		if ret == nvml.SUCCESS {
			found.device.Driver = version
		}
		s.logUnreadable(slog.LevelWarn, found.device.UUID, "driver version", ret)
	}
	found.device.Links = s.linkPeers(found.handle, func(property string, ret nvml.Return) {
		s.logUnreadable(slog.LevelInfo, found.device.UUID, property, ret)
	})
	found.device.Facts = s.readFacts(found.handle, found.device.UUID)
	return found
}

// describeDevice reads UUID and name, which are required, and the other identifiers of a
// device.
func (s *Source) describeDevice(handle nvml.Device, index int) (device.Device, error) {
	d := device.Device{Index: index}
	var ret nvml.Return
	if d.UUID, ret = handle.GetUUID(); ret != nvml.SUCCESS {
		return d, fmt.Errorf("UUID: %s", message(ret))
	}
	if d.Model, ret = handle.GetName(); ret != nvml.SUCCESS {
		return d, fmt.Errorf("name: %s", message(ret))
	}
	minor, ret := handle.GetMinorNumber()
	if ret != nvml.SUCCESS {
		s.logUnreadable(slog.LevelWarn, d.UUID, "minor number", ret)
		minor = index
	}
	d.Minor = fmt.Sprintf("nvidia%d", minor)
	pci, ret := handle.GetPciInfo()
	if ret == nvml.SUCCESS {
		d.PCIBusID = busID(pci)
	}
	s.logUnreadable(slog.LevelWarn, d.UUID, "PCI bus ID", ret)
	memory, ret := handle.GetMemoryInfo()
	if ret == nvml.SUCCESS {
		d.MemoryMiB = int64(memory.Total >> 20)
	}
	s.logUnreadable(slog.LevelWarn, d.UUID, "memory size", ret)
	return d, nil
}

// brands are DCGM's names of NVML's brands.
var brands = map[nvml.BrandType]string{
	nvml.BRAND_UNKNOWN: "Unknown", nvml.BRAND_QUADRO: "Quadro", nvml.BRAND_TESLA: "Tesla", nvml.BRAND_NVS: "NVS", nvml.BRAND_GRID: "Grid", nvml.BRAND_GEFORCE: "GeForce", nvml.BRAND_TITAN: "Titan",
	nvml.BRAND_NVIDIA_VAPPS: "NVIDIA Virtual Applications", nvml.BRAND_NVIDIA_VPC: "NVIDIA Virtual PC", nvml.BRAND_NVIDIA_VCS: "NVIDIA Virtual Compute Server", nvml.BRAND_NVIDIA_VWS: "NVIDIA RTX Virtual Workstation",
	nvml.BRAND_NVIDIA_CLOUD_GAMING: "NVIDIA vGaming", nvml.BRAND_QUADRO_RTX: "Quadro RTX", nvml.BRAND_NVIDIA_RTX: "NVIDIA RTX", nvml.BRAND_NVIDIA: "NVIDIA", nvml.BRAND_GEFORCE_RTX: "GeForce RTX", nvml.BRAND_TITAN_RTX: "Titan RTX",
}

// brand returns the name of the device's brand.
func brand(handle nvml.Device) (string, nvml.Return) {
	b, ret := handle.GetBrand()
	return brands[b], ret
}

// logUnreadable logs the error of reading a device property. Many models do not support
// every property, so ERROR_NOT_SUPPORTED is not logged.
func (s *Source) logUnreadable(level slog.Level, uuid, property string, ret nvml.Return) {
	if ret != nvml.SUCCESS && ret != nvml.ERROR_NOT_SUPPORTED {
		s.log.Log(context.Background(), level, "reading a device property failed", "uuid", uuid, "property", property, "err", message(ret))
	}
}

// readFacts reads serial number and firmware versions. Unsupported facts stay empty.
func (s *Source) readFacts(handle nvml.Device, uuid string) (facts device.Facts) {
	inforom := func(object nvml.InforomObject) func() (string, nvml.Return) {
		return func() (string, nvml.Return) { return handle.GetInforomVersion(object) }
	}
	for _, fact := range []struct {
		target *string
		symbol string
		read   func() (string, nvml.Return)
	}{
		{&facts.Serial, "nvmlDeviceGetSerial", handle.GetSerial},
		{&facts.Brand, "nvmlDeviceGetBrand", func() (string, nvml.Return) { return brand(handle) }},
		{&facts.VBIOS, "nvmlDeviceGetVbiosVersion", handle.GetVbiosVersion},
		{&facts.Library, "nvmlSystemGetNVMLVersion", s.lib.SystemGetNVMLVersion},
		{&facts.InfoROM, "nvmlDeviceGetInforomImageVersion", handle.GetInforomImageVersion},
		{&facts.InfoROMOEM, "nvmlDeviceGetInforomVersion", inforom(nvml.INFOROM_OEM)},
		{&facts.InfoROMECC, "nvmlDeviceGetInforomVersion", inforom(nvml.INFOROM_ECC)},
		{&facts.InfoROMPower, "nvmlDeviceGetInforomVersion", inforom(nvml.INFOROM_POWER)},
	} {
		if !s.Has(fact.symbol) {
			continue
		}
		text, ret := fact.read()
		if ret == nvml.SUCCESS {
			*fact.target = text
		}
		s.logUnreadable(slog.LevelInfo, uuid, fact.symbol, ret)
	}
	return facts
}

func busID(pci nvml.PciInfo) string {
	return fmt.Sprintf("%08X:%02X:%02X.0", pci.Domain, pci.Bus, pci.Device)
}
