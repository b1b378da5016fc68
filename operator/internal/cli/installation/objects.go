// Package installation reads the objects of an installation on the hub. It knows what connect writes
// there and on workers.
package installation

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1beta1 "open-cluster-management.io/api/cluster/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/cli/hubclient"
)

// Objects are the objects that doctor and uninstall look at.
type Objects struct {
	Sources    v1alpha1.MetricsSourceList
	Policies   v1alpha1.ScoringPolicyList
	Gates      v1alpha1.PlacementGateList
	Capacity   v1alpha1.CapacityPolicyList
	Reclaim    v1alpha1.ReclaimPolicyList
	Trials     v1alpha1.TrialPolicyList
	Checks     kueue.AdmissionCheckList
	Queues     kueue.ClusterQueueList
	Configs    kueue.MultiKueueConfigList
	Clusters   kueue.MultiKueueClusterList
	Managed    clusterv1.ManagedClusterList
	Placements clusterv1beta1.PlacementList
	// Unread are the kinds that are not served or not readable.
	Unread []string
	// WithoutKueue is true if the hub serves no kind of Kueue.
	WithoutKueue bool
}

// Read lists all objects. It returns a diagnosis for each kind that is not served or not
// readable. Kueue is one kind: gates need all of it, and scores none.
func (h *Objects) Read(ctx context.Context, c client.Client) ([]Diagnosis, error) {
	var diagnoses, ofKueue []Diagnosis
	kindsOfKueue := 0
	for _, list := range []struct {
		kind    string
		objects client.ObjectList
		fix     string
	}{
		{"MetricsSources", &h.Sources, installCRDs},
		{"ScoringPolicies", &h.Policies, installCRDs},
		{"PlacementGates", &h.Gates, installCRDs},
		{"CapacityPolicies", &h.Capacity, installCRDs},
		{"ReclaimPolicies", &h.Reclaim, installCRDs},
		{"TrialPolicies", &h.Trials, installCRDs},
		{"AdmissionChecks", &h.Checks, installKueue},
		{"ClusterQueues", &h.Queues, installKueue},
		{"MultiKueueConfigs", &h.Configs, installKueue},
		{"MultiKueueClusters", &h.Clusters, installKueue},
		{"ManagedClusters", &h.Managed, installOCM},
		{"Placements", &h.Placements, installOCM},
	} {
		err := c.List(ctx, list.objects)
		if list.fix == installKueue {
			kindsOfKueue++
		}
		if err == nil {
			continue
		}
		h.Unread = append(h.Unread, list.kind)
		switch {
		case apierrors.IsNotFound(err) && hubclient.NoSuchResource(err) && list.fix == installKueue:
			ofKueue = append(ofKueue, Fault(list.kind, "this cluster does not serve them", list.fix))
		case apierrors.IsNotFound(err) && hubclient.NoSuchResource(err):
			diagnoses = append(diagnoses, Fault(list.kind, "this cluster does not serve them", list.fix))
		default:
			skipped, err := Skip(list.kind, err)
			if err != nil {
				return nil, err
			}
			diagnoses = append(diagnoses, skipped...)
		}
	}
	if len(ofKueue) < kindsOfKueue {
		return append(diagnoses, ofKueue...), nil
	}
	h.WithoutKueue = true
	if users := h.usersOfKueue(); users != "" {
		return append(diagnoses, Fault("Kueue", "is not installed on this hub: "+users+" can't work", installKueue)), nil
	}
	return append(diagnoses, Warn("Kueue", "is not installed on this hub: scores work, gates and measured quota do not", "for gates: "+installKueue+", and start the operator again")), nil
}

// usersOfKueue names one of the objects that need Kueue, or returns "".
func (h *Objects) usersOfKueue() string {
	switch {
	case len(h.Gates.Items) > 0:
		return "PlacementGate " + h.Gates.Items[0].Name
	case len(h.Capacity.Items) > 0:
		return "CapacityPolicy " + h.Capacity.Items[0].Name
	case len(h.Reclaim.Items) > 0:
		return "ReclaimPolicy " + h.Reclaim.Items[0].Name
	case len(h.Trials.Items) > 0:
		return "TrialPolicy " + h.Trials.Items[0].Name
	}
	return ""
}

const (
	installCRDs  = "kubectl apply --server-side -k config/crd; or check that the kubeconfig points to the hub"
	installKueue = "install Kueue v0.19 on the hub, with MultiKueue"
	installOCM   = "install Open Cluster Management on the hub"
)

// GateOf returns the gate by the name of its check, for all checks that belong to a gate.
func (h *Objects) GateOf() map[string]string {
	gates := map[string]string{}
	for i := range h.Checks.Items {
		if gate, ok := kueuestate.GateOf(&h.Checks.Items[i]); ok {
			gates[h.Checks.Items[i].Name] = gate
		}
	}
	return gates
}

// TrialChecks returns the names of the checks that TrialPolicies decide.
func (h *Objects) TrialChecks() []string {
	var names []string
	for i := range h.Checks.Items {
		if h.Checks.Items[i].Spec.ControllerName == v1alpha1.TrialControllerName {
			names = append(names, h.Checks.Items[i].Name)
		}
	}
	return names
}

// ConfigOf returns the MultiKueueConfig by the name of its check.
func (h *Objects) ConfigOf() map[string]string {
	configs := map[string]string{}
	for i := range h.Checks.Items {
		if config, ok := kueuestate.MultiKueueConfigOf(&h.Checks.Items[i]); ok {
			configs[h.Checks.Items[i].Name] = config
		}
	}
	return configs
}

// Gate returns the gate of the name, or nil.
func (h *Objects) Gate(name string) *v1alpha1.PlacementGate {
	for i := range h.Gates.Items {
		if h.Gates.Items[i].Name == name {
			return &h.Gates.Items[i]
		}
	}
	return nil
}

// Config returns the MultiKueueConfig of the name, or nil.
func (h *Objects) Config(name string) *kueue.MultiKueueConfig {
	for i := range h.Configs.Items {
		if h.Configs.Items[i].Name == name {
			return &h.Configs.Items[i]
		}
	}
	return nil
}

// Cluster returns the MultiKueueCluster of the name, or nil.
func (h *Objects) Cluster(name string) *kueue.MultiKueueCluster {
	for i := range h.Clusters.Items {
		if h.Clusters.Items[i].Name == name {
			return &h.Clusters.Items[i]
		}
	}
	return nil
}
