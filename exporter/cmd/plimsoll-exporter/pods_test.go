package main

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"plimsoll.dev/plimsoll/exporter/internal/collector"
)

// Without an API server the exporter starts unless --strict is set, and the doctor reports
// the error.
func TestPodMetadataWithoutAPIServer(t *testing.T) {
	kubeconfig := "--kubeconfig=" + filepath.Join(t.TempDir(), "none")
	for _, option := range []string{"--kubernetes-pod-owners", "--kubernetes-kai-shares", "--kubernetes-enable-pod-labels", "--kubernetes-enable-pod-uid", "--attribution=process"} {
		for _, strict := range []bool{false, true} {
			args := []string{option, kubeconfig, "--node-name=n"}
			if strict {
				args = append(args, "--strict")
			}
			o, err := parse(t, args...)
			if err != nil {
				t.Fatal(err)
			}
			config := collector.Config{}
			stop, err := o.watchPods(t.Context(), &config, slog.New(slog.DiscardHandler))
			if strict != (err != nil) || config.Pods != nil {
				t.Errorf("%s, strict %t: %v", option, strict, err)
			}
			if stop != nil {
				stop()
			}
			if f := o.checkPodMetadata(t.Context()); !o.needsAPIServer() || f.err == nil || !strings.Contains(f.err.Error(), "--kubeconfig") {
				t.Errorf("%s: the doctor reports %v", option, f.err)
			}
		}
	}
	o, err := parse(t, "--node-name=n")
	if err != nil {
		t.Fatal(err)
	}
	if o.needsAPIServer() {
		t.Error("the API server is needed without any option")
	}
	o, err = parse(t, "--kubernetes-enable-pod-labels", "--kubernetes-pod-label-allowlist-regex=(", "--node-name=n")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.watchPods(t.Context(), &collector.Config{}, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "allowlist") {
		t.Errorf("invalid pattern: %v", err)
	}
}
