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
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/exporter/internal/collector"
)

func TestAutoUsesAvailableSource(t *testing.T) {
	o, sysfs := parseBareNode(t)
	addTPU(t, sysfs, "0000:00:04.0", true)
	pods, sources, err := o.prepare(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	c := collector.New(o.collectorConfig(slog.New(slog.DiscardHandler)), pods, sources...)
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

func TestAutoWithoutDevicesExitsOnlyWithStrict(t *testing.T) {
	o, _ := parseBareNode(t, "--strict")
	err := o.run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "nvml: load NVIDIA's driver library") || !strings.Contains(err.Error(), "tpu: list the PCI devices") {
		t.Errorf("--strict: %v", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	o, sysfs := parseBareNode(t, "--web.listen-address="+address)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- o.run(ctx) }()
	waitForSeries(t, ended, address, `plimsoll_exporter_source_up{node="n",source="tpu"} 0`)
	addTPU(t, sysfs, "0000:00:04.0", true) // as if a driver was loaded
	waitForSeries(t, ended, address, `plimsoll_exporter_source_up{node="n",source="tpu"} 1`)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// serves waits until a scrape has the series.
func waitForSeries(t *testing.T, ended <-chan error, address, series string) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			t.Fatalf("the exporter ended: %v", err)
		case <-t.Context().Done():
			t.Fatalf("%s does not appear", series)
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
