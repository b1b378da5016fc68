package main

import (
	"net/http"
	"strings"
	"testing"
)

func TestVersionFlags(t *testing.T) {
	for _, flag := range []string{"--version", "-v"} {
		cmd := command(t, flag)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "plimsoll-exporter, version ") {
			t.Errorf("%s: %v\n%s", flag, err, out)
		}
	}
}

func TestHelpFlags(t *testing.T) {
	for _, flag := range []string{"--help", "-h"} {
		cmd := command(t, flag)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "usage: plimsoll-exporter ") || !strings.Contains(string(out), "--collect-interval") {
			t.Errorf("%s: %v\n%.300s", flag, err, out)
		}
	}
}

func TestBuildInfoMetric(t *testing.T) {
	p := start(t, command(t, "--source=sim"))
	p.waitFor("/metrics", http.StatusOK, `plimsoll_build_info{branch="",component="exporter",`)
}
