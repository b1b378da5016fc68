package main

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2" //nolint:depguard // passes its lines to slog
)

func TestLogFormat(t *testing.T) {
	for _, tc := range []struct {
		name, format string
		check        func(line string) bool
	}{
		{"text", logFormatText, func(line string) bool {
			return strings.HasSuffix(line, `level=DEBUG msg="Round finished" policy=fleet scored=3`+"\n")
		}},
		{"json", logFormatJSON, func(line string) bool {
			record := map[string]any{}
			return json.Unmarshal([]byte(line), &record) == nil && record["level"] == "DEBUG" && record["msg"] == "Round finished" &&
				record["policy"] == "fleet" && record["scored"] == 3.0
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out bytes.Buffer
			log := logr.FromSlogHandler(newLogHandler(&out, tc.format, slog.LevelDebug))
			log.V(1).Info("Round finished", "policy", "fleet", "scored", 3)
			if !tc.check(out.String()) {
				t.Error(out.String())
			}
		})
	}
}

func TestLogLevelHidesDebug(t *testing.T) {
	var out bytes.Buffer
	log := logr.FromSlogHandler(newLogHandler(&out, logFormatText, slog.LevelInfo))
	log.V(1).Info("Round skipped")
	if out.Len() > 0 {
		t.Errorf("logged %q at the level INFO", out.String())
	}
}

// Lines of client-go have the same format as the others.
func TestLogFormatOfLibraries(t *testing.T) {
	t.Cleanup(klog.ClearLogger)
	var out bytes.Buffer
	setLoggers(newLogHandler(&out, logFormatText, slog.LevelInfo))
	klog.FromContext(t.Context()).Info("Successfully acquired lease", "lock", "plimsoll-system/plimsoll-operator")
	klog.Warningf("unable to watch %s", "workloads")
	for _, want := range []string{`level=INFO msg="Successfully acquired lease" lock=plimsoll-system/plimsoll-operator`, `msg="unable to watch workloads"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing from %q", want, out.String())
		}
	}
}
