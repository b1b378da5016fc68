package collector

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// fakeTPUs is a source of four v6e chips.
type fakeTPUs struct {
	readings [4]map[device.Field]float64
	lost     int  // number of the lost chip, from 1; 0 for none
	noDriver bool // the chips have no device nodes
	services []device.Service
}

func (c *fakeTPUs) Devices(context.Context) ([]device.Device, error) {
	var out []device.Device
	for i := range c.readings {
		n := string(rune('0' + i))
		d := device.Device{Vendor: device.Google, UUID: "TPU-0000:00:0" + n + ".0", Index: i, Minor: "tpu" + n, Model: "tpu-v6e-slice", TPU: &device.TPU{Topology: "2x2"}}
		if c.noDriver {
			d.Minor = ""
		}
		out = append(out, d)
	}
	return out, nil
}

func (c *fakeTPUs) Read(_ context.Context, d device.Device) (device.Reading, error) {
	if d.Index == c.lost-1 {
		return device.Reading{}, device.ErrLost
	}
	r := device.Reading{Time: time.Now()}
	for f, v := range c.readings[d.Index] {
		r.Set(f, v)
	}
	return r, nil
}

func (c *fakeTPUs) XIDs() []device.XID { return nil }

func (c *fakeTPUs) Close() error { return nil }

func (c *fakeTPUs) Services() []device.Service { return c.services }

// setupTPUs returns a node with four chips. A pod holds the first two.
func setupTPUs(t *testing.T, c *fakeTPUs) *fixture {
	t.Helper()
	f := setup(t)
	f.vendors[0].Source = c
	f.kubelet.resource, f.kubelet.ids = "google.com/tpu", []string{"0", "1", "2", "3"}
	f.kubelet.holdings["team-a/train-0/main"] = []string{"0", "1"}
	return f
}

