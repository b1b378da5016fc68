package config_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

var flagName = regexp.MustCompile(`"([a-z][a-z0-9.-]+)"`)

// Flags that a library adds, and which the command's own source does not name.
var toolkit = []string{"web.listen-address", "web.config.file"}

// What the manifests say on a command line, the command knows.
func TestArgumentsAreFlagsOfTheCommand(t *testing.T) {
	for folder, source := range map[string]string{
		"operator":     "../operator/cmd/plimsoll-operator/options.go",
		"exporter":     "../exporter/cmd/plimsoll-exporter/run.go",
		"exporter-tpu": "../exporter/cmd/plimsoll-exporter/run.go",
	} {
		content, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		known := map[string]bool{}
		for _, name := range toolkit {
			known[name] = folder != "operator"
		}
		for _, m := range flagName.FindAllStringSubmatch(string(content), -1) {
			known[m[1]] = true
		}
		args := containers(t, folder)[0].Args
		if len(args) == 0 {
			t.Errorf("%s: no arguments", folder)
		}
		for _, arg := range args {
			name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
			if !known[name] {
				t.Errorf("%s: %s is no flag of the command", folder, arg)
			}
		}
	}
}

// Ports that probes, services and annotations name exist.
func TestProbesNamePorts(t *testing.T) {
	for _, folder := range []string{"operator", "exporter", "exporter-tpu"} {
		for _, c := range containers(t, folder) {
			ports := map[string]bool{}
			for _, p := range c.Ports {
				ports[p.Name] = true
			}
			for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
				if probe == nil || probe.HTTPGet == nil || !ports[probe.HTTPGet.Port.String()] {
					t.Errorf("%s: a probe of %s is missing or names no port: %v", folder, c.Name, probe)
				}
			}
		}
	}
}

func containers(t *testing.T, folder string) []corev1.Container {
	t.Helper()
	return podTemplate(t, folder).Spec.Containers
}

// podTemplate of the one workload in a folder.
func podTemplate(t *testing.T, folder string) *corev1.PodTemplateSpec {
	t.Helper()
	objects, _ := build(t, folder)
	for _, object := range objects {
		switch o := object.(type) {
		case *appsv1.Deployment:
			return &o.Spec.Template
		case *appsv1.DaemonSet:
			return &o.Spec.Template
		}
	}
	t.Fatalf("%s runs nothing", folder)
	return nil
}
