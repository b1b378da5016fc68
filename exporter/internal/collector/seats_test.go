package collector

import (
	"slices"
	"strings"
	"testing"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// series of a metric on one device, by the end of their labels.
func ends(text, metric, gpu string) (out []string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, metric+`{gpu="`+gpu+`"`) {
			_, end, _ := strings.Cut(strings.TrimSpace(line), `DCGM_FI_DRIVER_VERSION="580.1"`)
			out = append(out, end)
		}
	}
	return out
}

func TestVirtualGPUsHaveASeriesEach(t *testing.T) {
	f := setup(t)
	f.cfg.Labels.VirtualGPUs = true
	f.kubelet.held["ml/a/main"] = []string{uuid(0) + "::1", uuid(0) + "::0"}
	f.kubelet.held["ml/b/main"] = []string{uuid(0) + "::2"}
	f.kubelet.held["ml/c/main"] = []string{uuid(1)}
	families, text := f.collect(t)
	want := `,container="main",namespace="ml",pod="a",vgpu="0"} 10
,container="main",namespace="ml",pod="a",vgpu="1"} 10
,container="main",namespace="ml",pod="b",vgpu="2"} 10`
	if got := strings.Join(ends(text, "DCGM_FI_DEV_GPU_UTIL", "0"), "\n"); got != want {
		t.Errorf("series are\n%s\nwant\n%s", got, want)
	}
	if got := ends(text, "DCGM_FI_DEV_GPU_UTIL", "1"); len(got) != 1 || got[0] != `,container="main",namespace="ml",pod="c"} 11` {
		t.Errorf("a whole device: %q", got)
	}
	if got := sumByDevice(families["plimsoll_pod_device_power_watts"], "uuid")[uuid(0)]; got < 299.9 || got > 300.1 {
		t.Errorf("the pods' shares are %g W, want the device's 300", got)
	}
}

func TestJobsOutsideOfKubernetes(t *testing.T) {
	f := setup(t)
	f.cfg.Jobs = func(d device.Device) []string {
		return map[int][]string{0: {"slurm-1"}, 1: {"slurm-2", "slurm-3"}, 2: {"slurm-4"}}[d.Index]
	}
	f.kubelet.held["ml/a/main"] = []string{uuid(2)}
	_, text := f.collect(t)
	for gpu, want := range map[string][2]string{
		"0": {`,hpc_job="slurm-1"} 10`, `,hpc_job="slurm-1"} 700`},
		"1": {`} 11`, `,hpc_job="slurm-2"} 700 ,hpc_job="slurm-3"} 700`}, // what two share stands once
		"2": {`,container="main",hpc_job="slurm-4",namespace="ml",pod="a"} 12`, `,container="main",hpc_job="slurm-4",namespace="ml",pod="a"} 700`},
		"3": {`} 13`, `} 700`},
	} {
		for i, metric := range []string{"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_ENFORCED_POWER_LIMIT"} {
			if got := strings.Join(ends(text, metric, gpu), " "); got != want[i] {
				t.Errorf("%s of device %s: %s, want %s", metric, gpu, got, want[i])
			}
		}
	}
}

