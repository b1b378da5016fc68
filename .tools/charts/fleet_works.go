package charts

import (
	"slices"
	"strings"
)

// workFiles returns the template of the ManifestWorks: the queue, the namespaces and the
// monitoring of each worker. Open Cluster Management's work agent applies them. An
// AddOnTemplate can't contain them, because OCM moves all its objects to one namespace.
//
// If an object leaves the work, or the work is deleted, the object stays on the worker, because jobs may
// run there. The agent deletes only the objects of monitoring, and keeps its role for that.
func workFiles(root string) (map[string]string, error) {
	worker, err := buildFolder(root, "samples/worker")
	if err != nil {
		return nil, err
	}
	team, err := buildFolder(root, "samples/team")
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
	monitoring, kueue, err := splitKueueMonitor(monitoring, "$.Values.monitoring.kueue.namespace")
	if err != nil {
		return nil, err
	}
	if err := templateFleet(slices.Concat(worker, team)); err != nil {
		return nil, err
	}
	var manifests strings.Builder
	for _, p := range []part{
		{objects: []object{workRole()}},
		{each: "$.Values.queue.flavors", objects: only(worker, "ResourceFlavor")[:1]},
		{objects: only(worker, "ClusterQueue")},
		{condition: "$.Values.createNamespaces", each: "$.Values.namespaces", objects: only(team, "Namespace")},
		{each: "$.Values.namespaces", objects: only(team, "LocalQueue")},
		{condition: "$.Values.monitoring.enabled", objects: monitoring},
		{condition: "and $.Values.monitoring.enabled $.Values.monitoring.kueue.enabled", objects: kueue},
	} {
		text, err := p.toManifests(fleetBlocks)
		if err != nil {
			return nil, err
		}
		manifests.WriteString(text)
	}
	return map[string]string{"templates/works.yaml": workHead + manifests.String() + "{{- end }}\n"}, nil
}

// workHead is the ManifestWork without its manifests. Server-side apply leaves the fields to
// Kueue that Kueue's webhooks set.
const workHead = `{{- /* Generated from the kustomize folders: make charts */ -}}
{{- range $worker := .Values.workers }}
---
apiVersion: work.open-cluster-management.io/v1
kind: ManifestWork
metadata:
  name: plimsoll-fleet
  namespace: {{ $worker }}
spec:
  deleteOption:
    propagationPolicy: SelectivelyOrphan
    selectivelyOrphans:
      orphaningRules:
      - {group: rbac.authorization.k8s.io, resource: clusterroles, name: plimsoll-fleet-work}
      - {group: kueue.x-k8s.io, resource: clusterqueues, name: {{ $.Values.queue.name }}}
{{- range $.Values.queue.flavors }}
      - {group: kueue.x-k8s.io, resource: resourceflavors, name: {{ .name }}}
{{- end }}
{{- range $.Values.namespaces }}
{{- if $.Values.createNamespaces }}
      - {group: "", resource: namespaces, name: {{ . }}}
{{- end }}
      - {group: kueue.x-k8s.io, resource: localqueues, name: {{ $.Values.queue.name }}, namespace: {{ . }}}
{{- end }}
  manifestConfigs:
  - resourceIdentifier: {group: kueue.x-k8s.io, resource: clusterqueues, name: {{ $.Values.queue.name }}}
    updateStrategy: {type: ServerSideApply}
{{- range $.Values.queue.flavors }}
  - resourceIdentifier: {group: kueue.x-k8s.io, resource: resourceflavors, name: {{ .name }}}
    updateStrategy: {type: ServerSideApply}
{{- end }}
{{- range $.Values.namespaces }}
  - resourceIdentifier: {group: kueue.x-k8s.io, resource: localqueues, name: {{ $.Values.queue.name }}, namespace: {{ . }}}
    updateStrategy: {type: ServerSideApply}
{{- end }}
  workload:
    manifests:
`

// workRole allows the work agent to write the other objects: OCM aggregates roles with this
// label to the agent's. It includes the objects of monitoring even if that is off: the agent
// deletes them, and reads that they are gone, after it was turned off.
func workRole() object {
	verbs := []any{"get", "list", "watch", "create", "update", "patch", "delete"}
	return object{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
		"metadata": map[string]any{"name": "plimsoll-fleet-work", "labels": map[string]any{"open-cluster-management.io/aggregate-to-work": "true"}},
		"rules": []any{
			map[string]any{"apiGroups": []any{"kueue.x-k8s.io"}, "resources": []any{"resourceflavors", "clusterqueues", "localqueues"}, "verbs": verbs},
			map[string]any{"apiGroups": []any{"monitoring.coreos.com"}, "resources": []any{"podmonitors", "prometheusrules", "servicemonitors"}, "verbs": verbs},
		},
	}
}

// toManifests returns the objects as items of the list of manifests in a ManifestWork.
func (p part) toManifests(blocks map[string]string) (string, error) {
	var b strings.Builder
	for _, o := range p.objects {
		text, err := toTemplate(o, blocks)
		if err != nil {
			return "", err
		}
		indent := "    - "
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "{{") {
				line, indent = indent+line, "      "
			}
			b.WriteString(line)
		}
	}
	text := b.String()
	if p.each != "" {
		text = "{{- range " + p.each + " }}\n" + text + "{{- end }}\n"
	}
	if p.condition != "" {
		text = "{{- if " + p.condition + " }}\n" + text + "{{- end }}\n"
	}
	return text, nil
}
