package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kingpin/v2"
	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

func TestDoctorReportsMissingDriverAndKubelet(t *testing.T) {
	o, err := parse(t, "--node-name=n", "--tpu-sysfs-root="+t.TempDir(), "--amd-sysfs-root="+t.TempDir(), "--nvml-library="+filepath.Join(t.TempDir(), "libnvidia-ml.so.1"), "--pod-resources-kubelet-socket="+filepath.Join(t.TempDir(), "kubelet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	pods, source, err := o.prepare(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = report(&out, "text", append(checkSources(t.Context(), source), o.checkKubelet(t.Context(), pods)))
	if err == nil || !strings.Contains(err.Error(), "4 of 4 checks failed") {
		t.Errorf("%v", err)
	}
	for _, want := range []string{"failed  NVIDIA devices: load NVIDIA's driver library", "is the driver installed", "failed  TPUs: list the PCI devices", "failed  AMD GPUs: list the graphics devices", "failed  kubelet: stat ", "mount the directory of the kubelet socket into the container"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

func TestDoctorJSON(t *testing.T) {
	o, err := parse(t, "--node-name=n", "--source=nvml", "--nvml-library=/nonexistent/libnvidia-ml.so.1", "--pod-resources-kubelet-socket=/nonexistent/kubelet.sock")
	if err != nil {
		t.Fatal(err)
	}
	pods, source, err := o.prepare(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := report(&out, "json", append(checkSources(t.Context(), source), o.checkKubelet(t.Context(), pods))); err == nil {
		t.Error("no error although every check fails")
	}
	golden, err := os.ReadFile("testdata/doctor.json")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(golden), out.String()); diff != "" {
		t.Error(diff)
	}
	args := normalizeArgs(kingpin.New("x", ""), []string{"-o", "doctor", "-o=json"})
	if diff := cmp.Diff([]string{"-o", "doctor", "--output=json"}, args); diff != "" {
		t.Error(diff)
	}
}

func TestDoctorReportsLostDevice(t *testing.T) {
	o, err := parse(t, "--node-name=n", "--source=sim", "--sim-scenario=gpu-lost", "-k=false")
	if err != nil {
		t.Fatal(err)
	}
	pods, source, err := o.prepare(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := report(&out, "text", append(checkSources(t.Context(), source), o.checkKubelet(t.Context(), pods))); err == nil {
		t.Error("no error although a device is lost")
	}
	text := out.String()
	if strings.Count(text, "ok      device ") != 7 || strings.Count(text, "failed  device 3") != 1 || strings.Count(text, "missing: DCGM_FI_") != 1 {
		t.Errorf("%s", text)
	}
}

var update = flag.Bool("update", false, "write the golden files")

// metricCount matches the text that changes with every new metric.
var metricCount = regexp.MustCompile(`provides \d+ of \d+ metrics(; missing: [A-Z0-9_ ]+)?`)

// The README shows lines that doctor prints.
func TestReadmeShowsOutputOfDoctor(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "kubelet.sock")
	out := runToFailure(t, command(t, "doctor", "--source=sim", "--pod-resources-kubelet-socket="+socket), 1)
	out = strings.ReplaceAll(out, socket, "/var/lib/kubelet/pod-resources/kubelet.sock")
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(readme), "\n## doctor\n")
	_, block, _ := strings.Cut(section, "\n```\n")
	example, _, ok := strings.Cut(block, "```\n")
	if !ok {
		t.Fatal("exporter/README.md has no example of doctor")
	}
	for line := range strings.Lines(example) {
		if !strings.Contains(out, line) {
			t.Errorf("doctor does not print %q\n%s", line, out)
		}
	}
}

func TestDoctorTPUs(t *testing.T) {
	o, sysfs := parseBareNode(t)
	addTPU(t, sysfs, "0000:00:04.0", true)
	addTPU(t, sysfs, "0000:00:05.0", false)
	_, sources, err := o.prepare(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := report(&out, "text", checkSources(t.Context(), sources)); err == nil || !strings.Contains(err.Error(), "1 of 7 checks failed") {
		t.Errorf("%v", err)
	}
	for _, want := range []string{
		"ok      NVIDIA devices: none on this node: load NVIDIA's driver library",
		"ok      TPUs: 2, found in sysfs",
		"ok      device 0, tpu-v5-lite-podslice, TPU-n-0000:00:04.0: idle: no workload's runtime reports the chip",
		"failed  device 1, tpu-v5-lite-podslice, TPU-n-0000:00:05.0: no device node: no driver is bound to the chip",
		"ok      TPU runtime at 127.0.0.1:1: no workload's runtime listens on 127.0.0.1:1",
		"ok      TPU device plugin: not queried; --tpu-plugin-metrics relays",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	for _, tc := range []struct {
		state device.ServiceState
		err   error
		want  string
	}{
		{device.ServiceFailed, errors.New("connection refused"), "failed  TPU runtime at a:1: connection refused\n"},
		{device.ServiceServing, nil, "ok      TPU runtime at a:1: serving\n"},
		{device.ServiceServing, errors.New("no memory metric"), "ok      TPU runtime at a:1: serving; incomplete: no memory metric\n"},
	} {
		t.Run(tc.want, func(t *testing.T) {
			out.Reset()
			_ = report(&out, "text", []finding{checkService(device.Service{Name: "runtime", Address: "a:1", State: tc.state, Err: tc.err})}) // fails for a failed service
			if out.String() != tc.want {
				t.Errorf("%q, want %q", &out, tc.want)
			}
		})
	}
}

func TestDoctorNamesMissingPrivilege(t *testing.T) {
	reading := device.Reading{Calls: []device.Call{{Name: "nvmlGpmMetricsGet", Err: fmt.Errorf("%w: no permission", device.ErrDenied)}}}
	for _, f := range checkCapabilities([]deviceReading{{reading: reading}}, func(string) bool { return true }) {
		status, detail := f.status()
		isGPM := strings.HasPrefix(f.check, "GPM")
		if isGPM != strings.Contains(detail, "SYS_ADMIN") || isGPM != (status == statusFailed) {
			t.Errorf("%s %s: %s", status, f.check, detail)
		}
	}
}
