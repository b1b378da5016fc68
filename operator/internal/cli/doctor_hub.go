package cli

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1beta1 "open-cluster-management.io/api/cluster/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
)

// hubObjects are the objects that doctor and uninstall look at.
type hubObjects struct {
	sources    v1alpha1.MetricsSourceList
	policies   v1alpha1.ScoringPolicyList
	gates      v1alpha1.PlacementGateList
	capacity   v1alpha1.CapacityPolicyList
	reclaim    v1alpha1.ReclaimPolicyList
	trials     v1alpha1.TrialPolicyList
	checks     kueue.AdmissionCheckList
	queues     kueue.ClusterQueueList
	configs    kueue.MultiKueueConfigList
	clusters   kueue.MultiKueueClusterList
	managed    clusterv1.ManagedClusterList
	placements clusterv1beta1.PlacementList
	// unread are the kinds that are not served or not readable.
	unread []string
	// withoutKueue is true if the hub serves no kind of Kueue.
	withoutKueue bool
}

// read lists all objects. It returns a diagnosis for each kind that is not served or not
// readable. Kueue is one kind: gates need all of it, and scores none.
func (h *hubObjects) read(ctx context.Context, c client.Client) ([]diagnosis, error) {
	var diagnoses, ofKueue []diagnosis
	kindsOfKueue := 0
	for _, list := range []struct {
		kind    string
		objects client.ObjectList
		fix     string
	}{
		{"MetricsSources", &h.sources, installCRDs},
		{"ScoringPolicies", &h.policies, installCRDs},
		{"PlacementGates", &h.gates, installCRDs},
		{"CapacityPolicies", &h.capacity, installCRDs},
		{"ReclaimPolicies", &h.reclaim, installCRDs},
		{"TrialPolicies", &h.trials, installCRDs},
		{"AdmissionChecks", &h.checks, installKueue},
		{"ClusterQueues", &h.queues, installKueue},
		{"MultiKueueConfigs", &h.configs, installKueue},
		{"MultiKueueClusters", &h.clusters, installKueue},
		{"ManagedClusters", &h.managed, installOCM},
		{"Placements", &h.placements, installOCM},
	} {
		err := c.List(ctx, list.objects)
		if list.fix == installKueue {
			kindsOfKueue++
		}
		if err == nil {
			continue
		}
		h.unread = append(h.unread, list.kind)
		switch {
		case apierrors.IsNotFound(err) && noSuchResource(err) && list.fix == installKueue:
			ofKueue = append(ofKueue, fault(list.kind, "this cluster does not serve them", list.fix))
		case apierrors.IsNotFound(err) && noSuchResource(err):
			diagnoses = append(diagnoses, fault(list.kind, "this cluster does not serve them", list.fix))
		default:
			skipped, err := skip(list.kind, err)
			if err != nil {
				return nil, err
			}
			diagnoses = append(diagnoses, skipped...)
		}
	}
	if len(ofKueue) < kindsOfKueue {
		return append(diagnoses, ofKueue...), nil
	}
	h.withoutKueue = true
	if users := h.usersOfKueue(); users != "" {
		return append(diagnoses, fault("Kueue", "is not installed on this hub: "+users+" can't work", installKueue)), nil
	}
	return append(diagnoses, warn("Kueue", "is not installed on this hub: scores work, gates and measured quota do not", "for gates: "+installKueue+", and start the operator again")), nil
}

// usersOfKueue names one of the objects that need Kueue, or returns "".
func (h *hubObjects) usersOfKueue() string {
	switch {
	case len(h.gates.Items) > 0:
		return "PlacementGate " + h.gates.Items[0].Name
	case len(h.capacity.Items) > 0:
		return "CapacityPolicy " + h.capacity.Items[0].Name
	case len(h.reclaim.Items) > 0:
		return "ReclaimPolicy " + h.reclaim.Items[0].Name
	case len(h.trials.Items) > 0:
		return "TrialPolicy " + h.trials.Items[0].Name
	}
	return ""
}

const (
	installCRDs  = "kubectl apply --server-side -k config/crd; or check that the kubeconfig points to the hub"
	installKueue = "install Kueue v0.19 on the hub, with MultiKueue"
	installOCM   = "install Open Cluster Management on the hub"
)

// gateOf returns the gate by the name of its check, for all checks that belong to a gate.
func (h *hubObjects) gateOf() map[string]string {
	gates := map[string]string{}
	for i := range h.checks.Items {
		if gate, ok := kueuestate.GateOf(&h.checks.Items[i]); ok {
			gates[h.checks.Items[i].Name] = gate
		}
	}
	return gates
}

// trialChecks returns the names of the checks that TrialPolicies decide.
func (h *hubObjects) trialChecks() []string {
	var names []string
	for i := range h.checks.Items {
		if h.checks.Items[i].Spec.ControllerName == v1alpha1.TrialControllerName {
			names = append(names, h.checks.Items[i].Name)
		}
	}
	return names
}

// configOf returns the MultiKueueConfig by the name of its check.
func (h *hubObjects) configOf() map[string]string {
	configs := map[string]string{}
	for i := range h.checks.Items {
		if config, ok := kueuestate.MultiKueueConfigOf(&h.checks.Items[i]); ok {
			configs[h.checks.Items[i].Name] = config
		}
	}
	return configs
}

// checksOf returns the names of the checks of a queue.
func checksOf(queue *kueue.ClusterQueue) []string {
	var names []string
	if s := queue.Spec.AdmissionChecksStrategy; s != nil {
		for _, rule := range s.AdmissionChecks {
			names = append(names, string(rule.Name))
		}
	}
	return names
}

// gate returns the gate of the name, or nil.
func (h *hubObjects) gate(name string) *v1alpha1.PlacementGate {
	for i := range h.gates.Items {
		if h.gates.Items[i].Name == name {
			return &h.gates.Items[i]
		}
	}
	return nil
}

// config returns the MultiKueueConfig of the name, or nil.
func (h *hubObjects) config(name string) *kueue.MultiKueueConfig {
	for i := range h.configs.Items {
		if h.configs.Items[i].Name == name {
			return &h.configs.Items[i]
		}
	}
	return nil
}

// cluster returns the MultiKueueCluster of the name, or nil.
func (h *hubObjects) cluster(name string) *kueue.MultiKueueCluster {
	for i := range h.clusters.Items {
		if h.clusters.Items[i].Name == name {
			return &h.clusters.Items[i]
		}
	}
	return nil
}
