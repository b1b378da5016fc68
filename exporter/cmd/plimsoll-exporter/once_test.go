package main

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"plimsoll.dev/plimsoll/exporter/internal/collector"
	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
	"plimsoll.dev/plimsoll/exporter/internal/sim"
)

// rates are told from the second reading on, as NVIDIA's library does.
type rates struct {
	device.Source
	reads int
}

func (r *rates) Read(ctx context.Context, d device.Device) (device.Reading, error) {
	reading, err := r.Source.Read(ctx, d)
	if d.Index != 0 {
		return reading, err
	}
	if r.reads++; r.reads < 2 {
		return device.Reading{Time: reading.Time}, err
	}
	return reading, err
}

func TestOnceHasRates(t *testing.T) {
	pods, err := podmap.New("", nil)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	source, err := sim.FromScenario("steady", 1, pods.Holds, log)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := printOnce(t.Context(), collector.New(collector.Config{Node: "n", Log: log}, &rates{Source: source}, pods), &out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), `DCGM_FI_PROF_PCIE_TX_BYTES{gpu="0"`) {
		t.Errorf("no rates of device 0 in\n%s", &out)
	}
}
