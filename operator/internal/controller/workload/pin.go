package workload

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/gate"
)

// pins says whether the gate pins the workload's pods to the chosen cluster.
// Where MultiKueue takes them there it must not.
func (s *subject) pins(g gate.Gate) bool { return s.mk == "" && g.Spec.PodSetUpdates != nil }

// selector of the nodes that are a cluster.
func selector(u *v1alpha1.GatePodSetUpdates, cluster string) map[string]string {
	labels := map[string]string{}
	for key, value := range u.NodeSelector {
		labels[key] = strings.ReplaceAll(value, "{cluster}", cluster)
	}
	return labels
}

// pinned are the updates of every pod set that pin them to a cluster.
func (s *subject) pinned(u *v1alpha1.GatePodSetUpdates, cluster string) []kueue.PodSetUpdate {
	var updates []kueue.PodSetUpdate
	for i := range s.wl.Spec.PodSets {
		updates = append(updates, kueue.PodSetUpdate{
			Name: s.wl.Spec.PodSets[i].Name, NodeSelector: selector(u, cluster), Tolerations: u.Tolerations,
		})
	}
	return updates
}

// contradicts says which of the pods' own node selectors keeps them off a
// cluster; empty = none. Kueue would not start the job.
func (s *subject) contradicts(u *v1alpha1.GatePodSetUpdates, cluster string) string {
	labels := selector(u, cluster)
	for i := range s.wl.Spec.PodSets {
		own := s.wl.Spec.PodSets[i].Template.Spec.NodeSelector
		for _, key := range slices.Sorted(maps.Keys(labels)) {
			if value, ok := own[key]; ok && value != labels[key] {
				return fmt.Sprintf("is not where the node selector %s=%s is met", key, value)
			}
		}
	}
	return ""
}

// unstructuredUpdates for an apply.
func unstructuredUpdates(updates []kueue.PodSetUpdate) ([]any, error) {
	var list []any
	for i := range updates {
		u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&updates[i])
		if err != nil {
			return nil, fmt.Errorf("podSetUpdates: %w", err)
		}
		list = append(list, u)
	}
	return list, nil
}
