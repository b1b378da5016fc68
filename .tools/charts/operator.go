package charts

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var operatorChart = chart{
	name: "plimsoll", kubernetes: "1.30", description: "Places workloads on clusters by their metrics: the operator, its CRDs, roles, rules and dashboards.",
	values: slices.Concat(imageValues("plimsoll-operator"), []value{
		{"replicas", 2, atLeast(1), "Replicas. One leads, the others take over."},
		{"dispatch", "nominate", oneOf("nominate", "off"), "nominate: the operator is Kueue's dispatcher. off: Kueue's built-in dispatcher nominates; quote it in a file, where YAML reads off as false."},
		{"nomination.enabled", false, boolean, "Install the policy that clears nominations, for versions of Kueue without one."},
		{"gateFirst.enabled", false, boolean, "Install the policy by which the gate decides before Kueue preempts, for LocalQueues with the label plimsoll.dev/gate-first. Requires Kubernetes 1.36."},
		{"trials.enabled", false, boolean, "Run copies of jobs as TrialPolicies say. The operator may then create, delete and read Jobs in every namespace."},
		{"logLevel", "INFO", oneOf("DEBUG", "INFO", "WARN", "ERROR"), "Lowest level of log lines."},
		{"logFormat", "text", oneOf("text", "json"), "Format of log lines."},
		{"extraArgs", []any{}, textList, "More arguments of the operator."},
		{"resources", map[string]any{"requests": map[string]any{"cpu": "50m", "memory": "128Mi"}, "limits": map[string]any{"memory": "512Mi"}}, anyMap, "Resources of the container."},
		{"nodeSelector", map[string]any{}, anyMap, "Node selector of the pods."},
		{"affinity", map[string]any{}, anyMap, "Affinity of the pods."},
		{"extraTolerations", []any{}, anyList, "More tolerations of the pods."},
		{"crds.enabled", true, boolean, "Install the CRDs."},
		{"crds.keep", true, boolean, "Keep the CRDs, and with them all policies, gates and sources, when the release is removed."},
		{"guard.enabled", true, boolean, "Install the admission policies that limit the operator's account to its own fields."},
		{"networkPolicy.enabled", true, boolean, "Install the NetworkPolicy."},
		{"prometheus.enabled", false, boolean, "Install a ServiceMonitor and the hub's alerts. Requires prometheus-operator."},
		monitorLabelsValue("prometheus.labels"),
	}, kueueMonitorValues("prometheus.kueue"), []value{
		{"dashboards.enabled", false, boolean, "Install the dashboards as ConfigMaps with the label grafana_dashboard."},
	}),
	parts: operatorParts,
	blocks: map[string]string{
		"image": imageExpression,
		"args": `{{- if ne .Values.logLevel "INFO" }}
- --log-level={{ .Values.logLevel }}
{{- end }}
{{- if ne .Values.logFormat "text" }}
- --log-format={{ .Values.logFormat }}
{{- end }}
{{- if .Values.trials.enabled }}
- --trials
{{- end }}
` + extraArgs,
		"monitorLabels": monitorLabels(".Values.prometheus.labels"),
		"keep": `{{- if .Values.crds.keep }}
helm.sh/resource-policy: keep
{{- end }}
`,
		"tolerations": `{{- with .Values.extraTolerations }}
{{- range . }}
- {{ toJson . }}
{{- end }}
{{- end }}
`,
	},
	finish: func(text string) string {
		return strings.ReplaceAll(text, "plimsoll-system", "{{ .Release.Namespace }}")
	},
	files: dashboardFiles,
	notes: `Plimsoll {{ .Chart.AppVersion }} is installed in {{ .Release.Namespace }}.

1. Make the operator Kueue's dispatcher{{ if eq .Values.dispatch "off" }}: not needed, because dispatch is off{{ else }}:
   kubectl plimsoll connect --dispatcher=plimsoll.dev/dispatcher{{ end }}
2. Label the namespace for the restricted pod security level:
   kubectl label namespace {{ .Release.Namespace }} pod-security.kubernetes.io/enforce=restricted
3. Create a MetricsSource, a ScoringPolicy and a PlacementGate: the chart plimsoll-fleet does, and config/samples/hub has examples.
4. Check the installation:
   kubectl plimsoll doctor{{ if ne .Release.Namespace "plimsoll-system" }} --operator-namespace={{ .Release.Namespace }}{{ end }}
`,
}

