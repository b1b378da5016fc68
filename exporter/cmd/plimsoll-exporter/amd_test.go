package main

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	amdfake "plimsoll.dev/plimsoll/exporter/internal/amd/fake"
	podfake "plimsoll.dev/plimsoll/exporter/internal/podmap/fake"
)

const amdGPU0, amdGPU1, amdGPU2 = "0000:19:00.0", "0000:5c:00.0", "0000:9b:00.0"

// startAMDNode starts the exporter on a node with three MI300X. A pod holds the first and
// trains on it.
func startAMDNode(t *testing.T) (*amdfake.Sysfs, *podfake.Kubelet, *process) {
	t.Helper()
	sysfs, kubelet := amdfake.New(t), podfake.Start(t)
	for i, address := range []string{amdGPU0, amdGPU1, amdGPU2} {
		sysfs.AddGPU(address, i)
	}
	sysfs.Set(amdGPU0, "gpu_busy_percent", "97")
	sysfs.Set(amdGPU0, "mem_info_vram_used", "103070826496")
	sysfs.Set(amdGPU0, "hwmon/hwmon3/power1_input", "700000000")
	sysfs.SetEnergy(amdGPU0, 1, 7, 24, 1000<<16)
	kubelet.Allocatable("amd.com/gpu", amdGPU0, amdGPU1, amdGPU2)
	kubelet.Hold("team-a/train-0/main", "amd.com/gpu", amdGPU0)
	return sysfs, kubelet, start(t, command(t, "--amd-sysfs-root="+sysfs.Root, "--pod-resources-kubelet-socket="+kubelet.Socket))
}

