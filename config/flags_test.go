package config_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

var flagName = regexp.MustCompile(`"([a-z][a-z0-9.-]+)"`)

// toolkitFlags are flags of exporter-toolkit, which the command's source does not name.
var toolkitFlags = []string{"web.listen-address", "web.config.file"}

func TestArgumentsAreKnownFlags(t *testing.T) {
	for folder, command := range map[string]string{
		"operator":     "../operator/cmd/plimsoll-operator",
		"exporter":     "../exporter/cmd/plimsoll-exporter",
		"exporter-tpu": "../exporter/cmd/plimsoll-exporter",
		"exporter-amd": "../exporter/cmd/plimsoll-exporter",
	} {
		content := readSources(t, command)
		known := map[string]bool{}
		for _, name := range toolkitFlags {
			known[name] = folder != "operator"
		}
		for _, m := range flagName.FindAllStringSubmatch(content, -1) {
			known[m[1]] = true
		}
		args := containers(t, folder)[0].Args
		if len(args) == 0 {
			t.Errorf("%s: no arguments", folder)
		}
		for _, arg := range args {
			name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
			if !known[name] {
				t.Errorf("%s: the command has no flag %s", folder, arg)
			}
		}
	}
}

// readSources returns the Go files of a command, without its tests.
func readSources(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no Go files in %s: %v", dir, err)
	}
	var all strings.Builder
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(content)
	}
	return all.String()
}

func TestProbesReferenceNamedPorts(t *testing.T) {
	for _, folder := range []string{"operator", "exporter", "exporter-tpu", "exporter-amd"} {
		for _, c := range containers(t, folder) {
			ports := map[string]bool{}
			for _, p := range c.Ports {
				ports[p.Name] = true
			}
			for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
				if probe == nil || probe.HTTPGet == nil || !ports[probe.HTTPGet.Port.String()] {
					t.Errorf("%s: a probe of %s is missing or references no named port: %v", folder, c.Name, probe)
				}
			}
		}
	}
}

func containers(t *testing.T, folder string) []corev1.Container {
	t.Helper()
	return podTemplate(t, folder).Spec.Containers
}

// podTemplate returns the pod template of the folder's Deployment or DaemonSet.
func podTemplate(t *testing.T, folder string) *corev1.PodTemplateSpec {
	t.Helper()
	objects, _ := buildFolder(t, folder)
	for _, object := range objects {
		switch o := object.(type) {
		case *appsv1.Deployment:
			return &o.Spec.Template
		case *appsv1.DaemonSet:
			return &o.Spec.Template
		}
	}
	t.Fatalf("%s has no Deployment or DaemonSet", folder)
	return nil
}
