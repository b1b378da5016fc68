package workload

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/kueuestate"
)

// unplacedIndex is a field index of the workloads that hold quota and have no cluster. Its
// values are the names of their checks.
const unplacedIndex = "plimsoll.unplaced"

func unplacedChecks(obj client.Object) []string {
	wl, ok := obj.(*kueue.Workload)
	if !ok || !kueuestate.HoldsQuota(wl) || wl.Status.ClusterName != nil {
		return nil
	}
	var names []string
	for _, check := range wl.Status.AdmissionChecks {
		names = append(names, string(check.Name))
	}
	return names
}

// unplacedWorkloads are the workloads that a change of a MultiKueueConfig or of one of its
// clusters concerns. Those that wait at a gate are decided by an early round instead.
func (r *Reconciler) unplacedWorkloads(ctx context.Context, changed client.Object) []reconcile.Request {
	requests, err := r.listUnplaced(ctx, changed)
	if err != nil {
		log.FromContext(ctx).Error(err, "Listing workloads failed; waiting workloads see the change in their next round", "changed", changed.GetName())
	}
	return requests
}

func (r *Reconciler) listUnplaced(ctx context.Context, changed client.Object) ([]reconcile.Request, error) {
	configs, err := r.configsWith(ctx, changed)
	if err != nil {
		return nil, err
	}
	checks := &kueue.AdmissionCheckList{}
	if err := r.client.List(ctx, checks, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list AdmissionChecks: %w", err)
	}
	var requests []reconcile.Request
	gates := map[string]bool{}
	defer func() { r.waiting.MarkDirty(slices.Collect(maps.Keys(gates))...) }()
	for i := range checks.Items {
		config, ok := kueuestate.MultiKueueConfigOf(&checks.Items[i])
		if !ok || !slices.Contains(configs, config) {
			continue
		}
		workloads := &kueue.WorkloadList{}
		if err := r.client.List(ctx, workloads, client.MatchingFields{unplacedIndex: checks.Items[i].Name}, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list Workloads with AdmissionCheck %s: %w", checks.Items[i].Name, err)
		}
		for j := range workloads.Items {
			key := client.ObjectKeyFromObject(&workloads.Items[j])
			if gate := r.waiting.GateOf(key); gate != "" {
				gates[gate] = true
				continue
			}
			requests = append(requests, reconcile.Request{NamespacedName: key})
		}
	}
	return requests, nil
}

// configsWith returns the name of a changed MultiKueueConfig, or of every MultiKueueConfig that
// contains a changed MultiKueueCluster.
func (r *Reconciler) configsWith(ctx context.Context, changed client.Object) ([]string, error) {
	if _, isConfig := changed.(*kueue.MultiKueueConfig); isConfig {
		return []string{changed.GetName()}, nil
	}
	configs := &kueue.MultiKueueConfigList{}
	if err := r.client.List(ctx, configs, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list MultiKueueConfigs: %w", err)
	}
	var names []string
	for i := range configs.Items {
		if slices.Contains(configs.Items[i].Spec.Clusters, changed.GetName()) {
			names = append(names, configs.Items[i].Name)
		}
	}
	return names, nil
}

// isConnectionChange selects changes of a MultiKueueCluster that a decision depends on. Kueue
// updates the status for other reasons as well.
var isConnectionChange = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	old, isCluster := e.ObjectOld.(*kueue.MultiKueueCluster)
	changed, ok := e.ObjectNew.(*kueue.MultiKueueCluster)
	if !isCluster || !ok {
		return true
	}
	before := apimeta.FindStatusCondition(old.Status.Conditions, kueue.MultiKueueClusterActive)
	after := apimeta.FindStatusCondition(changed.Status.Conditions, kueue.MultiKueueClusterActive)
	return !equality.Semantic.DeepEqual(before, after)
}}
