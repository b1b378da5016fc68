package collector

import (
	"fmt"
	"strings"
	"testing"

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

func TestJobsOutsideKubernetes(t *testing.T) {
	f := setup(t)
	f.cfg.Jobs = func(d device.Device) []string {
		return map[int][]string{0: {"slurm-1"}, 1: {"slurm-2", "slurm-3"}, 2: {"slurm-4"}}[d.Index]
	}
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
	f.cfg.Jobs = func(d device.Device) []string { return map[int][]string{1: {"j1"}}[d.Index] }
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
