package collector

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

func TestReplicasOfOneContainerAreOneSeries(t *testing.T) {
	f := setup(t)
	f.kubelet.holdings["team-a/serve/main"] = []string{uuid(0) + "::0", uuid(0) + "::1"}
	families, text := f.collect(t)
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		series, _, _ := strings.Cut(line, "} ")
		if seen[series] && !strings.HasPrefix(line, "#") {
			t.Errorf("duplicate series: %s", series)
		}
		seen[series] = true
	}
	if got := value(t, families, "plimsoll_device_owner_info", "uuid", uuid(0), "pod", "serve"); got != 1 {
		t.Errorf("the holder is missing:\n%s", text)
	}
}

func TestLabelsAreInDCGMExporterOrder(t *testing.T) {
	f := setup(t)
	f.kubelet.holdings[`team-a/tr"ain/main`] = []string{uuid(0)}
	_, text := f.collect(t)
	for _, want := range []string{
		`DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-00000000-0000-4000-8000-000000000000",pci_bus_id="00000000:1B:00.0",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="node-1",DCGM_FI_DRIVER_VERSION="580.1",container="main",namespace="team-a",pod="tr\"ain"} 10`,
		`DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-00000001-0000-4000-8000-000000000000",pci_bus_id="00000000:1B:00.0",device="nvidia1",modelName="NVIDIA H100 80GB HBM3",Hostname="node-1",DCGM_FI_DRIVER_VERSION="580.1"} 11`,
		"# TYPE DCGM_FI_DEV_GPU_UTIL gauge",
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("missing line: %s", want)
		}
	}
	if strings.Contains(text, "DCGM_FI_DEV_SM_CLOCK") {
		t.Error("a field without a value is exported")
	}
}

func TestDerivedMetricsUseBaseUnits(t *testing.T) {
	f := setup(t)
	families, text := f.collect(t)
	if got := value(t, families, "plimsoll_device_throttled_seconds_total", "uuid", uuid(1), "reason", "thermal"); got != 2.5 {
		t.Errorf("throttled by heat for %g s", got)
	}
	if got := value(t, families, "plimsoll_device_power_headroom_watts", "uuid", uuid(1)); got != 400 {
		t.Errorf("%g W of headroom", got)
	}
	if got := value(t, families, "plimsoll_device_nvlink_bytes_total", "uuid", uuid(1), "direction", "transmit"); got != 4096 {
		t.Errorf("%g bytes sent", got)
	}
	if got := value(t, families, "plimsoll_device_memory_headroom_bytes", "uuid", uuid(1)); got != 80_000<<20 {
		t.Errorf("%g bytes of free memory", got)
	}
	if got := value(t, families, "plimsoll_device_thermal_headroom_celsius", "uuid", uuid(1)); got != -3 {
		t.Errorf("%g degrees of margin", got)
	}
	for _, absent := range []string{`reason="power"`, `direction="receive"`} {
		if strings.Contains(text, absent) {
			t.Errorf("%s is exported without a value", absent)
		}
	}
}

func TestImplausibleValuesAreDroppedAndCounted(t *testing.T) {
	f := setup(t)
	f.collect(t)
	families, _ := f.collect(t)
	if families["DCGM_FI_DEV_MEMORY_TEMP"] != nil {
		t.Error("1000 degrees are exported")
	}
	for _, field := range []string{"DCGM_FI_DEV_MEMORY_TEMP", "plimsoll_device_pcie_bytes_total_receive"} {
		if got := value(t, families, "plimsoll_exporter_bogus_values_total", "uuid", uuid(1), "field", field); got != 2 {
			t.Errorf("%s was dropped %g times, want 2", field, got)
		}
	}
	if n := len(families["plimsoll_exporter_bogus_values_total"].Metric); n != 16 {
		t.Errorf("%d series, want one for each of 2 fields of 8 devices", n)
	}
}

func TestEveryFieldHasAName(t *testing.T) {
	for f := range device.NumFields {
		if fieldName(device.NVIDIA, f) == "" {
			t.Errorf("field %d has no name", f)
		}
	}
}

func TestDialectAndLabelOptions(t *testing.T) {
	f := setup(t)
	f.kubelet.holdings["team-a/train/main"] = []string{uuid(0)}
	f.cfg.Labels = Labels{Dialect: "4.8", ReplaceBlanks: true, OldNamespace: true}
	_, text := f.collect(t)
	want := `DCGM_FI_DEV_GPU_UTIL{gpu="0",uuid="GPU-00000000-0000-4000-8000-000000000000",pci_bus_id="00000000:1B:00.0",device="nvidia0",modelName="NVIDIA-H100-80GB-HBM3",hostname="node-1",DCGM_FI_DRIVER_VERSION="580.1",container_name="main",pod_name="train",pod_namespace="team-a"} 10`
	if !strings.Contains(text, want) {
		t.Errorf("missing %s in\n%s", want, text)
	}
	f.cfg.Labels = Labels{NoHostname: true}
	if _, text = f.collect(t); strings.Contains(text, "ostname=") {
		t.Error("a hostname label although NoHostname is set")
	}
}