func operatorParts(root string) ([]part, error) {
	built := map[string][]object{}
	for _, folder := range []string{"crd", "default", "guard", "nomination", "gate-first", "prometheus/hub"} {
		objects, err := buildFolder(root, folder)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", folder, err)
		}
		built[folder] = objects
	}
	if err := templateMonitors(built["prometheus/hub"]); err != nil {
		return nil, err
	}
	monitoring, kueue, err := splitKueueMonitor(built["prometheus/hub"], ".Values.prometheus.kueue.namespace")
	if err != nil {
		return nil, err
	}
	withTrials, err := buildFolder(root, "default", "trials")
	if err != nil {
		return nil, fmt.Errorf("trials: %w", err)
	}
	trials := slices.DeleteFunc(withTrials, func(o object) bool { return o.name() != "plimsoll-operator-trials" })
	for _, crd := range built["crd"] {
		if err := set(crd, "@@line keep@@", "metadata", "annotations", "keep"); err != nil {
			return nil, err
		}
	}
	for _, o := range only(built["default"], "Deployment") {
		if err := templateOperator(o); err != nil {
			return nil, err
		}
	}
	// The namespace is that of the release.
	always := without(without(built["default"], "Namespace"), "NetworkPolicy")
	return []part{
		{file: "crds.yaml", condition: ".Values.crds.enabled", objects: built["crd"]},
		{file: "operator.yaml", objects: always},
		{file: "networkpolicy.yaml", condition: ".Values.networkPolicy.enabled", objects: only(built["default"], "NetworkPolicy")},
		{file: "guard.yaml", condition: ".Values.guard.enabled", objects: built["guard"]},
		{file: "nomination.yaml", condition: ".Values.nomination.enabled", objects: built["nomination"]},
		{file: "gate-first.yaml", condition: ".Values.gateFirst.enabled", objects: built["gate-first"]},
		{file: "trials.yaml", condition: ".Values.trials.enabled", objects: trials},
		{file: "prometheus.yaml", condition: ".Values.prometheus.enabled", objects: monitoring},
		{file: "prometheus-kueue.yaml", condition: "and .Values.prometheus.enabled .Values.prometheus.kueue.enabled", objects: kueue},
	}, nil
}

// templateOperator makes fields of the Deployment configurable.
func templateOperator(o object) error {
	spec, container := o.pod()
	if err := set(o, "@@ .Values.replicas @@", "spec", "replicas"); err != nil {
		return err
	}
	args := container["args"].([]any)
	for i, arg := range args {
		if strings.HasPrefix(arg.(string), "--multikueue-dispatch=") {
			args[i] = "--multikueue-dispatch=@@ .Values.dispatch @@"
		}
	}
	container["args"] = append(args, "@@line args@@")
	container["image"] = "@@line image@@"
	container["imagePullPolicy"] = "@@ .Values.image.pullPolicy @@"
	container["resources"] = "@@ toJson .Values.resources @@"
	spec["imagePullSecrets"] = "@@ toJson .Values.imagePullSecrets @@"
	spec["nodeSelector"] = "@@ toJson .Values.nodeSelector @@"
	spec["affinity"] = "@@ toJson .Values.affinity @@"
	spec["tolerations"] = append(spec["tolerations"].([]any), "@@line tolerations@@")
	return nil
}

// dashboardFiles returns the dashboards and the template that loads them.
func dashboardFiles(root string) (map[string]string, error) {
	paths, err := filepath.Glob(filepath.Join(root, "dashboards", "*.json"))
	if err != nil {
		return nil, err
	}
	files := map[string]string{"templates/dashboards.yaml": `{{- if .Values.dashboards.enabled }}
{{- range $path, $_ := .Files.Glob "dashboards/*.json" }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: plimsoll-dashboard-{{ base $path | trimSuffix ".json" }}
  namespace: {{ $.Release.Namespace }}
  labels: {grafana_dashboard: "1"}
data:
  {{ base $path }}: {{ $.Files.Get $path | toJson }}
{{- end }}
{{- end }}
`}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		files["dashboards/"+filepath.Base(path)] = string(text)
	}
	return files, nil
}

var exporterNamespace = regexp.MustCompile(`(namespace: |serviceaccount:)plimsoll-exporter`)
