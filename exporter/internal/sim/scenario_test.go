package sim

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/collector"
	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

func TestScenarioXID79(t *testing.T) {
	s, err := FromScenario("xid79", 1, notAllocated, discardLog)
	if err != nil {
		t.Fatal(err)
	}
	s.now = func() time.Time { return time.Now().Add(11 * time.Second) }
	devices, err := s.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if xids := s.XIDs(); len(xids) != 1 || xids[0].Code != 79 {
		t.Fatalf("XIDs are %v", xids)
	}
	if _, err := s.Read(t.Context(), devices[3]); !errors.Is(err, device.ErrLost) {
		t.Fatalf("reading the device: got error %v, want ErrLost", err)
	}
}

func TestFromScenarioRejectsUnknownName(t *testing.T) {
	if _, err := FromScenario("nope", 1, nil, discardLog); err == nil || !strings.Contains(err.Error(), "steady") {
		t.Fatalf("got error %v, want the names of the scenarios", err)
	}
}

func TestScenarioThermal(t *testing.T) {
	s, err := FromScenario("thermal", 1, notAllocated, discardLog)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	read := func(index int, since time.Duration) device.Reading {
		s.now = func() time.Time { return start.Add(since) }
		return readDevice(t, s, index)
	}
	for index, throttles := range map[int]bool{5: true, 0: false} {
		t.Run(fmt.Sprintf("device %d", index), func(t *testing.T) {
			read(index, 0)
			read(index, 50*time.Second)
			before := read(index, 60*time.Second)
			after := read(index, 70*time.Second)
			temperature, _ := after.Get(device.GPUTemp)
			from, _ := before.Get(device.ThermalViolation)
			to, _ := after.Get(device.ThermalViolation)
			margin, _ := after.Get(device.ThermalMargin)
			events, _ := after.Get(device.ClockEvents)
			if (margin <= 0) != throttles || (int(events)&eventHWThermal != 0) != throttles {
				t.Errorf("thermal margin is %g °C and clock events are %g, want throttling: %t", margin, events, throttles)
			}
			if (temperature >= throttleTemperature) != throttles || (to-from == 10e9) != throttles {
				t.Errorf("temperature is %g °C, throttled for %g ns of 10 s, want throttling: %t", temperature, to-from, throttles)
			}
		})
	}
}