func TestTPUMetrics(t *testing.T) {
	f := setupTPUs(t, &fakeTPUs{readings: [4]map[device.Field]float64{
		{device.DutyCycle: 93.5, device.AcceleratorMemoryTotal: 32 << 30, device.AcceleratorMemoryUsed: 2 << 30, device.Workload: 1, device.SliceError: 1},
		{device.DutyCycle: 0, device.AcceleratorMemoryTotal: 32 << 30, device.Workload: 1, device.QueuedPrograms: 3, device.StalledSeconds: 60},
		{device.AcceleratorMemoryTotal: 32 << 30, device.Workload: 0},
		{device.TensorCoreUtil: 12},
	}, services: []device.Service{{Name: "runtime", State: device.ServiceServing}, {Name: "runtime", State: device.ServiceFailed, Err: errors.New("slow")}}})
	_, text := f.collect(t)
	for _, want := range []string{
		`duty_cycle{accelerator_id="node-1-0",container="main",make="cloud-tpu",model="tpu-v6e-slice",namespace="team-a",pod="train-0",tpu_topology="2x2"} 93.5`,
		`duty_cycle{accelerator_id="node-1-1",container="main",make="cloud-tpu",model="tpu-v6e-slice",namespace="team-a",pod="train-0",tpu_topology="2x2"} 0`,
		`duty_cycle_node{accelerator_id="node-1-0",make="cloud-tpu",model="tpu-v6e-slice",tpu_topology="2x2"} 93.5`,
		`memory_total_node{accelerator_id="node-1-2",make="cloud-tpu",model="tpu-v6e-slice",tpu_topology="2x2"} 3.4359738368e+10`,
		`memory_used{accelerator_id="node-1-0",container="main",make="cloud-tpu",model="tpu-v6e-slice",namespace="team-a",pod="train-0",tpu_topology="2x2"} 2.147483648e+09`,
		`tensorcore_utilization_node{accelerator_id="node-1-3",make="cloud-tpu",model="tpu-v6e-slice",tpu_topology="2x2"} 12`,
		`accelerator_request{container="main",namespace="team-a",pod="train-0",resource_name="google.com/tpu"} 2`,
		`plimsoll_node_devices{node="node-1",resource="google.com/tpu",model="tpu-v6e-slice",state="free"} 2`,
		`plimsoll_device_owner_info{node="node-1",uuid="TPU-0000:00:01.0",gpu="1",model="tpu-v6e-slice",namespace="team-a",pod="train-0",container="main"} 1`,
		`plimsoll_device_memory_headroom_bytes{node="node-1",uuid="TPU-0000:00:00.0",gpu="0",model="tpu-v6e-slice"} 3.221225472e+10`,
		`plimsoll_device_stalled_seconds{node="node-1",uuid="TPU-0000:00:01.0",gpu="1",model="tpu-v6e-slice"} 60`,
		`plimsoll_device_slice_error{node="node-1",uuid="TPU-0000:00:00.0",gpu="0",model="tpu-v6e-slice"} 1`,
		`plimsoll_device_workload_up{node="node-1",uuid="TPU-0000:00:02.0",gpu="2",model="tpu-v6e-slice"} 0`,
		`plimsoll_device_busy_ratio{node="node-1",uuid="TPU-0000:00:00.0",gpu="0",model="tpu-v6e-slice"} 0.935`,
		`plimsoll_device_busy_ratio{node="node-1",uuid="TPU-0000:00:02.0",gpu="2",model="tpu-v6e-slice"} 0`,
		`plimsoll_exporter_services{node="node-1",service="runtime",state="failed"} 1`,
		`plimsoll_exporter_services{node="node-1",service="runtime",state="idle"} 0`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	for _, absent := range []string{`memory_used_node{accelerator_id="node-1-1"`, `duty_cycle_node{accelerator_id="node-1-2"`, `duty_cycle{accelerator_id="node-1-3"`, "DCGM_FI_DEV_XID", "plimsoll_device_megascale_error{", `plimsoll_device_busy_ratio{node="node-1",uuid="TPU-0000:00:03.0"`, "memory_bandwidth_utilization"} {
		if strings.Contains(text, absent) {
			t.Errorf("%s is exported without a value", absent)
		}
	}
}

// GKE's metrics identify a chip by the number of its device node. Without a driver the chips
// have none, so that their series would be the same.
func TestTPUsWithoutDriverHaveNoMetricsOfGKE(t *testing.T) {
	memory := map[device.Field]float64{device.AcceleratorMemoryTotal: 32 << 30, device.Workload: 0}
	f := setupTPUs(t, &fakeTPUs{noDriver: true, readings: [4]map[device.Field]float64{memory, memory, memory, memory}})
	log := f.logTo()
	families, text := f.collect(t)
	if strings.Contains(text, "accelerator_id") || len(families["plimsoll_device_workload_up"].GetMetric()) != 4 {
		t.Errorf("%s", text)
	}
	requireLogged(t, log)
}

// An allocated chip is idle if no workload uses the chip or the workload does not compute.
func TestIdleAllocatedTPU(t *testing.T) {
	c := &fakeTPUs{readings: [4]map[device.Field]float64{{device.Workload: 0}, {device.DutyCycle: 0.2, device.Workload: 1}, {device.DutyCycle: 0}, {}}}
	f := setupTPUs(t, c)
	clock := time.Now()
	f.cfg.Now = func() time.Time { return clock }
	f.collect(t)
	clock = clock.Add(90 * time.Second)
	families, _ := f.collect(t)
	for _, uuid := range []string{"TPU-0000:00:00.0", "TPU-0000:00:01.0"} {
		if got := value(t, families, "plimsoll_device_idle_allocated_seconds", "uuid", uuid); got < 80 {
			t.Errorf("%s has been idle for %g s", uuid, got)
		}
	}
	if n := len(families["plimsoll_device_idle_allocated_seconds"].Metric); n != 2 {
		t.Errorf("%d chips are idle and allocated", n)
	}
	c.readings[1][device.DutyCycle] = 50
	families, _ = f.collect(t)
	if got := value(t, families, "plimsoll_device_idle_allocated_seconds", "uuid", "TPU-0000:00:01.0"); got != 0 {
		t.Errorf("a chip that computes has been idle for %g s", got)
	}
}

func TestLostTPUIsNotFree(t *testing.T) {
	c := &fakeTPUs{lost: 4}
	f := setupTPUs(t, c)
	c.readings[3] = map[device.Field]float64{device.DutyCycle: 1}
	families, text := f.collect(t)
	if value(t, families, "plimsoll_node_devices", "resource", "google.com/tpu", "state", "free") != 1 || value(t, families, "plimsoll_node_devices", "state", "unhealthy") != 1 {
		t.Errorf("%s", text)
	}
	if strings.Contains(text, `accelerator_id="node-1-3"`) {
		t.Errorf("the lost chip's metrics:\n%s", text)
	}
}

// GKE's metric names break Prometheus' conventions. Plimsoll's names must not.
func TestTPUMetricsPassPromlint(t *testing.T) {
	all := map[device.Field]float64{}
	for field := device.FirstTPUField; field < device.NumFields; field++ {
		all[field] = 1
	}
	_, text := setupTPUs(t, &fakeTPUs{readings: [4]map[device.Field]float64{all, all}, services: []device.Service{{Name: "plugin", State: device.ServiceIdle}}}).collect(t)
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "plimsoll_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	for _, f := range gkeFamilies {
		if !strings.Contains(text, "\n"+f.name+"{") || !strings.Contains(text, "\n"+f.name+"_node{") {
			t.Errorf("no %s", f.name)
		}
	}
}
