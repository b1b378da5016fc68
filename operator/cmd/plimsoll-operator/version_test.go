package main

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestVersionFlag(t *testing.T) {
	stdout := os.Stdout
	t.Cleanup(func() { os.Stdout = stdout })
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	os.Stdout = w
	code := run([]string{"--version"})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(r)
	if err != nil || code != 0 || !strings.HasPrefix(string(out), "plimsoll-operator, version ") {
		t.Errorf("exit code %d, %v, %q", code, err, out)
	}
}

func TestBuildInfoMetric(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(buildInfo())
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "plimsoll_build_info" {
		t.Fatalf("%v, %v", families, err)
	}
	if labels := families[0].Metric[0].String(); !strings.Contains(labels, `"component"`) || !strings.Contains(labels, `"operator"`) {
		t.Error(labels)
	}
}
