package charts

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// addOnTemplates are the AddOnTemplates by the value of exporter.platform.
var addOnTemplates = map[string]string{"gpu-operator": "plimsoll-exporter", "gke": "plimsoll-exporter-gke", "cdi": "plimsoll-exporter-cdi", "sim": "plimsoll-exporter-sim"}

var (
	// objectName is a name that Kubernetes accepts.
	objectName = map[string]any{"type": "string", "pattern": "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"}
	nameList   = map[string]any{"type": "array", "items": objectName, "uniqueItems": true}
	flavorList = map[string]any{"type": "array", "minItems": 1, "items": map[string]any{
		"type": "object", "additionalProperties": false, "required": []string{"name", "quota"},
		"properties": map[string]any{
			"name":       objectName,
			"nodeLabels": map[string]any{"type": "object", "additionalProperties": str},
			"quota":      map[string]any{"type": "object", "minProperties": 1, "additionalProperties": map[string]any{"type": []string{"string", "integer"}}},
		},
	}}
)

// sampleFlavors are the flavors of config/samples/queue.
func sampleFlavors() []any {
	flavor := func(name, product string) map[string]any {
		return map[string]any{"name": name, "nodeLabels": map[string]any{"nvidia.com/gpu.product": product},
			"quota": map[string]any{"cpu": "10k", "memory": "100Ti", "nvidia.com/gpu": 256}}
	}
	return []any{flavor("h100", "NVIDIA-H100-80GB-HBM3"), flavor("a100", "NVIDIA-A100-SXM4-80GB"), flavor("l4", "NVIDIA-L4")}
}

var fleetChart = chart{
	name: "plimsoll-fleet", kubernetes: "1.30", description: "A first gate from one file of values: source, policy, gate, queue and exporter on the hub, and the queues of the workers.",
	values: slices.Concat(imageValues("plimsoll-exporter"), []value{
		{"source.type", "Thanos", oneOf("Prometheus", "Thanos"), "Type of the server with the metrics of all workers."},
		{"source.url", "http://thanos-query.monitoring.svc:9090", str, "Its URL. Empty if source.fields has a urlTemplate."},
		{"source.fields", map[string]any{}, anyMap, "Other fields of the MetricsSource, such as tls, auth and tenant."},
		{"clusterSets", []any{"global"}, nameList, "ManagedClusterSets of the workers."},
		{"workers", []any{}, nameList, "ManagedClusters that get the queue by a ManifestWork. On others, apply config/samples/worker and config/samples/team."},
		{"credentials", map[string]any{"type": "Secret", "nameTemplate": "{cluster}-kubeconfig"}, anyMap, "How Kueue connects to the workers: multiKueue.credentials of the PlacementGate."},
		{"queue.name", "gpu", objectName, "Name of the ClusterQueue and the LocalQueues, on the hub and the workers."},
		{"queue.flavors", sampleFlavors(), flavorList, "ResourceFlavors, with the quota of the hub and of each worker. All flavors must have the same resources."},
		{"namespaces", []any{"team-a"}, nameList, "Namespaces with a LocalQueue."},
		{"createNamespaces", true, boolean, "Create the namespaces. They are kept when the release is removed."},
		{"monitoring.enabled", false, boolean, "Install the scrape configuration, recording rules and alerts on the workers. Requires prometheus-operator there."},
		monitorLabelsValue("monitoring.labels"),
	}, kueueMonitorValues("monitoring.kueue"), []value{
		{"exporter.enabled", true, boolean, "Install the exporter on the clusters of clusterSets, as an add-on of Open Cluster Management."},
		{"exporter.platform", "gpu-operator", oneOf(slices.Sorted(maps.Keys(addOnTemplates))...), "How containers get access to GPUs. sim: simulated devices on every node."},
		{"exporter.kubeletRoot", "/var/lib/kubelet", map[string]any{"type": "string", "pattern": "^/"}, "Root directory of the kubelet on the nodes."},
		{"exporter.collectIntervalMilliseconds", 10000, atLeast(100), "Time between collections. The rules consider a sample stale after a minute."},
		{"exporter.podOwners", false, boolean, "Export the owner of each pod: for job profiles, shares of devices, and what running jobs hold. Requires read access to pods in all namespaces."},
		{"exporter.claimShares", false, boolean, "Export what resource claims consume of devices that they share. Requires read access to resource claims and ResourceSlices."},
		{"exporter.kaiShares", false, boolean, "Export the shares of NVIDIA GPUs that KAI Scheduler assigns. Requires exporter.podOwners."},
	}),
	parts:  fleetParts,
	blocks: fleetBlocks,
	finish: func(text string) string {
		return strings.NewReplacer("namespace: plimsoll-fleet", "namespace: {{ $.Release.Namespace }}", "namespace: plimsoll-addon", "namespace: {{ $.Release.Namespace }}").Replace(text)
	},
	files: workFiles,
	notes: `The source, policy, gate and queue {{ .Values.queue.name }} are created{{ if .Values.exporter.enabled }}, and the exporter's add-on for the clusters of {{ join ", " .Values.clusterSets }}{{ end }}.

1. {{ if eq .Values.credentials.type "Secret" }}Connect Kueue to the workers, with a context of your kubeconfig for each, and make the operator Kueue's dispatcher:
   kubectl plimsoll connect{{ range .Values.workers }} {{ . }}=CONTEXT{{ else }} CLUSTER=CONTEXT{{ end }} --dispatcher=plimsoll.dev/dispatcher
{{- else }}Kueue connects to the workers by {{ .Values.credentials.type }}. Make the operator Kueue's dispatcher:
   kubectl plimsoll connect --dispatcher=plimsoll.dev/dispatcher
{{- end }}
2. Check the installation. If the operator is not in its default namespace, add --operator-namespace=NAMESPACE:
   kubectl plimsoll doctor
`,
}

