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
	for flag, want := range map[string]string{
		"-x=0":                "--xid-count-window-size must be at least 1 milliseconds, not 0",
		"-c=3000000000000000": "--collect-interval must be at most 2592000000 milliseconds, not 3000000000000000",
	} {
		o, err := parse(t, flag, "--node-name=n")
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := o.prepare(slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", flag, err)
		}
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
