//go:build !race

package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"plimsoll.dev/plimsoll/exporter/internal/podmap"
	"plimsoll.dev/plimsoll/exporter/internal/podmap/fake"
	"plimsoll.dev/plimsoll/exporter/internal/sim"
)

// memoryLimit is the limit of the container in config/exporter.
const memoryLimit = 128 << 20

// 4,000 pods that share a device do not take the exporter to the memory limit of its
// container.
func TestMemoryWithThousandsOfPodsOnOneDevice(t *testing.T) {
	none, err := podmap.New("", nil)
	if err != nil {
		t.Fatal(err)
	}
	source, err := sim.FromScenario("steady", 1, none.IsAllocated, nil)
	if err != nil {
		t.Fatal(err)
	}
	devices, err := source.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	kubelet := fake.Start(t)
	const pods = 4000
	var ids []string
	for i := range pods {
		ids = append(ids, fmt.Sprintf("%s::%d", devices[0].UUID, i))
		kubelet.Hold(fmt.Sprintf("team-a/notebook-%d/main", i), "nvidia.com/gpu", ids[i])
	}
	kubelet.Allocatable("nvidia.com/gpu", ids...)
	cmd := command(t, "--source=sim", "-f", "all", "--pod-resources-kubelet-socket="+kubelet.Socket, "--collect-interval=200")
	cmd.Path = buildExporter(t)
	p := start(t, cmd)
	want := fmt.Sprintf(`plimsoll_exporter_omitted_shares{node="node-1"} %d`, pods-1000)
	for range 20 {
		p.waitFor("/metrics", http.StatusOK, want)
	}
	peak := peakMemory(t, p.Process.Pid)
	if peak > memoryLimit*3/4 {
		t.Errorf("the exporter used %d MiB, more than three quarters of its limit", peak>>20)
	}
	t.Logf("the exporter used %d MiB with %d pods", peak>>20, pods)
}

// peakMemory returns the peak resident memory of a process in bytes.
func peakMemory(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(status, []byte("VmHWM:"))
	kib, err := strconv.Atoi(strings.Fields(string(rest))[0])
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
