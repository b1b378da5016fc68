package config_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// nodePrivileges are what a container of an exporter has of its node.
type nodePrivileges struct {
	HostPID, HostNetwork, HostIPC, Privileged, Escalation, WritableRoot bool
	Capabilities                                                        []corev1.Capability
	Writable                                                            []string // hostPaths that are not mounted read-only
	Paths                                                               []string // hostPaths
}

func privilegesOf(t *testing.T, folder string) nodePrivileges {
	t.Helper()
	spec := podTemplate(t, folder).Spec
	security := spec.Containers[0].SecurityContext
	isSet := func(b *bool, unset bool) bool { return b == nil && unset || b != nil && *b }
	p := nodePrivileges{
		HostPID: spec.HostPID, HostNetwork: spec.HostNetwork, HostIPC: spec.HostIPC, Privileged: isSet(security.Privileged, false),
		Escalation: isSet(security.AllowPrivilegeEscalation, true), WritableRoot: !isSet(security.ReadOnlyRootFilesystem, false),
		Capabilities: security.Capabilities.Add,
	}
	if !slices.Equal(security.Capabilities.Drop, []corev1.Capability{"ALL"}) {
		t.Errorf("%s drops the capabilities %v", folder, security.Capabilities.Drop)
	}
	paths := map[string]string{}
	for _, v := range spec.Volumes {
		if v.HostPath != nil {
			paths[v.Name] = v.HostPath.Path
			p.Paths = append(p.Paths, v.HostPath.Path)
		}
	}
	for _, m := range spec.Containers[0].VolumeMounts {
		if path := paths[m.Name]; path != "" && !m.ReadOnly {
			p.Writable = append(p.Writable, path)
		}
	}
	return p
}

// An exporter that an attacker took over has the following of its node, and nothing else.
// operator/docs/threat-model.md lists it.
func TestExporterPrivilegesOnItsNode(t *testing.T) {
	const podResources = "/var/lib/kubelet/pod-resources"
	for folder, want := range map[string]nodePrivileges{
		"exporter":     {Paths: []string{podResources}},
		"exporter-amd": {Paths: []string{podResources}},
		"exporter-tpu": {Paths: []string{podResources}, HostPID: true, Capabilities: []corev1.Capability{"SYS_PTRACE", "DAC_READ_SEARCH"}},
	} {
		if d := cmp.Diff(want, privilegesOf(t, folder)); d != "" {
			t.Errorf("%s (-want +got):\n%s", folder, d)
		}
	}
}

// Only scrapes reach the pods of the exporters, and they reach nothing but the metric
// services of TPU workloads.
func TestExporterNetworkAccess(t *testing.T) {
	for _, folder := range []string{"exporter", "exporter-amd", "exporter-tpu"} {
		objects, _ := buildFolder(t, folder)
		base, _ := buildFolder(t, "exporter") // its policy applies to the pods of all exporters
		pod := labels.Set(podTemplate(t, folder).Labels)
		isolated := false
		for _, object := range slices.Concat(base, objects) {
			policy, ok := object.(*networkingv1.NetworkPolicy)
			if !ok {
				continue
			}
			selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
			if err != nil {
				t.Fatal(err)
			}
			if selector.Empty() {
				t.Errorf("%s: NetworkPolicy %s applies to the pods of others in the namespace", folder, policy.Name)
			}
			if !selector.Matches(pod) {
				continue
			}
			both := slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) && slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
			isolated = isolated || both
			for _, e := range policy.Spec.Egress {
				for _, port := range e.Ports {
					if folder != "exporter-tpu" || port.Port.IntValue() != 8431 || *port.EndPort != 8438 {
						t.Errorf("%s: NetworkPolicy %s allows port %s", folder, policy.Name, port.Port)
					}
				}
				if len(e.Ports) == 0 {
					t.Errorf("%s: NetworkPolicy %s allows every port", folder, policy.Name)
				}
			}
		}
		if !isolated {
			t.Errorf("%s: no NetworkPolicy isolates the pods", folder)
		}
	}
}
