package nvml

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// facts that a device tells of itself; those that it does not are left empty.
func (s *Source) facts(handle nvml.Device) (f device.Facts) {
	object := func(o nvml.InforomObject) func() (string, nvml.Return) {
		return func() (string, nvml.Return) { return handle.GetInforomVersion(o) }
	}
	for _, fact := range []struct {
		into   *string
		symbol string
		get    func() (string, nvml.Return)
	}{
		{&f.Serial, "nvmlDeviceGetSerial", handle.GetSerial},
		{&f.VBIOS, "nvmlDeviceGetVbiosVersion", handle.GetVbiosVersion},
		{&f.Library, "nvmlSystemGetNVMLVersion", s.lib.SystemGetNVMLVersion},
		{&f.InfoROM, "nvmlDeviceGetInforomImageVersion", handle.GetInforomImageVersion},
		{&f.InfoROMOEM, "nvmlDeviceGetInforomVersion", object(nvml.INFOROM_OEM)},
		{&f.InfoROMECC, "nvmlDeviceGetInforomVersion", object(nvml.INFOROM_ECC)},
		{&f.InfoROMPower, "nvmlDeviceGetInforomVersion", object(nvml.INFOROM_POWER)},
	} {
		if !s.has(fact.symbol) {
			continue
		}
		if text, ret := fact.get(); ret == nvml.SUCCESS {
			*fact.into = text
		}
	}
	return f
}