// Names of the templates with what the add-on installs: OCM renders every cluster from the AddOnTemplate and
// the AddOnDeploymentConfig as they are now, so a changed one needs a new name. That of an AddOnTemplate ends
// with its platform.
const (
	configDefinition   = "plimsoll-fleet.exporter-config"
	templateDefinition = "plimsoll-fleet.exporter-template-"
)

// fleetBlocks are the contents of line markers.
var fleetBlocks = map[string]string{
	"image":         imageExpression,
	"url":           "{{- with .Values.source.url }}\nurl: {{ . }}\n{{- end }}\n",
	"fields":        "{{- range $key, $value := .Values.source.fields }}\n\"{{ $key }}\": {{ toJson $value }}\n{{- end }}\n",
	"quota":         quotaBlock,
	"template":      hashedName("{{ index (dict "+quotedPairs(addOnTemplates)+") .Values.exporter.platform }}", `(print "`+templateDefinition+`" .Values.exporter.platform)`),
	"config":        hashedName("plimsoll-exporter", `"`+configDefinition+`"`),
	"keep":          "helm.sh/resource-policy: keep\n",
	"monitorLabels": monitorLabels("$.Values.monitoring.labels"),
	"args":          exporterArgs(".Values.exporter.podOwners", ".Values.exporter.claimShares"),
	"kaiArgs":       kaiArgs(".Values.exporter.kaiShares", ".Values.exporter.podOwners", "exporter.kaiShares requires exporter.podOwners"),
	"token":         exporterToken(".Values.exporter.podOwners", ".Values.exporter.claimShares"),
	"ifPodOwners":   "{{- if .Values.exporter.podOwners }}\n",
	"ifClaimShares": "{{- if .Values.exporter.claimShares }}\n",
	"end":           "{{- end }}\n",
}

// quotaBlock is spec.resourceGroups of the ClusterQueue.
const quotaBlock = `resourceGroups:
- coveredResources: {{ keys (first $.Values.queue.flavors).quota | sortAlpha | toJson }}
  flavors:
{{- range $flavor := $.Values.queue.flavors }}
  - name: {{ $flavor.name }}
    resources:
{{- range $resource := keys $flavor.quota | sortAlpha }}
    - {name: {{ $resource }}, nominalQuota: {{ get $flavor.quota $resource | toJson }}}
{{- end }}
{{- end }}
`

// fleetParts returns the objects of the hub. The namespace of the Placements is that of the
// release.
func fleetParts(root string) ([]part, error) {
	hub, err := buildFolder(root, "samples/hub")
	if err != nil {
		return nil, err
	}
	team, err := buildFolder(root, "samples/team")
	if err != nil {
		return nil, err
	}
	addOn, err := buildFolder(root, "addon")
	if err != nil {
		return nil, err
	}
	if err := templateFleet(slices.Concat(hub, team, addOn)); err != nil {
		return nil, err
	}
	for _, template := range only(addOn, "AddOnTemplate") {
		if err := addRoles(root, template); err != nil {
			return nil, err
		}
	}
	for _, o := range only(team, "Namespace") {
		o["metadata"].(map[string]any)["annotations"] = map[string]any{"keep": "@@line keep@@"}
	}
	// The flavors and bindings are repeated for each value, so one of them is enough.
	flavors, bindings := only(hub, "ResourceFlavor"), only(hub, "ManagedClusterSetBinding")
	rest := without(without(without(hub, "Namespace"), "ResourceFlavor"), "ManagedClusterSetBinding")
	parts := []part{
		{file: "hub.yaml", objects: rest},
		{file: "flavors.yaml", each: ".Values.queue.flavors", objects: flavors[:1]},
		{file: "clustersets.yaml", each: ".Values.clusterSets", objects: bindings},
		{file: "namespaces.yaml", condition: ".Values.createNamespaces", each: ".Values.namespaces", objects: only(team, "Namespace")},
		{file: "localqueues.yaml", each: ".Values.namespaces", objects: only(team, "LocalQueue")},
		{file: "exporter.yaml", condition: ".Values.exporter.enabled",
			objects: without(without(without(without(addOn, "Namespace"), "ManagedClusterSetBinding"), "AddOnTemplate"), "AddOnDeploymentConfig")},
		{file: "exporter-config.yaml", condition: ".Values.exporter.enabled", objects: only(addOn, "AddOnDeploymentConfig"), definition: configDefinition},
	}
	for _, platform := range slices.Sorted(maps.Keys(addOnTemplates)) {
		template := named(only(addOn, "AddOnTemplate"), addOnTemplates[platform])
		parts = append(parts, part{file: "exporter-" + platform + ".yaml",
			condition: fmt.Sprintf("and .Values.exporter.enabled (eq .Values.exporter.platform %q)", platform), objects: template, definition: templateDefinition + platform})
	}
	return parts, nil
}

