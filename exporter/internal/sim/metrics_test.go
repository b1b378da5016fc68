package sim

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/collector"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
	"plimsoll.dev/plimsoll/exporter/internal/podmap/fake"
)

// node is a whole exporter over a scenario whose clock the test sets.
type node struct {
	t       *testing.T
	kubelet *fake.Kubelet
	source  *Source
	*collector.Collector
	start time.Time
}

func play(t *testing.T, scenario string, adjust ...func(*collector.Config)) *node {
	t.Helper()
	n := &node{t: t, kubelet: fake.Start(t), start: time.Now()}
	pods, err := podmap.New(n.kubelet.Socket, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pods.Close() })
	if n.source, err = FromScenario(scenario, 1, pods.Holds, quiet); err != nil {
		t.Fatal(err)
	}
	config := collector.Config{Node: "n", Interval: time.Second, Log: quiet}
	for _, a := range adjust {
		a(&config)
	}
	n.Collector = collector.New(config, n.source, pods)
	return n
}

// at is the exposition of a collection so long after the start.
func (n *node) at(since time.Duration) string {
	n.t.Helper()
	n.source.now = func() time.Time { return n.start.Add(since) }
	if err := n.Collect(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
	response := httptest.NewRecorder()
	n.Handler().ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return response.Body.String()
}

// has wants each series, with its value, in the text.
func has(t *testing.T, text string, series ...string) {
	t.Helper()
	for _, s := range series {
		if !strings.Contains(text, s+"\n") {
			name, _, _ := strings.Cut(s, "{")
			t.Errorf("missing: %s\nthere are:\n%s", s, strings.Join(grep(text, name+"{"), "\n"))
		}
	}
}

func grep(text, part string) (lines []string) {
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

func TestScenarioMIGReconfig(t *testing.T) {
	n := play(t, "mig-reconfig")
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
	n.kubelet.Allocatable("nvidia.com/mig-3g.40gb", "nvidia1/gi1", "nvidia1/gi2") // as GKE names them
	n.kubelet.Hold("ml/uuid/main", "nvidia.com/mig-1g.10gb", small[0])
	n.kubelet.Hold("ml/legacy/main", "nvidia.com/mig-1g.10gb", "MIG-"+devices[0].UUID+"/2/0")
	n.kubelet.Hold("ml/gke/main", "nvidia.com/mig-3g.40gb", "nvidia1/gi2")
	n.at(0)
	text := n.at(10 * time.Second)
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
	has(t, text, counts("nvidia.com/gpu", "", 2, 0, 2)...)
	has(t, text, counts("nvidia.com/mig-1g.10gb", "-MIG-1g.10gb", 7, 2, 5)...)
	has(t, text, counts("nvidia.com/mig-3g.40gb", "-MIG-3g.40gb", 2, 1, 1)...)
	has(t, text,
		`DCGM_FI_DEV_FB_TOTAL`+labels(0, 1, "1g.10gb", holder("uuid"))+" 9856",
		`DCGM_FI_DEV_FB_USED`+labels(0, 1, "1g.10gb", holder("uuid"))+" 7254",
		`DCGM_FI_DEV_FB_USED`+labels(0, 2, "1g.10gb", holder("legacy"))+" 7254",
		`DCGM_FI_DEV_FB_USED`+labels(0, 3, "1g.10gb", "")+" 0",
		`DCGM_FI_DEV_FB_TOTAL`+labels(1, 2, "3g.40gb", holder("gke"))+" 40320",
		`DCGM_FI_DEV_POWER_MGMT_LIMIT`+labels(1, 2, "3g.40gb", holder("gke"))+" 700",
		`plimsoll_node_free_mig_instances{node="n",model="NVIDIA-H100-80GB-HBM3",profile="1g.10gb"} 5`,
		`plimsoll_node_free_mig_instances{node="n",model="NVIDIA-H100-80GB-HBM3",profile="3g.40gb"} 1`,
		`plimsoll_device_owner_info{node="n",uuid="`+small[0]+`",gpu="0",model="NVIDIA-H100-80GB-HBM3-MIG-1g.10gb",namespace="ml",pod="uuid",container="main"} 1`,
		`plimsoll_exporter_mapped_devices{node="n"} 11`,
		`plimsoll_exporter_unmapped_devices{node="n",reason="not_allocatable"} 4`)
	for _, line := range grep(text, `gpu="0"`) {
		if strings.Contains(line, "UTIL{") || strings.Contains(line, "PROF_") {
			t.Errorf("told in MIG mode: %s", line)
		}
		if strings.HasPrefix(line, "DCGM_FI_DEV_FB_") && !strings.Contains(line, "GPU_I_ID") {
			t.Errorf("memory counted beside that of the instances: %s", line)
		}
	}
	for _, line := range append(grep(text, "DCGM_FI_DEV_POWER_USAGE{"), grep(text, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{")...) {
		if strings.Contains(line, "GPU_I_") || strings.Contains(line, "pod=") {
			t.Errorf("what the whole device uses up is an instance's: %s", line)
		}
	}

	// The second device is cut anew while a pod still holds what is gone.
	n.kubelet.Allocatable("nvidia.com/mig-3g.40gb")
	n.kubelet.Allocatable("nvidia.com/mig-2g.20gb", "nvidia1/gi1", "nvidia1/gi2", "nvidia1/gi3")
	n.kubelet.Hold("ml/gke/main", "nvidia.com/mig-3g.40gb", "nvidia1/gi9")
	n.kubelet.Allocatable("nvidia.com/gpu", devices[1].UUID, devices[2].UUID, devices[3].UUID) // a plugin that overlooks MIG
	text = n.at(21 * time.Second)
	has(t, text, counts("nvidia.com/gpu", "", 3, 0, 2)...)
	has(t, text, counts("nvidia.com/mig-2g.20gb", "-MIG-2g.20gb", 3, 0, 3)...)
	has(t, text,
		`DCGM_FI_DEV_FB_TOTAL`+labels(1, 1, "2g.20gb", "")+" 19968",
		`plimsoll_node_free_mig_instances{node="n",model="NVIDIA-H100-80GB-HBM3",profile="2g.20gb"} 3`,
		`plimsoll_exporter_unmapped_devices{node="n",reason="allocated_not_listed"} 1`)
	if found := grep(text, "3g.40gb"); len(found) > 0 {
		t.Errorf("an instance that is gone: %s", found[0])
	}
	if found := grep(text, "plimsoll_device_failed{"); len(found) != 8+7+4 || len(grep(strings.Join(found, "\n"), "} 1")) > 0 {
		t.Errorf("devices and instances, none of them failed:\n%s", strings.Join(found, "\n"))
	}
}

// The processes are in pods by a fake procfs; four pods hold replicas of a device,
// and the fifth process is of none.
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
	for how, want := range map[collector.Attribution]map[string][3]float64{ // watts, utilization and MiB
		collector.BySplit:   {"train": {139.5, 0.2, 10000}, "serve-0": {139.5, 0.2, 10000}, "serve-1": {139.5, 0.2, 10000}, "notebook": {139.5, 0.2, 10000}},
		collector.ByProcess: {"train": {348.75, 0.5, 20000}, "serve-0": {139.5, 0.2, 8000}, "serve-1": {69.75, 0.1, 8000}, "notebook": {0, 0, 4000}},
		collector.ByDevice:  {},
	} {
		t.Run(string(how), func(t *testing.T) {
			n := play(t, "time-slice", func(c *collector.Config) {
				c.Attribution = how
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
			n.at(0)
			text := n.at(20 * time.Second)
			if got := grep(text, `DCGM_FI_DEV_POWER_USAGE{gpu="0"`); len(got) != 1 || strings.Contains(got[0], "pod=") {
				t.Errorf("power of the shared device is told so: %q", got)
			}
			if got := grep(text, `DCGM_FI_DEV_GPU_TEMP{gpu="0"`); len(got) != 4 {
				t.Errorf("its temperature is told so: %q", got)
			}
			has(t, text, `plimsoll_node_devices{node="n",resource="nvidia.com/gpu",model="NVIDIA-H100-80GB-HBM3",state="free"} 1`)
			for i, metric := range []string{"power_watts", "utilization_ratio", "memory_used_bytes"} {
				found := grep(text, "plimsoll_pod_device_"+metric+"{")
				if len(found) != len(want) {
					t.Errorf("%d pods have a share of %s, want %d", len(found), metric, len(want))
				}
				for pod, values := range want {
					value := values[i]
					if i == 2 {
						value *= 1 << 20
					}
					line := strings.Join(grep(strings.Join(found, "\n"), `pod="`+pod+`",attribution="`+string(how)+`"`), "")
					_, number, _ := strings.Cut(line, "} ")
					if got, err := strconv.ParseFloat(number, 64); err != nil || math.Abs(got-value) > 0.06*value+1e-9 {
						t.Errorf("%s of %s is %q, want about %g", metric, pod, line, value)
					}
				}
			}
		})
	}
}
