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

// toolkitFlags are the exporter's flags from exporter-toolkit. The exporter's source does
// not name them.
var toolkitFlags = []string{"web.listen-address", "web.config.file"}

// TestArgumentsAreFlagsOfTheCommand checks every argument in the manifests against the
// flags of the command.
func TestArgumentsAreFlagsOfTheCommand(t *testing.T) {
	for folder, source := range map[string]string{
		"operator":     "../operator/cmd/plimsoll-operator/options.go",
		"exporter":     "../exporter/cmd/plimsoll-exporter/run.go",
		"exporter-tpu": "../exporter/cmd/plimsoll-exporter/run.go",
	} {
		t.Run(folder, func(t *testing.T) {
			content, err := os.ReadFile(source)
			if err != nil {
				t.Fatal(err)
			}
			known := map[string]bool{}
			for _, name := range toolkitFlags {
				known[name] = folder != "operator"
			}
			for _, m := range flagName.FindAllStringSubmatch(string(content), -1) {
				known[m[1]] = true
			}
			args := containers(t, folder)[0].Args
			if len(args) == 0 {
				t.Error("the container has no arguments")
			}
			for _, arg := range args {
				name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
				if !known[name] {
					t.Errorf("the command has no flag %s", arg)
				}
			}
		})
	}
}

// TestProbesNamePorts checks for every container: both probes exist and name a port of the
// container.
func TestProbesNamePorts(t *testing.T) {
	for _, folder := range []string{"operator", "exporter", "exporter-tpu"} {
		t.Run(folder, func(t *testing.T) {
			for _, c := range containers(t, folder) {
				ports := map[string]bool{}
				for _, p := range c.Ports {
					ports[p.Name] = true
				}
				for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
					if probe == nil || probe.HTTPGet == nil || !ports[probe.HTTPGet.Port.String()] {
						t.Errorf("container %s: a probe is missing or names no port of the container: %v", c.Name, probe)
					}
				}
			}
		})
	}
}

func containers(t *testing.T, folder string) []corev1.Container {
	t.Helper()
	return podTemplate(t, folder).Spec.Containers
}

// podTemplate returns the pod template of the folder's only Deployment or DaemonSet.
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
	t.Fatalf("%s has no Deployment or DaemonSet", folder)
	return nil
}