func TestDevicesThatAreShown(t *testing.T) {
	f := setup(t)
	f.box.instances = []device.Instance{{Profile: "1g.10gb", GI: 1}, {Profile: "1g.10gb", GI: 2}}
	for text, want := range map[string]string{"f": "1 2 3 4 5 6 7 i1 i2", "g": "0 1 2 3 4 5 6 7", "g:0,2-4": "0 2 3 4", "i": "i1 i2", "i:2": "i2", "i:0,1": "i1", "g:9": ""} {
		var err error
		if f.cfg.Labels.Devices, err = ParseDevices(text); err != nil {
			t.Fatal(err)
		}
		families, all := f.collect(t)
		var got []string
		for line := range strings.Lines(all) {
			if rest, ok := strings.CutPrefix(line, `DCGM_FI_DEV_XID_ERRORS{gpu="`); ok {
				name := rest[:1]
				if _, after, cut := strings.Cut(line, `GPU_I_ID="`); cut {
					name = "i" + after[:1]
				}
				got = append(got, name)
			}
		}
		// Instances come after their device.
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("%s shows %q, want %q", text, strings.Join(got, " "), want)
		}
		if strings.HasPrefix(want, "0") && value(t, families, "DCGM_FI_DEV_FB_FREE", "UUID", uuid(0)) != 80_000 {
			t.Errorf("%s: the device's memory is not told:\n%s", text, all)
		}
		if text == "f" && value(t, families, "DCGM_FI_DEV_POWER_USAGE", "UUID", uuid(0)) != 300 {
			t.Errorf("the device's power is not told:\n%s", all)
		}
		if value(t, families, "plimsoll_node_devices", "state", "allocatable") != 8 {
			t.Errorf("%s: devices that are not shown are not counted", text)
		}
	}
	for _, wrong := range []string{"", "x", "f:1", "g:", "g:a", "g:3-1", "g:-1", "i:0,", "g:0-9999999"} {
		if _, err := ParseDevices(wrong); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
}

// What stands once for a shared device still is of the pod, where all is one pod's.
func TestWhatIsUsedTogetherIsOfThePodThatSharesItWithItself(t *testing.T) {
	f := setup(t)
	f.cfg.Jobs = func(d device.Device) []string { return map[int][]string{1: {"j1", "j2"}}[d.Index] }
	f.kubelet.held["ml/a/left"] = []string{uuid(0)}
	f.kubelet.held["ml/a/right"] = []string{uuid(0)}
	f.kubelet.held["ml/b/main"] = []string{uuid(1), uuid(2)}
	f.kubelet.held["ml/c/main"] = []string{uuid(2)}
	_, text := f.collect(t)
	for gpu, want := range map[string]string{
		"0": `,namespace="ml",pod="a"} 300`, "1": `,container="main",namespace="ml",pod="b"} 300`, "2": `} 300`,
	} {
		if got := strings.Join(ends(text, "DCGM_FI_DEV_POWER_USAGE", gpu), " "); got != want {
			t.Errorf("power of device %s: %s, want %s", gpu, got, want)
		}
	}
}

func TestDevicesOfClaimsNameTheClaim(t *testing.T) {
	who := podmap.Holder{Namespace: "ml", Pod: "a", Container: "main"}
	claim := func(name string) map[podmap.Holder]podmap.Claim {
		return map[podmap.Holder]podmap.Claim{who: {Name: "c", Namespace: "ml", Driver: "gpu.nvidia.com", Pool: "node-1", Device: name}}
	}
	pods := podmap.Map{Claimed: map[string]map[podmap.Holder]podmap.Claim{"nvidia0": claim("gpu-0"), "nvidia1/mig-19-0-1": claim("gpu-1-mig-19-0-1")}}
	for want, d := range map[string]device.Device{
		`{container="main",dra_claim_name="c",dra_claim_namespace="ml",dra_device_name="gpu-0",dra_driver_name="gpu.nvidia.com",dra_pool_name="node-1",namespace="ml",pod="a"}`: {UUID: "GPU-0", Minor: "nvidia0"},
		`{container="main",dra_claim_name="c",dra_claim_namespace="ml",dra_device_name="gpu-1-mig-19-0-1",dra_driver_name="gpu.nvidia.com",dra_mig_device_uuid="MIG-1",dra_mig_profile="1g.10gb",dra_pool_name="node-1",namespace="ml",pod="a"}`: {
			UUID: "MIG-1", Minor: "nvidia1", Instance: &device.Instance{Parent: "GPU-1", Profile: "1g.10gb", GI: 7, Placement: "19-0-1"}},
		`{container="main",namespace="ml",pod="a"}`: {UUID: "GPU-2", Minor: "nvidia2"},
	} {
		c := setup(t)
		if got := string(text(c.attributes(c.seats(d, []podmap.Holder{who}, pods)[0], nil))); got != want {
			t.Errorf("%s: %s, want %s", d.UUID, got, want)
		}
	}
}
