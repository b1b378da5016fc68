package charts

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// platforms are the values of platform and the component of each.
var platforms = map[string]string{"gpu-operator": "", "gke": "exporter/gke", "cdi": "exporter/cdi", "sim": "exporter/sim"}

var exporterChart = chart{
	name: "plimsoll-exporter", kubernetes: "1.27", description: "Exports metrics of a node's GPUs and TPUs: their state, which pods hold them, and which are free.",
	values: slices.Concat(imageValues("plimsoll-exporter"), []value{
		{"gpu.enabled", true, boolean, "Install the DaemonSet for nodes with NVIDIA GPUs."},
		{"amd.enabled", true, boolean, "Install the DaemonSet for nodes with AMD GPUs."},
		{"tpu.enabled", true, boolean, "Install the DaemonSet for nodes with Google TPUs."},
		{"platform", "gpu-operator", oneOf(slices.Sorted(maps.Keys(platforms))...), "How containers get access to GPUs. sim: simulated devices on every node."},
		{"openshift.enabled", false, boolean, "Install the SecurityContextConstraints for OpenShift."},
		{"kubeletRoot", "/var/lib/kubelet", map[string]any{"type": "string", "pattern": "^/"}, "Root directory of the kubelet on the node."},
		{"collectIntervalMilliseconds", 10000, atLeast(100), "Time between collections. The rules consider a sample stale after a minute."},
		{"podOwners.enabled", false, boolean, "Export the owner of each pod. Requires read access to pods in all namespaces."},
		{"claimShares.enabled", false, boolean, "Export what resource claims consume of devices that they share. Requires read access to resource claims and ResourceSlices."},
		{"kaiShares.enabled", false, boolean, "Export the shares of NVIDIA GPUs that KAI Scheduler assigns. Requires podOwners.enabled."},
		{"extraArgs", []any{}, textList, "More arguments of the exporter for NVIDIA GPUs."},
		{"resources", map[string]any{"requests": map[string]any{"cpu": "20m", "memory": "48Mi"}, "limits": map[string]any{"memory": "128Mi"}}, anyMap, "Resources of the container."},
		{"networkPolicy.enabled", true, boolean, "Install the NetworkPolicies."},
		{"prometheus.enabled", false, boolean, "Install a PodMonitor, recording rules and alerts. Requires prometheus-operator."},
		monitorLabelsValue("prometheus.labels"),
	}, kueueMonitorValues("prometheus.kueue")),
	parts: exporterParts,
	blocks: map[string]string{
		"image":         imageExpression,
		"monitorLabels": monitorLabels(".Values.prometheus.labels"),
		"args":          exporterArgs(".Values.podOwners.enabled", ".Values.claimShares.enabled"),
		"kaiArgs":       kaiArgs(".Values.kaiShares.enabled", ".Values.podOwners.enabled", "kaiShares.enabled requires podOwners.enabled"),
		"extraArgs":     extraArgs,
		"token":         exporterToken(".Values.podOwners.enabled", ".Values.claimShares.enabled"),
	},
	finish: func(text string) string {
		return exporterNamespace.ReplaceAllString(text, "$1{{ .Release.Namespace }}")
	},
	notes: `The exporter {{ .Chart.AppVersion }} is installed in {{ .Release.Namespace }}.

1. The pods use a hostPath volume and user 0. The namespace must allow that:
   kubectl label namespace {{ .Release.Namespace }} pod-security.kubernetes.io/enforce=privileged
2. {{ if .Values.prometheus.enabled }}The PodMonitor scrapes the exporter, and the recording rules are loaded. Set the external label cluster in Prometheus.{{ else }}Scrape the port metrics as config/prometheus/prometheus.yaml does, and load the recording rules: config/prometheus/worker, or prometheus.enabled=true for prometheus-operator.{{ end }}
3. Check a node of each kind that the cluster has:
{{- if .Values.gpu.enabled }}
   kubectl -n {{ .Release.Namespace }} exec daemonset/plimsoll-exporter -- /plimsoll-exporter doctor{{ end }}
{{- if .Values.amd.enabled }}
   kubectl -n {{ .Release.Namespace }} exec daemonset/plimsoll-exporter-amd -- /plimsoll-exporter doctor{{ end }}
{{- if .Values.tpu.enabled }}
   kubectl -n {{ .Release.Namespace }} exec daemonset/plimsoll-exporter-tpu -- /plimsoll-exporter doctor{{ end }}
4. Check the fleet, on the hub. If the operator is not in its default namespace, add --operator-namespace=NAMESPACE:
   kubectl plimsoll doctor
`,
}

// exporterArgs are the arguments of the components pod-owners and claim-shares, if their values are true.
func exporterArgs(podOwners, claimShares string) string {
	return "{{- if " + podOwners + " }}\n- --kubernetes-pod-owners\n{{- end }}\n{{- if " + claimShares + " }}\n- --kubernetes-claim-shares\n{{- end }}\n"
}

// kaiArgs is the argument for KAI Scheduler's shares, which needs the permissions of pod owners.
func kaiArgs(kaiShares, podOwners, message string) string {
	return "{{- if " + kaiShares + " }}\n{{- if not " + podOwners + " }}\n{{- fail \"" + message + "\" }}\n{{- end }}\n- --kubernetes-kai-shares\n{{- end }}\n"
}

// exporterToken mounts the token of the service account, which both components need.
func exporterToken(podOwners, claimShares string) string {
	return "{{- if or " + podOwners + " " + claimShares + " }}\nautomountServiceAccountToken: true\n{{- end }}\n"
}

