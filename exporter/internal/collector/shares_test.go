package collector

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// seriesOf returns the series of a metric on a device, without the labels of the device.
func seriesOf(text, metric, gpu string) (out []string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, metric+`{gpu="`+gpu+`"`) {
			_, end, _ := strings.Cut(strings.TrimSpace(line), `DCGM_FI_DRIVER_VERSION="580.1"`)
			out = append(out, end)
		}
	}
	return out
}

func TestVirtualGPUsHaveOneSeriesEach(t *testing.T) {
	f := setup(t)
	f.cfg.Labels.VirtualGPUs = true
	f.kubelet.holdings["ml/a/main"] = []string{uuid(0) + "::1", uuid(0) + "::0"}
	f.kubelet.holdings["ml/b/main"] = []string{uuid(0) + "::2"}
	f.kubelet.holdings["ml/c/main"] = []string{uuid(1)}
	families, text := f.collect(t)
	want := `,container="main",namespace="ml",pod="a",vgpu="0"} 10
,container="main",namespace="ml",pod="a",vgpu="1"} 10
,container="main",namespace="ml",pod="b",vgpu="2"} 10`
	if got := strings.Join(seriesOf(text, "DCGM_FI_DEV_GPU_UTIL", "0"), "\n"); got != want {
		t.Errorf("series are\n%s\nwant\n%s", got, want)
	}
	if got := seriesOf(text, "DCGM_FI_DEV_GPU_UTIL", "1"); len(got) != 1 || got[0] != `,container="main",namespace="ml",pod="c"} 11` {
		t.Errorf("a device without replicas: %q", got)
	}
	if got := sumByDevice(families["plimsoll_pod_device_power_watts"], "uuid")[uuid(0)]; got < 299.9 || got > 300.1 {
		t.Errorf("the pods' shares are %g W, want the device's 300", got)
	}
}

// With the processes of each pod, used memory and utilization have the value of the pod: 0 for
// an idle one. The device has a series of its own. A device without holders has one series.
func TestVirtualGPUsByProcess(t *testing.T) {
	f := setup(t)
	f.cfg.Labels.VirtualGPUs, f.cfg.Attribution = true, ByProcess
	f.cfg.Pods = metaPods{"a": {UID: "uid-a"}, "b": {UID: "uid-b"}, "c": {UID: "uid-c"}}
	f.cfg.PodOf = func(pid int) (string, string, bool) {
		return "ml", map[int]string{1: "a", 2: "a", 3: "b"}[pid], pid < 4
	}
	f.source.override = func(d device.Device, r *device.Reading) {
		r.Set(device.GPUUtil, float64(10+d.Index))
		r.Set(device.FBUsed, 700)
		r.Set(device.GPUTemp, 60)
		if d.Index == 2 {
			r.Processes = &device.Processes{Memory: map[int]float64{1: 600 << 20}, Busy: map[int]float64{1: 9}}
		}
		if d.Index == 0 {
			r.Processes = &device.Processes{Memory: map[int]float64{1: 100 << 20, 2: 50 << 20, 3: 300 << 20, 4: 9 << 20}, Busy: map[int]float64{1: 1, 2: 2, 3: 5}}
		}
	}
	f.kubelet.holdings["ml/a/main"] = []string{uuid(0) + "::0"}
	f.kubelet.holdings["ml/b/main"] = []string{uuid(0) + "::1"}
	f.kubelet.holdings["ml/c/main"] = []string{uuid(0) + "::2"}
	f.kubelet.holdings["ml/a/alone"] = []string{uuid(2)}
	families, text := f.collect(t)
	for metric, want := range map[string]string{
		"DCGM_FI_DEV_FB_USED": `} 700
,container="main",namespace="ml",pod="a",pod_uid="uid-a",vgpu="0"} 150
,container="main",namespace="ml",pod="b",pod_uid="uid-b",vgpu="1"} 300
,container="main",namespace="ml",pod="c",pod_uid="uid-c",vgpu="2"} 0`,
		"DCGM_FI_DEV_GPU_UTIL": `} 10
,container="main",namespace="ml",pod="a",pod_uid="uid-a",vgpu="0"} 3
,container="main",namespace="ml",pod="b",pod_uid="uid-b",vgpu="1"} 5
,container="main",namespace="ml",pod="c",pod_uid="uid-c",vgpu="2"} 0`,
	} {
		if got := strings.Join(seriesOf(text, metric, "0"), "\n"); got != want {
			t.Errorf("series of %s are\n%s\nwant\n%s", metric, got, want)
		}
	}
	if got := seriesOf(text, "DCGM_FI_DEV_GPU_UTIL", "1"); len(got) != 1 || got[0] != "} 11" {
		t.Errorf("a device without pods: %q", got)
	}
	for metric, want := range map[string]string{"DCGM_FI_DEV_FB_USED": "700 600", "DCGM_FI_DEV_GPU_UTIL": "12 9"} {
		got := fmt.Sprintf("%g %g", value(t, families, metric, "UUID", uuid(2)), value(t, families, metric, "UUID", uuid(2), "pod", "a", "pod_uid", "uid-a"))
		if got != want {
			t.Errorf("%s of a device and its only pod are %s, want %s", metric, got, want)
		}
	}
	if got := seriesOf(text, "DCGM_FI_DEV_GPU_TEMP", "0"); len(got) != 3 || strings.Contains(got[0], "pod_uid") {
		t.Errorf("other metrics have a series for each replica: %q", got)
	}
}

