package workload

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/registry"
)

// pins says whether the gate pins the workload's pods to the chosen cluster.
// Where MultiKueue takes them there it must not.
func (s *subject) pins(g registry.Gate) bool { return s.mk == "" && g.Spec.PodSetUpdates != nil }

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

// demand on the nodes of the workload's pods, which Kueue would not overrule.
type demand struct {
	of     string // who makes it, to follow the demand in a sentence; empty = the pods
	labels map[string]string
}

// gatherDemands of the pods themselves, of the flavors assigned to them and of the
// other checks' updates: Kueue merges them with ours.
func (r *Reconciler) gatherDemands(ctx context.Context, s *subject) error {
	for i := range s.wl.Spec.PodSets {
		s.demands = append(s.demands, demand{labels: s.wl.Spec.PodSets[i].Template.Spec.NodeSelector})
	}
	flavors := map[kueue.ResourceFlavorReference]bool{}
	if s.wl.Status.Admission != nil {
		for _, assigned := range s.wl.Status.Admission.PodSetAssignments {
			for _, name := range assigned.Flavors {
				flavors[name] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(flavors)) {
		flavor := &kueue.ResourceFlavor{}
		if err := r.client.Get(ctx, client.ObjectKey{Name: string(name)}, flavor); client.IgnoreNotFound(err) != nil {
			return err
		}
		s.demands = append(s.demands, demand{of: " of flavor " + string(name), labels: flavor.Spec.NodeLabels})
	}
	for _, check := range s.wl.Status.AdmissionChecks {
		for _, update := range check.PodSetUpdates {
			if !slices.Contains(s.own, string(check.Name)) {
				s.demands = append(s.demands, demand{of: " of admission check " + string(check.Name), labels: update.NodeSelector})
			}
		}
	}
	return nil
}

// contradicts says which demand keeps the pods off a cluster; empty = none. Kueue
// would not start the job.
func (s *subject) contradicts(u *v1alpha1.GatePodSetUpdates, cluster string) string {
	labels := selector(u, cluster)
	for _, d := range s.demands {
		for _, key := range slices.Sorted(maps.Keys(labels)) {
			if value, ok := d.labels[key]; ok && value != labels[key] {
				return fmt.Sprintf("is not where the node selector %s=%s%s is met", key, value, d.of)
			}
		}
	}
	return ""
}