// addRoles adds the roles of the exporter's components to an AddOnTemplate.
func addRoles(root string, template object) error {
	workload := template["spec"].(map[string]any)["agentSpec"].(map[string]any)["workload"].(map[string]any)
	manifests := workload["manifests"].([]any)
	for _, c := range []struct{ component, condition string }{{"exporter/pod-owners", "ifPodOwners"}, {"exporter/claim-shares", "ifClaimShares"}} {
		objects, err := buildFolder(root, "exporter", c.component)
		if err != nil {
			return err
		}
		manifests = append(manifests, "@@line "+c.condition+"@@")
		for _, o := range slices.Concat(only(objects, "ClusterRole"), only(objects, "ClusterRoleBinding")) {
			manifests = append(manifests, map[string]any(o))
		}
		manifests = append(manifests, "@@line end@@")
	}
	workload["manifests"] = manifests
	return nil
}

// templateFleet makes fields of the objects configurable.
func templateFleet(objects []object) error {
	for _, o := range objects {
		if err := templateFleetObject(o); err != nil {
			return fmt.Errorf("%s %s: %w", o.kind(), o.name(), err)
		}
	}
	return nil
}

func templateFleetObject(o object) error {
	spec, _ := o["spec"].(map[string]any)
	metadata := o["metadata"].(map[string]any)
	switch o.kind() {
	case "MetricsSource":
		spec["type"], spec["url"], spec["fields"] = "@@ .Values.source.type @@", "@@line url@@", "@@line fields@@"
	case "ResourceFlavor":
		metadata["name"], spec["nodeLabels"] = "@@ .name @@", "@@ .nodeLabels | default dict | toJson @@"
	case "ClusterQueue":
		metadata["name"], spec["resourceGroups"] = "@@ $.Values.queue.name @@", "@@line quota@@"
	case "LocalQueue":
		metadata["name"], metadata["namespace"], spec["clusterQueue"] = "@@ $.Values.queue.name @@", "@@ . @@", "@@ $.Values.queue.name @@"
	case "Namespace":
		metadata["name"] = "@@ . @@"
	case "ManagedClusterSetBinding":
		metadata["name"], spec["clusterSet"] = "@@ . @@", "@@ . @@"
	case "Placement":
		spec["clusterSets"] = "@@ toJson .Values.clusterSets @@"
	case "PlacementGate":
		return set(o, "@@ toJson .Values.credentials @@", "spec", "multiKueue", "credentials")
	case "ClusterManagementAddOn":
		configs := spec["supportedConfigs"].([]any)
		if err := set(configs[1].(map[string]any), "@@line config@@", "defaultConfig", "name"); err != nil {
			return err
		}
		return set(configs[0].(map[string]any), "@@line template@@", "defaultConfig", "name")
	case "AddOnDeploymentConfig":
		values := map[string]string{"KUBELET_ROOT": ".Values.exporter.kubeletRoot", "COLLECT_INTERVAL_MS": "int .Values.exporter.collectIntervalMilliseconds | quote"}
		for _, v := range spec["customizedVariables"].([]any) {
			variable := v.(map[string]any)
			variable["value"] = "@@ " + values[variable["name"].(string)] + " @@"
		}
	case "AddOnTemplate":
		for _, m := range spec["agentSpec"].(map[string]any)["workload"].(map[string]any)["manifests"].([]any) {
			manifest := object(m.(map[string]any))
			if manifest.kind() != "DaemonSet" {
				continue
			}
			pod, container := manifest.pod()
			container["image"], container["imagePullPolicy"] = "@@line image@@", "@@ .Values.image.pullPolicy @@"
			pod["imagePullSecrets"] = "@@ toJson .Values.imagePullSecrets @@"
			pod["automountServiceAccountToken"] = "@@line token@@"
			container["args"] = append(container["args"].([]any), "@@line args@@")
			if manifest.name() == "plimsoll-exporter" {
				container["args"] = append(container["args"].([]any), "@@line kaiArgs@@")
			}
		}
	}
	return nil
}

// quotedPairs returns the keys and values as arguments of a template function.
func quotedPairs(m map[string]string) string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		words = append(words, fmt.Sprintf("%q %q", key, m[key]))
	}
	return strings.Join(words, " ")
}
