package nvml

import (
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

func TestFacts(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.setUnsupported(3, 1<<22|1<<25|1<<33)
	devices := listDevices(t, f.open())
	want := device.Facts{Serial: "serial-2", Brand: "NVIDIA", VBIOS: "96.00.02", Library: "12.580.1.fake", InfoROM: "G520.0002", InfoROMOEM: "oem-2", InfoROMECC: "ecc-2", InfoROMPower: "power-2"}
	if got := devices[2].Facts; got != want {
		t.Errorf("facts are %+v, want %+v", got, want)
	}
	if got := devices[3].Facts; got != (device.Facts{VBIOS: "96.00.03", Library: want.Library, InfoROM: "G520.0003"}) {
		t.Errorf("facts without serial and InfoROM objects are %+v", got)
	}
}

func TestLinkPeers(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	f.setDevice(2, devSwitchless, 1)
	f.setUnsupported(3, 1<<13|1<<12)
	devices := listDevices(t, f.open())
	if devices[3].ReportsXIDs {
		t.Error("XIDs are read from a device without events")
	}
	for i, want := range map[int]string{0: device.NVSwitch, 2: devices[3].PCIBusID, 3: ""} {
		if got := strings.Join(devices[i].Links, " "); got != want {
			t.Errorf("link peers of device %d are %q, want %q", i, got, want)
		}
	}
}

// The links of a device are down until the fabric manager has started, and can fail later.
func TestLinkPeersAreReadAgain(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	const noLinks = 1 << 13 // the call for the state of a link
	f.setDevice(0, devFailure, 999)
	f.setUnsupported(0, noLinks)
	s := f.open()
	readAt := s.readerAt(t, listDevices(t, s)[0])
	for _, step := range []struct {
		after                time.Duration
		unsupported, failing uint64
		want                 string
	}{
		{0, noLinks, 0, ""},
		{linkInterval - time.Second, 0, 0, ""},
		{linkInterval, 0, 0, device.NVSwitch},
		{linkInterval + time.Second, noLinks, 0, device.NVSwitch},
		{2 * linkInterval, 0, noLinks, device.NVSwitch},
		{3 * linkInterval, noLinks, 0, ""},
	} {
		f.setUnsupported(0, step.unsupported)
		f.setDevice(0, devFailing, step.failing)
		readAt(step.after)
		if got := strings.Join(listDevices(t, s)[0].Links, " "); got != step.want {
			t.Errorf("after %s the link peers are %q, want %q", step.after, got, step.want)
		}
	}
}

// A driver need not know the peer of a link, such as that to a CPU. This is no failed call: the
// links of the device are those that it reports now.
func TestLinkWithoutKnownPeerIsNoFailure(t *testing.T) {
	f := inFake(t)
	if f == nil {
		return
	}
	const noPeers = 1 << 53 // the call for the device at the other end of a link
	s := f.open()
	readAt := s.readerAt(t, listDevices(t, s)[0])
	readAt(0)
	f.setDevice(0, devSwitchless, 1)
	f.setUnsupported(0, noPeers)
	readAt(linkInterval)
	if got := listDevices(t, s)[0].Links; len(got) > 0 {
		t.Errorf("the link peers are %q, want none: the driver does not know them", got)
	}
}