func exporterParts(root string) ([]part, error) {
	gpu, err := buildFolder(root, "exporter")
	if err != nil {
		return nil, err
	}
	tpu, err := buildFolder(root, "exporter-tpu")
	if err != nil {
		return nil, err
	}
	amd, err := buildFolder(root, "exporter-amd")
	if err != nil {
		return nil, err
	}
	common := without(without(without(without(gpu, "Namespace"), "DaemonSet"), "NetworkPolicy"), "Service")
	for _, o := range slices.Concat(only(amd, "DaemonSet"), only(tpu, "DaemonSet")) {
		if err := templateExporter(o, false); err != nil {
			return nil, err
		}
	}
	parts := []part{
		{file: "exporter.yaml", objects: common},
		{file: "exporter-amd.yaml", condition: ".Values.amd.enabled", objects: amd},
		{file: "exporter-tpu.yaml", condition: ".Values.tpu.enabled", objects: without(tpu, "NetworkPolicy")},
		{file: "service.yaml", condition: ".Values.gpu.enabled", objects: only(gpu, "Service")},
		{file: "networkpolicy.yaml", condition: ".Values.networkPolicy.enabled", objects: only(gpu, "NetworkPolicy")},
		{file: "networkpolicy-tpu.yaml", condition: "and .Values.networkPolicy.enabled .Values.tpu.enabled", objects: only(tpu, "NetworkPolicy")},
	}
	for _, platform := range slices.Sorted(maps.Keys(platforms)) {
		p, err := platformPart(root, platform)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", platform, err)
		}
		parts = append(parts, p)
	}
	owners, err := buildFolder(root, "exporter", "exporter/pod-owners")
	if err != nil {
		return nil, err
	}
	claims, err := buildFolder(root, "exporter", "exporter/claim-shares")
	if err != nil {
		return nil, err
	}
	openshift, err := buildFolder(root, "exporter", "exporter/openshift")
	if err != nil {
		return nil, err
	}
	monitoring, err := buildFolder(root, "prometheus/worker")
	if err != nil {
		return nil, err
	}
	if err := templateMonitors(monitoring); err != nil {
		return nil, err
	}
	monitoring, kueue, err := splitKueueMonitor(monitoring, ".Values.prometheus.kueue.namespace")
	if err != nil {
		return nil, err
	}
	return append(parts,
		part{file: "pod-owners.yaml", condition: ".Values.podOwners.enabled", objects: slices.Concat(only(owners, "ClusterRole"), only(owners, "ClusterRoleBinding"))},
		part{file: "networkpolicy-pod-owners.yaml", condition: "and .Values.podOwners.enabled .Values.networkPolicy.enabled", objects: named(only(owners, "NetworkPolicy"), "plimsoll-exporter-pod-owners")},
		part{file: "claim-shares.yaml", condition: ".Values.claimShares.enabled", objects: slices.Concat(only(claims, "ClusterRole"), only(claims, "ClusterRoleBinding"))},
		part{file: "networkpolicy-claim-shares.yaml", condition: "and .Values.claimShares.enabled .Values.networkPolicy.enabled", objects: named(only(claims, "NetworkPolicy"), "plimsoll-exporter-claim-shares")},
		part{file: "openshift.yaml", condition: ".Values.openshift.enabled", objects: only(openshift, "SecurityContextConstraints")},
		part{file: "prometheus.yaml", condition: ".Values.prometheus.enabled", objects: monitoring},
		part{file: "prometheus-kueue.yaml", condition: "and .Values.prometheus.enabled .Values.prometheus.kueue.enabled", objects: kueue}), nil
}

// named returns the objects with the name.
func named(objects []object, name string) []object {
	return slices.DeleteFunc(slices.Clone(objects), func(o object) bool { return o.name() != name })
}

// platformPart returns the DaemonSet for GPUs on a platform.
func platformPart(root, platform string) (part, error) {
	var components []string
	if c := platforms[platform]; c != "" {
		components = []string{c}
	}
	objects, err := buildFolder(root, "exporter", components...)
	if err != nil {
		return part{}, err
	}
	sets := only(objects, "DaemonSet")
	for _, o := range sets {
		if err := templateExporter(o, true); err != nil {
			return part{}, err
		}
	}
	return part{file: "daemonset-" + platform + ".yaml", condition: fmt.Sprintf("and .Values.gpu.enabled (eq .Values.platform %q)", platform), objects: sets}, nil
}

// templateExporter makes fields of a DaemonSet configurable.
func templateExporter(o object, gpu bool) error {
	spec, container := o.pod()
	args := container["args"].([]any)
	for i, arg := range args {
		if strings.HasPrefix(arg.(string), "--collect-interval=") {
			args[i] = "--collect-interval=@@ int .Values.collectIntervalMilliseconds @@"
		}
	}
	container["args"] = append(args, "@@line args@@")
	if gpu {
		container["args"] = append(container["args"].([]any), "@@line kaiArgs@@", "@@line extraArgs@@")
	}
	container["image"] = "@@line image@@"
	container["imagePullPolicy"] = "@@ .Values.image.pullPolicy @@"
	container["resources"] = "@@ toJson .Values.resources @@"
	spec["imagePullSecrets"] = "@@ toJson .Values.imagePullSecrets @@"
	spec["automountServiceAccountToken"] = "@@line token@@"
	volume := spec["volumes"].([]any)[0].(map[string]any)
	return set(volume, "@@ .Values.kubeletRoot @@/pod-resources", "hostPath", "path")
}