func TestScenarioMIGReconfig(t *testing.T) {
	n := startScenario(t, "mig-reconfig")
	devices, err := n.source.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	state := n.source.state.Devices
	n.kubelet.Allocatable("nvidia.com/gpu", devices[2].UUID, devices[3].UUID)
	var small []string
	for _, i := range state[0].Instances {
		small = append(small, i.UUID)
	}
	n.kubelet.Allocatable("nvidia.com/mig-1g.10gb", small...)
	n.kubelet.Allocatable("nvidia.com/mig-3g.40gb", "nvidia1/gi1", "nvidia1/gi2") // GKE names instances by GPU instance ID
	n.kubelet.Hold("ml/uuid/main", "nvidia.com/mig-1g.10gb", small[0])
	n.kubelet.Hold("ml/legacy/main", "nvidia.com/mig-1g.10gb", "MIG-"+devices[0].UUID+"/2/0")
	n.kubelet.Hold("ml/gke/main", "nvidia.com/mig-3g.40gb", "nvidia1/gi2")
	n.scrapeAt(0)
	text := n.scrapeAt(10 * time.Second)
	labels := func(index, gi int, profile, rest string) string {
		return fmt.Sprintf(`{gpu="%d",UUID="%s",pci_bus_id="00000000:1%d:00.0",device="nvidia%d",modelName="NVIDIA H100 80GB HBM3",GPU_I_PROFILE="%s",GPU_I_ID="%d",Hostname="n"%s}`,
			index, devices[index].UUID, index, index, profile, gi, rest)
	}
	counts := func(resource, model string, allocatable, allocated, free int) []string {
		var out []string
		for state, v := range map[string]int{"allocatable": allocatable, "allocated": allocated, "free": free, "unhealthy": 0} {
			out = append(out, fmt.Sprintf(`plimsoll_node_devices{node="n",resource="%s",model="NVIDIA-H100-80GB-HBM3%s",state="%s"} %d`, resource, model, state, v))
		}
		return out
	}
	holder := func(pod string) string { return `,container="main",namespace="ml",pod="` + pod + `"` }
	expectSeries(t, text, counts("nvidia.com/gpu", "", 2, 0, 2)...)
	expectSeries(t, text, counts("nvidia.com/mig-1g.10gb", "-MIG-1g.10gb", 7, 2, 5)...)
	expectSeries(t, text, counts("nvidia.com/mig-3g.40gb", "-MIG-3g.40gb", 2, 1, 1)...)
	expectSeries(t, text,
		`DCGM_FI_DEV_FB_TOTAL`+labels(0, 1, "1g.10gb", holder("uuid"))+" 9856",
		`DCGM_FI_DEV_FB_USED`+labels(0, 1, "1g.10gb", holder("uuid"))+" 7254",
		`DCGM_FI_DEV_FB_USED`+labels(0, 2, "1g.10gb", holder("legacy"))+" 7254",
		`DCGM_FI_DEV_FB_USED`+labels(0, 3, "1g.10gb", "")+" 0",
		`DCGM_FI_DEV_FB_TOTAL`+labels(1, 2, "3g.40gb", holder("gke"))+" 40320",
		`DCGM_FI_DEV_MEM_CLOCK`+labels(1, 2, "3g.40gb", holder("gke"))+" 2619",
		`plimsoll_node_free_mig_instances{node="n",model="NVIDIA-H100-80GB-HBM3",profile="1g.10gb"} 5`,
		`plimsoll_node_free_mig_instances{node="n",model="NVIDIA-H100-80GB-HBM3",profile="3g.40gb"} 1`,
		`plimsoll_device_owner_info{node="n",uuid="`+small[0]+`",gpu="0",model="NVIDIA-H100-80GB-HBM3-MIG-1g.10gb",namespace="ml",pod="uuid",container="main"} 1`,
		`plimsoll_exporter_mapped_devices{node="n"} 11`,
		`plimsoll_exporter_unmapped_devices{node="n",reason="not_allocatable"} 4`)
	for _, line := range linesWith(text, `gpu="0"`) {
		if strings.Contains(line, "UTIL{") || strings.Contains(line, "PROF_") {
			t.Errorf("the device has utilization in MIG mode: %s", line)
		}
		if strings.HasPrefix(line, "DCGM_FI_DEV_FB_") && !strings.Contains(line, "GPU_I_ID") {
			t.Errorf("the memory of the device is exported in addition to its instances: %s", line)
		}
	}
	for _, line := range append(linesWith(text, "DCGM_FI_DEV_POWER_USAGE{"), linesWith(text, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{")...) {
		if strings.Contains(line, "GPU_I_") || strings.Contains(line, "pod=") {
			t.Errorf("the power of the whole device is exported for an instance: %s", line)
		}
	}

	// The second device gets other instances while a pod still holds a removed instance.
	n.kubelet.Allocatable("nvidia.com/mig-3g.40gb")
	n.kubelet.Allocatable("nvidia.com/mig-2g.20gb", "nvidia1/gi1", "nvidia1/gi2", "nvidia1/gi3")
	n.kubelet.Hold("ml/gke/main", "nvidia.com/mig-3g.40gb", "nvidia1/gi9")
	n.kubelet.Allocatable("nvidia.com/gpu", devices[1].UUID, devices[2].UUID, devices[3].UUID) // a plugin that ignores MIG mode
	text = n.scrapeAt(21 * time.Second)
	expectSeries(t, text, counts("nvidia.com/gpu", "", 3, 0, 2)...)
	expectSeries(t, text, counts("nvidia.com/mig-2g.20gb", "-MIG-2g.20gb", 3, 0, 3)...)
	expectSeries(t, text,
		`DCGM_FI_DEV_FB_TOTAL`+labels(1, 1, "2g.20gb", "")+" 19968",
		`plimsoll_node_free_mig_instances{node="n",model="NVIDIA-H100-80GB-HBM3",profile="2g.20gb"} 3`,
		`plimsoll_exporter_unmapped_devices{node="n",reason="allocated_not_listed"} 1`)
	if found := linesWith(text, "3g.40gb"); len(found) > 0 {
		t.Errorf("a removed instance is exported: %s", found[0])
	}
	if found := linesWith(text, "plimsoll_device_failed{"); len(found) != 8+7+4 || len(linesWith(strings.Join(found, "\n"), "} 1")) > 0 {
		t.Errorf("want plimsoll_device_failed 0 of 8 devices and 11 instances, got:\n%s", strings.Join(found, "\n"))
	}
}

// Four pods hold replicas of a shared device. A fake procfs assigns the processes to the pods.
func TestScenarioTimeSlice(t *testing.T) {
	procfs := t.TempDir()
	names := map[string]string{}
	for i, name := range []string{"train", "serve-0", "serve-1", "notebook"} {
		uid := fmt.Sprintf("0c6b3e4f-8a0b-4d0e-9c1d-00000000000%d", i)
		names[uid] = name
		dir := filepath.Join(procfs, fmt.Sprint(1001+i))
		cgroup := "0::/kubepods.slice/kubepods-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice/cri-containerd-x.scope\n"
		if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "cgroup"), []byte(cgroup), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for attribution, want := range map[collector.Attribution]map[string][3]float64{ // power in W, utilization, memory in MiB
		collector.BySplit:   {"train": {139.5, 0.2, 10000}, "serve-0": {139.5, 0.2, 10000}, "serve-1": {139.5, 0.2, 10000}, "notebook": {139.5, 0.2, 10000}},
		collector.ByProcess: {"train": {348.75, 0.5, 20000}, "serve-0": {139.5, 0.2, 8000}, "serve-1": {69.75, 0.1, 8000}, "notebook": {0, 0, 4000}},
	} {
		t.Run(string(attribution), func(t *testing.T) {
			n := startScenario(t, "time-slice", func(c *collector.Config) {
				c.Attribution = attribution
				c.PodOf = func(pid int) (string, string, bool) {
					uid, err := podmap.PodUID(procfs, pid)
					return "ml", names[uid], err == nil && names[uid] != ""
				}
			})
			devices, err := n.source.Devices(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var replicas []string
			for i := range 4 {
				replicas = append(replicas, fmt.Sprintf("%s::%d", devices[0].UUID, i))
				n.kubelet.Hold("ml/"+names[fmt.Sprintf("0c6b3e4f-8a0b-4d0e-9c1d-00000000000%d", i)]+"/main", "nvidia.com/gpu", replicas[i])
			}
			n.kubelet.Allocatable("nvidia.com/gpu", append(replicas, devices[1].UUID)...)
			n.scrapeAt(0)
			text := n.scrapeAt(20 * time.Second)
			if got := linesWith(text, `DCGM_FI_DEV_POWER_USAGE{gpu="0"`); len(got) != 1 || strings.Contains(got[0], "pod=") {
				t.Errorf("power of the shared device is %q, want a single series without pod", got)
			}
			if got := linesWith(text, `DCGM_FI_DEV_GPU_TEMP{gpu="0"`); len(got) != 4 {
				t.Errorf("temperature of the shared device is %q, want a series per pod", got)
			}
			expectSeries(t, text, `plimsoll_node_devices{node="n",resource="nvidia.com/gpu",model="NVIDIA-H100-80GB-HBM3",state="free"} 1`)
			for i, metric := range []string{"power_watts", "utilization_ratio", "memory_used_bytes"} {
				found := linesWith(text, "plimsoll_pod_device_"+metric+"{")
				if len(found) != len(want) {
					t.Errorf("%d pods have a share of %s, want %d", len(found), metric, len(want))
				}
				for pod, values := range want {
					value := values[i]
					if i == 2 {
						value *= 1 << 20
					}
					line := strings.Join(linesWith(strings.Join(found, "\n"), `pod="`+pod+`",attribution="`+string(attribution)+`"`), "")
					_, number, _ := strings.Cut(line, "} ")
					if got, err := strconv.ParseFloat(number, 64); err != nil || math.Abs(got-value) > 0.06*value+1e-9 {
						t.Errorf("%s of %s is %q, want about %g", metric, pod, line, value)
					}
				}
			}
		})
	}
}

// With MPS, each of two pods has half of the memory as its share. One of them exceeds it after 30 s.
func TestScenarioShareExceeded(t *testing.T) {
	n := startScenario(t, "share-exceeded", func(c *collector.Config) {
		c.Attribution = collector.ByProcess
		c.PodOf = func(pid int) (string, string, bool) { return "ml", fmt.Sprintf("p%d", pid), true }
	})
	devices, err := n.source.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	replicas := []string{devices[0].UUID + "::0", devices[0].UUID + "::1"}
	n.kubelet.Allocatable("nvidia.com/gpu", replicas...)
	n.kubelet.Hold("ml/p1001/main", "nvidia.com/gpu", replicas[0])
	n.kubelet.Hold("ml/p1002/main", "nvidia.com/gpu", replicas[1])
	labels := fmt.Sprintf(`{node="n",uuid=%q,gpu="0",model="NVIDIA-H100-80GB-HBM3",namespace="ml",pod="p1001"`, devices[0].UUID)
	for i, used := range []float64{30000, 60000} {
		seconds := 20 * (i + 1)
		text := n.scrapeAt(time.Duration(seconds) * time.Second)
		for prefix, mib := range map[string]float64{"memory_used_bytes" + labels + `,attribution="process"} `: used, "share" + labels + `,provider="mps",dimension="memory"} `: 40779} {
			line := strings.Join(linesWith(text, "plimsoll_pod_device_"+prefix), "")
			_, number, _ := strings.Cut(line, "} ")
			if got, err := strconv.ParseFloat(number, 64); err != nil || math.Abs(got-mib*(1<<20)) > 1 {
				t.Errorf("after %d s: %q, want %g MiB", seconds, line, mib)
			}
		}
	}
}