// jobsByIndex returns a job mapping in which whole devices have the jobs of their index.
func jobsByIndex(jobs map[int][]string) func(devices []device.Device) map[string][]string {
	return func(devices []device.Device) map[string][]string {
		out := map[string][]string{}
		for _, d := range devices {
			out[d.UUID] = jobs[d.Index]
		}
		return out
	}
}

// A file server with the job files can be slow. Nothing else waits for it.
func TestSlowJobFilesBlockNothing(t *testing.T) {
	f := setup(t)
	f.collect(t)
	reading, finish := make(chan struct{}), make(chan struct{})
	f.cfg.Jobs = func([]device.Device) map[string][]string {
		close(reading)
		<-finish
		return map[string][]string{uuid(1): {"slurm-1"}}
	}
	collected := make(chan error)
	go func() { collected <- f.Collect(t.Context()) }()
	<-reading
	checked := make(chan error, 1)
	go func() { checked <- f.Healthy() }()
	select {
	case err := <-checked:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("Healthy waits for the job files")
	}
	close(finish)
	if err := <-collected; err != nil {
		t.Fatal(err)
	}
	if _, text := f.scrape(t); !strings.Contains(text, `hpc_job="slurm-1"`) {
		t.Errorf("the job is missing:\n%s", text)
	}
}

func TestJobsOutsideKubernetes(t *testing.T) {
	f := setup(t)
	f.cfg.Jobs = jobsByIndex(map[int][]string{0: {"slurm-1"}, 1: {"slurm-2", "slurm-3"}, 2: {"slurm-4"}})
	f.kubelet.holdings["ml/a/main"] = []string{uuid(2)}
	_, text := f.collect(t)
	for gpu, want := range map[string][2]string{
		"0": {`,hpc_job="slurm-1"} 10`, `,hpc_job="slurm-1"} 700`},
		"1": {`,hpc_job="slurm-2"} 11 ,hpc_job="slurm-3"} 11`, `,hpc_job="slurm-2"} 700 ,hpc_job="slurm-3"} 700`},
		"2": {`,container="main",hpc_job="slurm-4",namespace="ml",pod="a"} 12`, `,container="main",hpc_job="slurm-4",namespace="ml",pod="a"} 700`},
		"3": {`} 13`, `} 700`},
	} {
		for i, metric := range []string{"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_ENFORCED_POWER_LIMIT"} {
			if got := strings.Join(seriesOf(text, metric, gpu), " "); got != want[i] {
				t.Errorf("%s of device %s: %s, want %s", metric, gpu, got, want[i])
			}
		}
	}
}

// If all holders of a device are in the same pod, the single series of a quantity names
// the pod.
func TestQuantitiesNameCommonPod(t *testing.T) {
	f := setup(t)
	f.cfg.Jobs = jobsByIndex(map[int][]string{1: {"j1"}})
	f.kubelet.holdings["ml/a/first"] = []string{uuid(0)}
	f.kubelet.holdings["ml/a/second"] = []string{uuid(0)}
	f.kubelet.holdings["ml/b/main"] = []string{uuid(1), uuid(2)}
	f.kubelet.holdings["ml/c/main"] = []string{uuid(2)}
	_, text := f.collect(t)
	for gpu, want := range map[string]string{
		"0": `,namespace="ml",pod="a"} 300`, "1": `,container="main",hpc_job="j1",namespace="ml",pod="b"} 300`, "2": `} 300`,
	} {
		if got := strings.Join(seriesOf(text, "DCGM_FI_DEV_POWER_USAGE", gpu), " "); got != want {
			t.Errorf("power of device %s: %s, want %s", gpu, got, want)
		}
	}
}

