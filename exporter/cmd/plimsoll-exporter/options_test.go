package main

import (
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestEventWindowFlags(t *testing.T) {
	t.Setenv("DCGM_EXPORTER_CLOCK_EVENTS_COUNT_WINDOW_SIZE", "1500")
	o, err := parse(t, "-x", "60000")
	if err != nil {
		t.Fatal(err)
	}
	if c := o.collectorConfig(nil); c.XIDWindow != time.Minute || c.ClockEventsWindow != 1500*time.Millisecond {
		t.Errorf("%+v", c)
	}
	o, err = parse(t, "-x=0", "--node-name=n")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := o.prepare(slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "--xid-count-window-size must be at least 1 milliseconds, not 0") {
		t.Errorf("%v", err)
	}
}

func TestDevicesFlagIsValidated(t *testing.T) {
	o, err := parse(t, "-d", "g:x", "--node-name=n")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := o.prepare(slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "--devices") {
		t.Errorf("%v", err)
	}
}
