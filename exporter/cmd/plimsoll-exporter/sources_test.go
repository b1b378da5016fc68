package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/collector"
	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// plug a v5e chip into a fake sysfs; without a driver it has no device node.
func plug(t *testing.T, sysfs, address string, driver bool) {
	t.Helper()
	dir := filepath.Join(sysfs, "bus/pci/devices", address)
	err := os.MkdirAll(dir, 0o755)
	for name, value := range map[string]string{"device": "0x0063", "subsystem_device": "0x0000", "vendor": "0x1ae0"} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(value+"\n"), 0o600))
	}
	if driver {
		err = errors.Join(err, os.Symlink("../../../kernel/iommu_groups/0", filepath.Join(dir, "iommu_group")))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// bare is a node without NVIDIA's library, and whatever is in its sysfs.
func bare(t *testing.T, more ...string) (o *options, sysfs string) {
	t.Helper()
	sysfs = t.TempDir()
	o, err := parse(t, append([]string{"--node-name=n", "-k=false", "--collect-interval=100", "--nvml-library=" + filepath.Join(sysfs, "none.so"),
		"--tpu-sysfs-root=" + sysfs, "--tpu-procfs-root=" + filepath.Join(sysfs, "proc"), "--tpu-runtime-metrics=127.0.0.1:1"}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	return o, sysfs
}

func TestAutoTakesWhatIsThere(t *testing.T) {
	o, sysfs := bare(t)
	plug(t, sysfs, "0000:00:04.0", true)
	pods, sources, err := o.prepare(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	c := collector.NewAuto(o.config(slog.New(slog.DiscardHandler)), pods, sources...)
	var out bytes.Buffer
	if err := errors.Join(c.Collect(t.Context()), c.Healthy(), c.WriteText(&out)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`plimsoll_exporter_source_up{node="n",source="nvml"} 0`, `plimsoll_exporter_source_up{node="n",source="tpu"} 1`,
		`memory_total_node{accelerator_id="n-0",make="cloud-tpu",model="tpu-v5-lite-podslice"} 1.7179869184e+10`,
	} {
		if !strings.Contains(out.String(), want+"\n") {
			t.Errorf("no %s in\n%s", want, &out)
		}
	}
}

func TestAutoOnANodeWithoutAnythingExitsOnlyWhenStrict(t *testing.T) {
	o, _ := bare(t, "--strict")
	err := o.run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "nvml: load NVIDIA's driver library") || !strings.Contains(err.Error(), "tpu: no PCI devices to look at") {
		t.Errorf("--strict says %v", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	o, sysfs := bare(t, "--web.listen-address="+address)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- o.run(ctx) }()
	serves(t, ended, address, `plimsoll_exporter_source_up{node="n",source="tpu"} 0`)
	plug(t, sysfs, "0000:00:04.0", true) // a driver is loaded, say
	serves(t, ended, address, `plimsoll_exporter_source_up{node="n",source="tpu"} 1`)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// serves waits until a scrape has the series.
func serves(t *testing.T, ended <-chan error, address, series string) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			t.Fatalf("it ended: %v", err)
		case <-t.Context().Done():
			t.Fatalf("never %s", series)
		case <-tick.C:
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://%s/metrics", address), nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			continue // not listening yet
		}
		text, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if strings.Contains(string(text), series+"\n") {
			return
		}
	}
}

func TestDoctorOfTPUs(t *testing.T) {
	o, sysfs := bare(t)
	plug(t, sysfs, "0000:00:04.0", true)
	plug(t, sysfs, "0000:00:05.0", false)
	_, sources, err := o.prepare(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := report(&out, "text", inspect(t.Context(), sources)); err == nil || !strings.Contains(err.Error(), "1 of 6 things are missing") {
		t.Errorf("%v", err)
	}
	for _, want := range []string{
		"ok       NVIDIA devices: none on this node, it seems: load NVIDIA's driver library",
		"ok       TPUs: 2, found in sysfs",
		"ok       device 0, tpu-v5-lite-podslice, TPU-n-0000:00:04.0: idle: no workload's runtime answers for it",
		"missing  device 1, tpu-v5-lite-podslice, TPU-n-0000:00:05.0: it has no device node: no driver is bound to it",
		"ok       TPU runtime on 127.0.0.1:1: no workload's runtime listens on 127.0.0.1:1",
		"ok       metrics of the TPU device plugin: not asked; --tpu-plugin-metrics relays",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	for _, c := range []struct {
		state device.ServiceState
		err   error
		want  string
	}{
		{device.ServiceFailed, errors.New("refuses to tell"), "missing  TPU runtime on a:1: refuses to tell\n"},
		{device.ServiceServing, nil, "ok       TPU runtime on a:1: serves\n"},
		{device.ServiceServing, errors.New("half of it"), "ok       TPU runtime on a:1: serves, without half of it\n"},
	} {
		out.Reset()
		_ = report(&out, "text", []finding{service(device.Service{Name: "runtime", Address: "a:1", State: c.state, Err: c.err})}) // that it is missing
		if out.String() != c.want {
			t.Errorf("%q, want %q", &out, c.want)
		}
	}
}