func TestClaimLabels(t *testing.T) {
	holder := podmap.Holder{Namespace: "ml", Pod: "a", Container: "main"}
	claim := func(name string) map[podmap.Holder]podmap.Claim {
		return map[podmap.Holder]podmap.Claim{holder: {Name: "c", Namespace: "ml", Driver: "gpu.nvidia.com", Pool: "node-1", Device: name}}
	}
	pods := podmap.Map{Claimed: map[string]map[podmap.Holder]podmap.Claim{"nvidia0": claim("gpu-0"), "nvidia1/mig-19-0": claim("gpu-1-mig-19-0-1")}}
	for want, d := range map[string]device.Device{
		`{container="main",dra_claim_name="c",dra_claim_namespace="ml",dra_device_name="gpu-0",dra_driver_name="gpu.nvidia.com",dra_pool_name="node-1",namespace="ml",pod="a"}`: {UUID: "GPU-0", Minor: "nvidia0"},
		`{container="main",dra_claim_name="c",dra_claim_namespace="ml",dra_device_name="gpu-1-mig-19-0-1",dra_driver_name="gpu.nvidia.com",dra_mig_device_uuid="MIG-1",dra_mig_profile="1g.10gb",dra_pool_name="node-1",namespace="ml",pod="a"}`: {
			UUID: "MIG-1", Minor: "nvidia1", Instance: &device.Instance{Parent: "GPU-1", Profile: "1g.10gb", GI: 7, Placement: "19-0"}},
		`{container="main",namespace="ml",pod="a"}`: {UUID: "GPU-2", Minor: "nvidia2"},
	} {
		t.Run(d.UUID, func(t *testing.T) {
			r := &renderer{snapshot: &snapshot{pods: pods}}
			shares := r.sharesOf(&deviceSnapshot{device: d}, []podmap.Holder{holder})
			if got := string(formatLabels(r.attributes(shares[0], nil))); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}

// The kubelet knows how many replicas of a device a plugin offers and how many containers
// hold them. It does not know the size of a reservation or of a claim.
func TestDeviceShares(t *testing.T) {
	for name, tc := range map[string]struct {
		id        func(replica int) string
		namespace string
		provider  string // empty if the shares are unknown
	}{
		"time-slicing": {func(i int) string { return fmt.Sprintf("%s::%d", uuid(0), i) }, "ml", "nvidia"},
		"HAMi":         {func(i int) string { return fmt.Sprintf("%s-%d", uuid(0), i) }, "ml", "hami"},
		"GKE":          {func(i int) string { return fmt.Sprintf("nvidia0/vgpu%d", i) }, "ml", "gke"},
		"whole device": {func(int) string { return uuid(0) }, "ml", ""},
		"KAI":          {func(int) string { return uuid(0) }, "kai-resource-reservation", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := setup(t)
			f.kubelet.noDevices = true
			for i := range 10 {
				f.kubelet.ids = append(f.kubelet.ids, tc.id(i))
			}
			f.kubelet.holdings[tc.namespace+"/a/main"] = []string{tc.id(0), tc.id(1)}
			f.kubelet.holdings[tc.namespace+"/b/main"] = []string{tc.id(2)}
			families, _ := f.collect(t)
			for metric, want := range map[string]float64{"plimsoll_device_share_capacity": 10, "plimsoll_device_share_allocated": 3} {
				if tc.provider == "" {
					if families[metric] != nil {
						t.Errorf("%s exists", metric)
					}
					continue
				}
				if got := value(t, families, metric, "uuid", uuid(0), "provider", tc.provider, "dimension", "shares"); got != want || len(families[metric].Metric) != 1 {
					t.Errorf("%s is %g, want %g, in %d series", metric, got, want, len(families[metric].Metric))
				}
			}
		})
	}
}

// With MPS each replica has an equal part of the memory and of the threads. Devices of MPS
// are in exclusive-process mode.
func TestSharesOfMPS(t *testing.T) {
	for name, tc := range map[string]struct {
		id       func(replica int) string
		mode     float64
		provider string
		amounts  int
	}{
		"MPS":          {func(i int) string { return fmt.Sprintf("%s::%d", uuid(0), i) }, device.ExclusiveProcess, "mps", 3},
		"MPS of GKE":   {func(i int) string { return fmt.Sprintf("nvidia0/vgpu%d", i) }, device.ExclusiveProcess, "mps", 3},
		"time-slicing": {func(i int) string { return fmt.Sprintf("%s::%d", uuid(0), i) }, 0, "nvidia", 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := setup(t)
			f.source.override = func(_ device.Device, r *device.Reading) {
				r.Set(device.ComputeMode, tc.mode)
				r.Set(device.FBTotal, 81559)
			}
			f.kubelet.noDevices = true
			for i := range 3 {
				f.kubelet.ids = append(f.kubelet.ids, tc.id(i))
			}
			f.kubelet.holdings["ml/a/main"] = []string{tc.id(0), tc.id(1)}
			f.kubelet.holdings["ml/b/main"] = []string{tc.id(2)}
			families, _ := f.collect(t)
			if n, ofPods := len(families["plimsoll_device_share_capacity"].Metric), len(families["plimsoll_pod_device_share"].Metric); n != tc.amounts || ofPods != 2*n {
				t.Fatalf("%d dimensions, %d of pods, want %d and twice as many", n, ofPods, tc.amounts)
			}
			for pod, want := range map[string]float64{"a": 2, "b": 1} {
				if got := value(t, families, "plimsoll_pod_device_share", "uuid", uuid(0), "namespace", "ml", "pod", pod, "provider", tc.provider, "dimension", "shares"); got != want {
					t.Errorf("pod %s has %g shares, want %g", pod, got, want)
				}
			}
			if tc.amounts == 1 {
				return
			}
			for dimension, want := range map[string][2]float64{"shares": {3, 3}, "memory": {81559 << 20, 3 * 27186 << 20}, "cores": {1, 0.99}} {
				for i, metric := range []string{"plimsoll_device_share_capacity", "plimsoll_device_share_allocated"} {
					if got := value(t, families, metric, "uuid", uuid(0), "provider", tc.provider, "dimension", dimension); got != want[i] {
						t.Errorf("%s of %s is %g, want %g", metric, dimension, got, want[i])
					}
				}
			}
			for dimension, want := range map[string]float64{"memory": 2 * 27186 << 20, "cores": 0.66} {
				if got := value(t, families, "plimsoll_pod_device_share", "pod", "a", "dimension", dimension); got != want {
					t.Errorf("pod a has %g of %s, want %g", got, dimension, want)
				}
			}
		})
	}
}

// HAMi writes the sizes, and the devices that a pod really gets, to an annotation of the pod.
func TestSharesOfHAMi(t *testing.T) {
	f := setup(t)
	f.source.override = func(_ device.Device, r *device.Reading) { r.Set(device.FBTotal, 81559) }
	f.kubelet.noDevices = true
	for d := range 2 {
		for i := range 10 {
			f.kubelet.ids = append(f.kubelet.ids, fmt.Sprintf("%s-%d", uuid(d), i))
		}
	}
	f.kubelet.holdings["ml/a/main"] = []string{uuid(0) + "-0"}
	f.kubelet.holdings["ml/b/main"] = []string{uuid(0) + "-1"}
	families, _ := f.collect(t)
	if n := len(families["plimsoll_device_share_capacity"].Metric); n != 2 {
		t.Errorf("%d series without the API server, want the shares of 2 devices", n)
	}
	pods := metaPods{"a": {HAMi: []podmap.Assignment{{Device: uuid(1), Memory: 3000 << 20, Cores: 0.3}}}, "b": {HAMi: []podmap.Assignment{{Device: uuid(1), Memory: 5000 << 20}}}}
	f.cfg.Pods = pods
	families, text := f.collect(t)
	for _, want := range []struct {
		device    int
		dimension string
		amounts   [2]float64
	}{{0, "shares", [2]float64{10, 0}}, {0, "memory", [2]float64{81559 << 20, 0}}, {1, "shares", [2]float64{10, 2}}, {1, "memory", [2]float64{81559 << 20, 8000 << 20}}, {1, "cores", [2]float64{1, 0.3}}} {
		for i, metric := range []string{"plimsoll_device_share_capacity", "plimsoll_device_share_allocated"} {
			if got := value(t, families, metric, "uuid", uuid(want.device), "provider", "hami", "dimension", want.dimension); got != want.amounts[i] {
				t.Errorf("%s of %s of device %d is %g, want %g", metric, want.dimension, want.device, got, want.amounts[i])
			}
		}
	}
	for _, want := range []struct {
		pod, dimension string
		share          float64
	}{{"a", "memory", 3000 << 20}, {"a", "cores", 0.3}, {"b", "memory", 5000 << 20}} {
		if got := value(t, families, "plimsoll_pod_device_share", "uuid", uuid(1), "pod", want.pod, "provider", "hami", "dimension", want.dimension); got != want.share {
			t.Errorf("pod %s has %g of %s, want %g", want.pod, got, want.dimension, want.share)
		}
	}
	if n := len(families["plimsoll_pod_device_share"].Metric); n != 5 {
		t.Errorf("%d series of pods, want the shares and memory of two and the cores of one", n)
	}
	for _, pod := range []string{"a", "b"} {
		if !strings.Contains(text, fmt.Sprintf(`plimsoll_device_owner_info{node="node-1",uuid=%q,gpu="1",model="NVIDIA-H100-80GB-HBM3",namespace="ml",pod=%q`, uuid(1), pod)) {
			t.Errorf("pod %s does not own the device that HAMi assigned", pod)
		}
	}
	pods["b"] = podmap.Meta{UID: "another", HAMi: []podmap.Assignment{{Device: "unknown", Memory: 1}}} // contradicts the kubelet
	families, _ = f.collect(t)
	if n := len(families["plimsoll_device_share_capacity"].Metric); n != 2 {
		t.Errorf("%d series, want the shares of both devices: HAMi may have given the pod either one", n)
	}
}

// TestOverstatedAssignmentsOfHAMi: the annotations of the pods on a device sum up to more than the
// device has. Nothing of it is free, and no pod has more than the device. An assignment without
// memory is no limit of HAMi: the sizes are unknown.
func TestOverstatedAssignmentsOfHAMi(t *testing.T) {
	const memory = 81559 << 20
	for _, tc := range []struct {
		name           string
		a, b           podmap.Assignment
		allocated, ofA float64 // bytes; 0 if unknown
	}{
		{"one pod", podmap.Assignment{Memory: 10 * memory, Cores: 1}, podmap.Assignment{Memory: 1 << 30, Cores: 1}, memory, memory},
		{"the sum", podmap.Assignment{Memory: memory / 2, Cores: 0.7}, podmap.Assignment{Memory: memory, Cores: 0.7}, memory, memory / 2},
		{"no memory", podmap.Assignment{}, podmap.Assignment{Memory: 1 << 30, Cores: 1}, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := setup(t)
			f.source.override = func(_ device.Device, r *device.Reading) { r.Set(device.FBTotal, 81559) }
			f.kubelet.noDevices = true
			for i := range 10 {
				f.kubelet.ids = append(f.kubelet.ids, fmt.Sprintf("%s-%d", uuid(0), i))
			}
			f.kubelet.holdings["ml/a/main"] = []string{uuid(0) + "-0"}
			f.kubelet.holdings["ml/b/main"] = []string{uuid(0) + "-1"}
			tc.a.Device, tc.b.Device = uuid(0), uuid(0)
			f.cfg.Pods = metaPods{"a": {HAMi: []podmap.Assignment{tc.a}}, "b": {HAMi: []podmap.Assignment{tc.b}}}
			log := f.logTo()
			families, text := f.collect(t)
			if tc.allocated == 0 {
				requireLogged(t, log, "HAMi assigned no memory")
			} else {
				requireLogged(t, log)
			}
			f.collect(t)
			requireLogged(t, log)
			if got := value(t, families, "plimsoll_device_share_allocated", "uuid", uuid(0), "dimension", "shares"); got != 2 {
				t.Errorf("%g shares are allocated, want 2", got)
			}
			if tc.allocated == 0 {
				if strings.Contains(text, `dimension="memory"`) {
					t.Errorf("an assignment without memory is counted:\n%s", text)
				}
				delete(f.kubelet.holdings, "ml/a/main")
				f.collect(t)
				requireLogged(t, log, "HAMi assigned memory to every holder")
				return
			}
			for dimension, want := range map[string]float64{"memory": tc.allocated, "cores": 1} {
				if got := value(t, families, "plimsoll_device_share_allocated", "uuid", uuid(0), "dimension", dimension); got != want {
					t.Errorf("%g of %s are allocated, want %g", got, dimension, want)
				}
			}
			if got := value(t, families, "plimsoll_pod_device_share", "uuid", uuid(0), "pod", "a", "dimension", "memory"); got != tc.ofA {
				t.Errorf("pod a has %g bytes, want %g", got, tc.ofA)
			}
		})
	}
}

// metaPods is the metadata of the pods of the namespace ml.
type metaPods map[string]podmap.Meta

func (m metaPods) Pod(_, name string) (podmap.Meta, bool) { meta, ok := m[name]; return meta, ok }

func (m metaPods) Reachable() bool { return true }