// The names of dcgm-exporter's metrics break the conventions. Plimsoll's names must not.
func TestPlimsollMetricsPassPromlint(t *testing.T) {
	f := setup(t)
	f.kubelet.holdings["team-a/train/main"] = []string{uuid(0)}
	_, text := f.collect(t)
	allowed := map[string]bool{lastXIDField.name: true}
	for _, field := range dcgmFields {
		allowed[field.name] = true
	}
	for _, e := range countedEvents {
		allowed[e.name] = true
	}
	var rare bytes.Buffer // metrics without a series in this collection
	every := familySet{}
	for _, o := range plimsollMetrics {
		if o.labels != nil && !strings.Contains(text, "# TYPE "+o.name+" ") {
			every.add(o, 1, o.labels...)
		}
	}
	plainText.write(&rare, every.sorted())
	problems, err := promlint.New(strings.NewReader(text + rare.String())).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if !allowed[p.Metric] {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	for name := range allowed {
		if !strings.HasPrefix(name, "DCGM_") {
			t.Errorf("%s is exempt from the conventions and not a metric of dcgm-exporter", name)
		}
	}
}

// powerOnlySource reports only power.
type powerOnlySource struct{ fakeSource }

func (s *powerOnlySource) Read(ctx context.Context, d device.Device) (device.Reading, error) {
	all, err := s.fakeSource.Read(ctx, d)
	r := device.Reading{Time: all.Time}
	power, _ := all.Get(device.PowerUsage)
	r.Set(device.PowerUsage, power)
	return r, err
}

// A 0 would mean that the device is busy.
func TestIdleAllocatedAbsentWithoutUtilization(t *testing.T) {
	f := setup(t)
	f.kubelet.holdings["team-a/train/main"] = []string{uuid(0)}
	if families, _ := f.collect(t); value(t, families, idleAllocated.name, "uuid", uuid(0)) != 0 {
		t.Error("a busy device is idle")
	}
	f.source.lost[uuid(0)] = true
	if families, text := f.collect(t); families[idleAllocated.name] != nil {
		t.Errorf("a lost device is idle:\n%s", text)
	}
	f.vendors[0].Source = &powerOnlySource{}
	families, text := f.collect(t)
	if families[idleAllocated.name] != nil {
		t.Errorf("devices without utilization are idle:\n%s", text)
	}
	if value(t, families, ownerInfo.name, "uuid", uuid(0), "pod", "train") != 1 {
		t.Error("the holder is missing")
	}
}

func TestGIProfile(t *testing.T) {
	for profile, want := range map[string]string{"1g.10gb": "1g.10gb", "1c.2g.20gb": "2g.20gb", "1g.10gb+me": "1g.10gb+me", "": ""} {
		t.Run(profile, func(t *testing.T) {
			if got := giProfile(profile); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

// The label model must be a valid value of a node label.
func TestModelLabelOfInstance(t *testing.T) {
	for profile, want := range map[string]string{"1g.10gb": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", "1g.10gb+me": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gbme"} {
		t.Run(profile, func(t *testing.T) {
			d := device.Device{Model: "NVIDIA H100 80GB HBM3", Instance: &device.Instance{Profile: profile}}
			if got := modelLabel(d); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}

func TestIsQuantity(t *testing.T) {
	want := map[device.Field]bool{device.PowerUsage: true, device.PowerLimit: true, device.TotalEnergy: true, device.FBUsed: true, device.FBFree: true, device.FBTotal: true, device.FBReserved: true,
		device.FBUsedRatio: false, device.GPUUtil: false, device.GPUTemp: false, device.SMClock: false, device.ThermalViolation: false, device.ECCSingleVolatile: false, device.PCIeRx: true, device.NVLinkBandwidth: true}
	for _, f := range dcgmFields {
		if w, ok := want[f.field]; ok && f.isQuantity() != w {
			t.Errorf("%s is a quantity: %t", f.name, !w)
		}
	}
}

// Two compute instances of a GPU instance are one series in dcgm-exporter's metrics, and
// two devices in Plimsoll's.
func TestComputeInstancesShareSeriesOfGPUInstance(t *testing.T) {
	f := setup(t)
	f.source.instances = []device.Instance{{Profile: "1c.2g.20gb", GI: 3, CI: 0}, {Profile: "1c.2g.20gb", GI: 3, CI: 1}}
	f.kubelet.holdings["ml/a/main"] = []string{"MIG-" + uuid(0) + "/3/0"}
	f.kubelet.holdings["ml/b/main"] = []string{"MIG-" + uuid(0) + "/3/1"}
	families, text := f.collect(t)
	used := families["DCGM_FI_DEV_FB_USED"].Metric
	if len(used) != 1 || value(t, families, "DCGM_FI_DEV_FB_USED", "GPU_I_PROFILE", "2g.20gb", "GPU_I_ID", "3") != 700 {
		t.Errorf("memory of one GPU instance:\n%s", text)
	}
	for _, pod := range []string{"a", "b"} {
		value(t, families, "DCGM_FI_DEV_THERMAL_VIOLATION", "GPU_I_ID", "3", "pod", pod)
		value(t, families, "plimsoll_device_owner_info", "model", "NVIDIA-H100-80GB-HBM3-MIG-1c.2g.20gb", "pod", pod)
	}
}

// Several containers share a device. Quantities have one series, so that no sum over pods
// exceeds the device. Other metrics have a series for each container.
func TestSharedDeviceHasOneSeriesOfQuantities(t *testing.T) {
	f := setup(t)
	f.kubelet.holdings["ml/a/main"] = []string{uuid(0) + "::0"}
	f.kubelet.holdings["ml/b/main"] = []string{uuid(0) + "::1"}
	f.kubelet.holdings["ml/c/main"] = []string{uuid(1) + "::1"}
	families, text := f.collect(t)
	for _, name := range []string{"DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "DCGM_FI_DEV_FB_FREE"} {
		if n := len(families[name].Metric); n != 8 {
			t.Errorf("%d series of %s for 8 devices:\n%s", n, name, text)
		}
		value(t, families, name, "UUID", uuid(1), "pod", "c")
	}
	for _, pod := range []string{"a", "b"} {
		if got := value(t, families, "DCGM_FI_DEV_GPU_UTIL", "UUID", uuid(0), "pod", pod); got != 10 {
			t.Errorf("the utilization for %s is %g", pod, got)
		}
	}
}
