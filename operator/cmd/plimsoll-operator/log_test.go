package main

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-logr/logr"
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
