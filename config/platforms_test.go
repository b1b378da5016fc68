package config_test

import (
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// OpenShift assigns a user of the namespace's range, so the manifests must not name one.
func TestOperatorPodNamesNoUser(t *testing.T) {
	pod := podTemplate(t, "operator").Spec
	c := pod.Containers[0].SecurityContext
	if s := pod.SecurityContext; s.RunAsUser != nil || s.RunAsGroup != nil || c.RunAsUser != nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot {
		t.Errorf("pod %+v, container %+v", s, c)
	}
}

// The loss of one node stops the operator for seconds only.
func TestOperatorSurvivesTheLossOfANode(t *testing.T) {
	objects, _ := buildFolder(t, "operator")
	var selector, labels map[string]string
	for _, object := range objects {
		switch o := object.(type) {
		case *appsv1.Deployment:
			labels = o.Spec.Template.Labels
			spread := o.Spec.Template.Spec.TopologySpreadConstraints
			if *o.Spec.Replicas != 2 || len(spread) != 1 || spread[0].TopologyKey != corev1.LabelHostname || spread[0].LabelSelector.MatchLabels["app.kubernetes.io/name"] != labels["app.kubernetes.io/name"] {
				t.Errorf("%d replicas, spread by %+v", *o.Spec.Replicas, spread)
			}
			leaves := func(tol corev1.Toleration) bool {
				return tol.Key == corev1.TaintNodeUnreachable && tol.TolerationSeconds != nil && *tol.TolerationSeconds == 30
			}
			if !slices.ContainsFunc(o.Spec.Template.Spec.Tolerations, leaves) {
				t.Error("the pods stay on an unreachable node")
			}
		case *policyv1.PodDisruptionBudget:
			selector = o.Spec.Selector.MatchLabels
		}
	}
	if selector == nil || selector["app.kubernetes.io/name"] != labels["app.kubernetes.io/name"] {
		t.Errorf("disruption budget for %v, pods %v", selector, labels)
	}
}

// The network keeps the operator from the addresses at which clouds serve the credentials of a
// node, as its own dialer does.
func TestOperatorHasNoWayToMetadataAddresses(t *testing.T) {
	objects, _ := buildFolder(t, "operator")
	i := slices.IndexFunc(objects, func(o runtime.Object) bool { _, ok := o.(*networkingv1.NetworkPolicy); return ok })
	for _, address := range []string{"169.254.169.254", "168.63.129.16", "100.100.100.200", "fe80::a9fe:a9fe", "fd00:ec2::254", "fd20:ce::254"} {
		ip := netip.MustParseAddr(address)
		for _, rule := range objects[i].(*networkingv1.NetworkPolicy).Spec.Egress {
			for _, peer := range rule.To {
				excluded := slices.ContainsFunc(peer.IPBlock.Except, func(e string) bool { return netip.MustParsePrefix(e).Contains(ip) })
				if netip.MustParsePrefix(peer.IPBlock.CIDR).Contains(ip) && !excluded {
					t.Errorf("%s is reachable", address)
				}
			}
		}
	}
}

func TestPodsNameAnExistingPriorityClass(t *testing.T) {
	for _, folder := range []string{"operator", "exporter", "exporter-tpu", "exporter-amd"} {
		classes := map[string]bool{}
		for _, f := range []string{folder, "exporter"} {
			objects, _ := buildFolder(t, f)
			for _, object := range objects {
				if class, ok := object.(*schedulingv1.PriorityClass); ok {
					classes[class.Name] = true
				}
			}
		}
		if name := podTemplate(t, folder).Spec.PriorityClassName; !classes[name] {
			t.Errorf("%s: PriorityClass %q does not exist", folder, name)
		}
	}
}

// platform describes what a component changes in the pods of the exporter.
type platform struct {
	runtimeClass bool
	privileged   bool
	arg          string            // additional argument
	hostPath     string            // of an additional volume, or of the kubelet
	annotation   map[string]string // additional annotations
	anywhere     bool              // without node affinity
}

func TestPlatformComponents(t *testing.T) {
	for name, want := range map[string]platform{
		"gke":          {privileged: true, arg: "--nvml-library=/usr/local/nvidia/lib64/libnvidia-ml.so.1", hostPath: "/home/kubernetes/bin/nvidia"},
		"cdi":          {annotation: map[string]string{"cdi.k8s.io/plimsoll-exporter": "nvidia.com/gpu=all"}},
		"kubelet-root": {runtimeClass: true, hostPath: "/var/lib/k0s/kubelet/pod-resources"},
		"sim":          {arg: "--source=sim", anywhere: true},
	} {
		t.Run(name, func(t *testing.T) {
			template := podTemplate(t, withComponents(t, "exporter", "exporter/"+name))
			spec, c := template.Spec, template.Spec.Containers[0]
			if got := spec.RuntimeClassName != nil; got != want.runtimeClass {
				t.Errorf("RuntimeClass: %v", got)
			}
			if got := c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged; got != want.privileged {
				t.Errorf("privileged: %v", got)
			}
			if want.arg != "" && !slices.Contains(c.Args, want.arg) {
				t.Errorf("arguments %v", c.Args)
			}
			hasPath := func(v corev1.Volume) bool { return v.HostPath != nil && v.HostPath.Path == want.hostPath }
			if want.hostPath != "" && !slices.ContainsFunc(spec.Volumes, hasPath) {
				t.Errorf("volumes %v", spec.Volumes)
			}
			for key, value := range want.annotation {
				if template.Annotations[key] != value {
					t.Errorf("annotations %v", template.Annotations)
				}
			}
			if got := spec.Affinity == nil; got != want.anywhere {
				t.Errorf("without affinity: %v", got)
			}
		})
	}
}

// The constraint must allow what the DaemonSets use.
func TestOpenShiftConstraintAllowsTheDaemonSets(t *testing.T) {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), withComponents(t, "exporter", "exporter/openshift"))
	if err != nil {
		t.Fatal(err)
	}
	var scc struct {
		AllowHostDirVolumePlugin, AllowHostPID bool
		AllowedCapabilities                    []corev1.Capability
		Users                                  []string
	}
	for _, r := range built.Resources() {
		if r.GetKind() != "SecurityContextConstraints" {
			continue
		}
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(text, &scc); err != nil {
			t.Fatal(err)
		}
	}
	if !scc.AllowHostDirVolumePlugin || !slices.Contains(scc.Users, "system:serviceaccount:plimsoll-exporter:plimsoll-exporter") {
		t.Errorf("constraint %+v", scc)
	}
	for _, folder := range []string{"exporter", "exporter-tpu", "exporter-amd"} {
		spec := podTemplate(t, folder).Spec
		if spec.HostPID && !scc.AllowHostPID {
			t.Errorf("%s: hostPID", folder)
		}
		for _, capability := range spec.Containers[0].SecurityContext.Capabilities.Add {
			if !slices.Contains(scc.AllowedCapabilities, capability) {
				t.Errorf("%s: capability %s", folder, capability)
			}
		}
	}
}

// Every exporter is scraped, in both ways of configuring Prometheus.
func TestPrometheusScrapesEveryExporter(t *testing.T) {
	text, err := os.ReadFile("prometheus/prometheus.yaml")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`pod_label_app_kubernetes_io_name\], regex: "(.+)"}`).FindSubmatch(text)
	if m == nil {
		t.Fatal("no rule for the pods of the exporter")
	}
	monitor, err := os.ReadFile("prometheus/worker/exporter.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"exporter", "exporter-tpu", "exporter-amd"} {
		name := podTemplate(t, folder).Labels["app.kubernetes.io/name"]
		if !regexp.MustCompile("^(?:" + string(m[1]) + ")$").MatchString(name) {
			t.Errorf("prometheus.yaml does not scrape %s", name)
		}
		if !strings.Contains(string(monitor), name) {
			t.Errorf("worker/exporter.yaml does not scrape %s", name)
		}
	}
}
