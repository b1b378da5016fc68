package collector

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// Pods provides the metadata of the node's pods from the API server.
type Pods interface {
	// Pod returns the metadata of a pod. ok is false if the pod is unknown.
	Pod(namespace, name string) (meta podmap.Meta, ok bool)
	// Reachable reports whether the last request to the API server succeeded.
	Reachable() bool
}

var invalidInLabelName = regexp.MustCompile(`[^a-zA-Z0-9_]`)

// attributes returns the labels of a share together with those of the metric, sorted by
// name as in dcgm-exporter. A pod label whose name is already used is left out.
func (r *renderer) attributes(s share, metricLabels []label) []label {
	values := map[string]string{}
	for _, l := range slices.Concat(metricLabels, s.claim) {
		values[l.name] = l.value
	}
	if s.vgpu != "" {
		values["vgpu"] = s.vgpu
	}
	if s.job != "" {
		values["hpc_job"] = s.job
	}
	if h := s.holder; h != nil {
		names := []string{"container", "namespace", "pod"}
		if r.labels.OldNamespace {
			names = []string{"container_name", "pod_namespace", "pod_name"}
		}
		for i, value := range []string{h.Container, h.Namespace, h.Pod} {
			if value != "" {
				values[names[i]] = value
			}
		}
		r.addPodAttributes(values, *h)
	}
	var out []label
	for _, name := range slices.Sorted(maps.Keys(values)) {
		out = append(out, label{name, values[name]})
	}
	return out
}

// addPodAttributes adds the UID and the selected labels of the holder's pod.
func (r *renderer) addPodAttributes(values map[string]string, h podmap.Holder) {
	meta, ok := r.snapshot.podMeta[podName{h.Namespace, h.Pod}]
	if !ok {
		return
	}
	if r.labels.PodUID {
		values["pod_uid"] = meta.UID
	}
	if r.labels.PodLabel == nil {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(meta.Labels)) {
		name := invalidInLabelName.ReplaceAllString(key, "_")
		if name != "" && name[0] >= '0' && name[0] <= '9' {
			name = "_" + name
		}
		_, used := values[name]
		if !used && name != "" && !isReservedLabel(name) && r.labels.PodLabel(key) {
			values[name] = meta.Labels[key]
		}
	}
}

// targetLabels are set by the scrape, or say who holds the device. If the exporter is scraped with
// honor_labels: true, a pod with such a label could move its series to another cluster, or out of
// an alert.
var targetLabels = []string{"cluster", "job", "instance", "node", "namespace", "pod", "container"}

// isReservedLabel reports whether a pod label must not have this name: some series has a label of
// this name already, and Prometheus rejects a scrape in which a series has a label twice, or it is
// one of the targetLabels.
func isReservedLabel(name string) bool {
	_, isField := findLabel(name)
	return isField || slices.Contains(targetLabels, name) || slices.Contains(instanceLabels, name) || slices.Contains([]string{"hostname", "uuid", "err_code", "err_msg", "window_size_in_ms"}, name) ||
		slices.ContainsFunc(countedEvents, func(e countedEvent) bool { return e.label == name })
}

// renderPods writes the state of the API server and the owner of each pod that holds a
// device.
func (r *renderer) renderPods() {
	s := r.snapshot
	if s.podMeta == nil {
		return
	}
	r.families.add(apiReachable, boolValue(s.apiReachable), r.node)
	if !s.exportOwners {
		return
	}
	for _, pod := range slices.SortedFunc(maps.Keys(s.podMeta), podName.compare) {
		if meta := s.podMeta[pod]; meta.OwnerKind != "" {
			r.families.add(podOwner, 1, r.node, pod.namespace, pod.name, meta.UID, meta.OwnerKind, meta.OwnerName)
		}
	}
}

// ParseLabelAllowlist returns a function that selects label keys. A key is selected if
// any of the patterns matches a part of it. Without patterns every key is selected.
func ParseLabelAllowlist(patterns []string) (func(key string) bool, error) {
	var all []*regexp.Regexp
	for _, pattern := range patterns {
		if strings.TrimSpace(pattern) == "" {
			continue
		}
		r, err := regexp.Compile(pattern)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return func(key string) bool {
		return len(all) == 0 || slices.ContainsFunc(all, func(r *regexp.Regexp) bool { return r.MatchString(key) })
	}, nil
}
