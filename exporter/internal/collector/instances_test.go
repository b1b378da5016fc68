package collector

import (
	"testing"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

func TestGPUInstanceOfAComputeInstance(t *testing.T) {
	for profile, want := range map[string]string{"1g.10gb": "1g.10gb", "1c.2g.20gb": "2g.20gb", "1g.10gb+me": "1g.10gb+me", "": ""} {
		if got := giProfile(profile); got != want {
			t.Errorf("%q lies in %q, want %q", profile, got, want)
		}
	}
}

// A node selector must be able to name what the metrics name.
func TestModelOfAnInstance(t *testing.T) {
	for profile, want := range map[string]string{"1g.10gb": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", "1g.10gb+me": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gbme"} {
		d := device.Device{Model: "NVIDIA H100 80GB HBM3", Instance: &device.Instance{Profile: profile}}
		if got := modelOf(d); got != want {
			t.Errorf("%s is a %s, want %s", profile, got, want)
		}
	}
}

// What its holders use up together is told by unit; these are the ones on the border.
func TestWhatIsAdditive(t *testing.T) {
	want := map[device.Field]bool{device.PowerUsage: true, device.TotalEnergy: true, device.FBUsed: true, device.FBUsedRatio: true, device.GPUUtil: true,
		device.PowerLimit: false, device.FBFree: false, device.FBTotal: false, device.GPUTemp: false, device.SMClock: false, device.ThermalViolation: false, device.ECCSingleVolatile: false}
	for _, f := range fields {
		if w, ok := want[f.field]; ok && additive(f) != w {
			t.Errorf("%s is additive: %t", f.name, !w)
		}
	}
}

// Two compute instances in one GPU instance are one series in DCGM's words, and two
// devices in ours.
func TestTwoComputeInstancesOfAGPUInstance(t *testing.T) {
	f := setup(t)
	f.box.instances = []device.Instance{{Profile: "1c.2g.20gb", GI: 3, CI: 0}, {Profile: "1c.2g.20gb", GI: 3, CI: 1}}
	f.kubelet.held["ml/a/main"] = []string{"MIG-" + uuid(0) + "/3/0"}
	f.kubelet.held["ml/b/main"] = []string{"MIG-" + uuid(0) + "/3/1"}
	families, text := f.collect(t)
	used := families["DCGM_FI_DEV_FB_USED"].Metric
	if len(used) != 1 || value(t, families, "DCGM_FI_DEV_FB_USED", "GPU_I_PROFILE", "2g.20gb", "GPU_I_ID", "3") != 700 {
		t.Errorf("memory of one GPU instance:\n%s", text)
	}
	for _, pod := range []string{"a", "b"} {
		value(t, families, "DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "GPU_I_ID", "3", "pod", pod)
		value(t, families, "plimsoll_device_owner_info", "model", "NVIDIA-H100-80GB-HBM3-MIG-1c.2g.20gb", "pod", pod)
	}
}

// Several containers on a device: what they use up together stands once, so that
// no sum over pods exceeds the device; what each of them sees stands for each.
func TestASharedDeviceIsCountedOnce(t *testing.T) {
	f := setup(t)
	f.kubelet.held["ml/a/main"] = []string{uuid(0) + "::0"}
	f.kubelet.held["ml/b/main"] = []string{uuid(0) + "::1"}
	f.kubelet.held["ml/c/main"] = []string{uuid(1) + "::1"}
	families, text := f.collect(t)
	for _, name := range []string{"DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_UTIL"} {
		if n := len(families[name].Metric); n != 8 {
			t.Errorf("%d series of %s for 8 devices:\n%s", n, name, text)
		}
		value(t, families, name, "UUID", uuid(1), "pod", "c")
	}
	for _, pod := range []string{"a", "b"} {
		if got := value(t, families, "DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "UUID", uuid(0), "pod", pod); got != 700 {
			t.Errorf("%s sees a limit of %g W", pod, got)
		}
	}
}

// Instances share the fate of their device.
func TestInstancesOfAHungDeviceAreUnhealthyAndNotCalled(t *testing.T) {
	f := setup(t)
	f.box.instances = []device.Instance{{Profile: "1g.10gb", GI: 1}}
	f.collect(t)
	stall := make(chan struct{})
	f.box.mu.Lock()
	f.box.hung[uuid(0)] = stall
	f.box.mu.Unlock()
	families, text := f.collect(t)
	if value(t, families, "plimsoll_device_failed", "uuid", "MIG-0-1-0") != 1 || families["DCGM_FI_DEV_FB_USED"] != nil {
		t.Errorf("an instance of a device that does not answer:\n%s", text)
	}
	f.box.mu.Lock()
	reads := f.box.reads["MIG-0-1-0"]
	delete(f.box.hung, uuid(0))
	f.box.mu.Unlock()
	if reads != 1 {
		t.Errorf("it was called %d times, want once", reads)
	}
	close(stall)
	for value(t, families, "plimsoll_device_hung", "uuid", uuid(0)) != 0 {
		families, _ = f.collect(t)
	}
	if value(t, families, "plimsoll_device_failed", "uuid", "MIG-0-1-0") != 0 {
		t.Error("its device answers again, and it is still called failed")
	}
}

// An instance tells no utilization; how long its engine is active tells whether the
// pod that holds it does anything.
func TestAnIdleInstanceThatIsHeld(t *testing.T) {
	for active, idle := range map[float64]bool{0: true, 0.5: false} {
		k := &known{}
		r := device.Reading{Time: time.Unix(1_800_000_000, 0)}
		r.Set(device.EngineActive, active)
		k.trackIdle(r)
		if _, tells := busy(r); !tells || k.idleFrom.IsZero() == idle {
			t.Errorf("active %g: tells %t, idle since %s", active, tells, k.idleFrom)
		}
	}
}