func expectLines(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, line := range want {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no %s", line)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

func TestServesAMDGPUs(t *testing.T) {
	_, _, p := startAMDNode(t)
	text := p.waitFor("/metrics", http.StatusOK, "plimsoll_device_busy_ratio")
	const (
		group  = `node="node-1",resource="amd.com/gpu",model="AMD_Instinct_MI300X_OAM"`
		device = `node="node-1",uuid="GPU-a1b2c3d400000000",gpu="0",model="AMD_Instinct_MI300X_OAM"`
	)
	expectLines(t, text,
		`plimsoll_node_devices{`+group+`,state="allocatable"} 3`, `plimsoll_node_devices{`+group+`,state="allocated"} 1`, `plimsoll_node_devices{`+group+`,state="free"} 2`,
		`plimsoll_node_devices{`+group+`,state="unhealthy"} 0`, `plimsoll_node_devices{`+group+`,state="unknown"} 0`,
		`plimsoll_device_owner_info{`+device+`,namespace="team-a",pod="train-0",container="main"} 1`,
		`plimsoll_device_busy_ratio{`+device+`} 0.97`,
		`plimsoll_device_memory_total_bytes{`+device+`} 2.06141652992e+11`,
		`plimsoll_device_memory_used_bytes{`+device+`} 1.03070826496e+11`,
		`plimsoll_device_memory_headroom_bytes{`+device+`} 1.03070826496e+11`,
		`plimsoll_device_temperature_celsius{`+device+`,sensor="gpu"} 41`,
		`plimsoll_device_temperature_celsius{`+device+`,sensor="memory"} 34`,
		`plimsoll_device_thermal_headroom_celsius{`+device+`} 59`,
		`plimsoll_device_power_watts{`+device+`} 700`,
		`plimsoll_device_power_headroom_watts{`+device+`} 50`,
		`plimsoll_device_energy_joules_total{`+device+`} 1000`,
		`plimsoll_pod_device_power_watts{`+device+`,namespace="team-a",pod="train-0",attribution="device"} 700`,
		`plimsoll_exporter_source_up{node="node-1",source="amd"} 1`,
		`plimsoll_exporter_mapped_devices{node="node-1"} 3`,
	)
	if strings.Contains(text, "DCGM_FI_") {
		t.Error("an AMD GPU has metrics of dcgm-exporter")
	}
}

// A lost GPU, a GPU whose sensors fail and a GPU without driver are not free. An unknown id
// takes one device off the free ones.
func TestAMDGPUsThatAreNotFree(t *testing.T) {
	sysfs, kubelet, p := startAMDNode(t)
	const group = `node="node-1",resource="amd.com/gpu",model="AMD_Instinct_MI300X_OAM"`
	p.waitFor("/metrics", http.StatusOK, `plimsoll_node_devices{`+group+`,state="free"} 2`)
	sysfs.Remove(amdGPU1)
	// A collection during the removal finds a part of the GPU's files: the GPU has failed.
	expectLines(t, p.waitFor("/metrics", http.StatusOK, `plimsoll_device_lost{node="node-1",uuid="GPU-a1b2c3d400000001",gpu="1",model="AMD_Instinct_MI300X_OAM"} 1`),
		`plimsoll_node_devices{`+group+`,state="free"} 1`, `plimsoll_node_devices{`+group+`,state="unhealthy"} 1`)
	sysfs.Unbind(amdGPU2)
	expectLines(t, p.waitFor("/metrics", http.StatusOK, `plimsoll_node_devices{`+group+`,state="free"} 0`),
		`plimsoll_device_failed{node="node-1",uuid="GPU-a1b2c3d400000002",gpu="2",model="AMD_Instinct_MI300X_OAM"} 1`)
	sysfs.Bind(amdGPU2, 2)
	p.waitFor("/metrics", http.StatusOK, `plimsoll_node_devices{`+group+`,state="free"} 1`)
	kubelet.Hold("team-b/other/main", "amd.com/gpu", "amdgpu_xcp_77")
	expectLines(t, p.waitFor("/metrics", http.StatusOK, `plimsoll_node_devices{`+group+`,state="free"} 0`), `plimsoll_node_devices{`+group+`,state="unknown"} 1`)
}

// Resource claims of AMD's DRA driver name the card and the render node.
func TestAMDGPUsOfResourceClaims(t *testing.T) {
	_, kubelet, p := startAMDNode(t)
	kubelet.Allocatable("amd.com/gpu")
	kubelet.Release("team-a/train-0/main")
	kubelet.Hold("team-a/train-1/main", "claim:gpu.amd.com", "gpu-1-129")
	const group = `node="node-1",resource="gpu.amd.com",model="AMD_Instinct_MI300X_OAM"`
	expectLines(t, p.waitFor("/metrics", http.StatusOK, `plimsoll_node_devices{`+group+`,state="free"} 2`), `plimsoll_node_devices{`+group+`,state="allocated"} 1`,
		`plimsoll_device_owner_info{node="node-1",uuid="GPU-a1b2c3d400000001",gpu="1",model="AMD_Instinct_MI300X_OAM",namespace="team-a",pod="train-1",container="main"} 1`)
}

// In a partition mode only the partitions can be allocated.
func TestAMDPartitions(t *testing.T) {
	sysfs, kubelet, p := startAMDNode(t)
	sysfs.Partition(amdGPU0, "CPX", "NPS4", 0, 8, 9, 10)
	kubelet.Allocatable("amd.com/gpu", amdGPU1, amdGPU2)
	kubelet.Allocatable("amd.com/cpx_nps4", amdGPU0, "amdgpu_xcp_8", "amdgpu_xcp_9", "amdgpu_xcp_10")
	kubelet.Release("team-a/train-0/main")
	kubelet.Hold("team-a/train-1/main", "amd.com/cpx_nps4", "amdgpu_xcp_9")
	const group = `node="node-1",resource="amd.com/cpx_nps4",model="AMD_Instinct_MI300X_OAM-CPX-NPS4"`
	// A collection between the steps above shows as many free partitions, and another holder.
	text := p.waitFor("/metrics", http.StatusOK,
		`plimsoll_device_owner_info{node="node-1",uuid="GPU-a1b2c3d400000000-xcp2",gpu="0",model="AMD_Instinct_MI300X_OAM-CPX-NPS4",namespace="team-a",pod="train-1",container="main"} 1`)
	expectLines(t, text, `plimsoll_node_devices{`+group+`,state="allocatable"} 4`, `plimsoll_node_devices{`+group+`,state="free"} 3`,
		`plimsoll_node_devices{node="node-1",resource="amd.com/gpu",model="AMD_Instinct_MI300X_OAM",state="free"} 2`)
	if strings.Contains(text, "plimsoll_node_free_mig_instances") || strings.Contains(text, "plimsoll_exporter_unmapped_devices") {
		t.Error("a partition is a MIG instance or is not mapped")
	}
}

func TestDoctorChecksAMDGPUs(t *testing.T) {
	sysfs := amdfake.New(t)
	sysfs.AddGPU(amdGPU0, 0)
	sysfs.AddGPU(amdGPU1, 1)
	sysfs.Unset(amdGPU0, "gpu_metrics")
	sysfs.Partition(amdGPU1, "DPX", "NPS1", 1, 8)
	cmd := command(t, "doctor", "--amd-sysfs-root="+sysfs.Root)
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Run(); err == nil {
		t.Error("doctor succeeds without a kubelet")
	}
	expectLines(t, out.String(), "ok      AMD GPUs: 2, found in sysfs",
		"ok      device 0, AMD Instinct MI300X OAM, GPU-a1b2c3d400000000: provides 6 of 7 metrics; missing: plimsoll_device_energy_joules_total",
		"ok      device 1, AMD Instinct MI300X OAM, GPU-a1b2c3d400000001: provides 7 of 7 metrics; 2 partitions DPX-NPS1")
}
