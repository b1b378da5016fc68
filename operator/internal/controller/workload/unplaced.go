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

	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
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

// unplacedWorkloads are the workloads that a change of an AdmissionCheck, of a MultiKueueConfig or of
// one of its clusters concerns. Those that wait at a gate are decided by an early wake-up instead.
func (r *Reconciler) unplacedWorkloads(ctx context.Context, changed client.Object) []reconcile.Request {
	requests, err := r.listUnplaced(ctx, changed)
	if err != nil {
		log.FromContext(ctx).Error(err, "Listing workloads failed; waiting workloads see the change at their next wake-up", "changed", changed.GetName())
	}
	return requests
}

func (r *Reconciler) listUnplaced(ctx context.Context, changed client.Object) ([]reconcile.Request, error) {
	checks, err := r.checksOf(ctx, changed)
	if err != nil {
		return nil, err
	}
	var requests []reconcile.Request
	gates := map[string]bool{}
	defer func() { r.engine.Waiting.MarkDirty(slices.Collect(maps.Keys(gates))...) }()
	for _, check := range checks {
		workloads := &kueue.WorkloadList{}
		if err := r.client.List(ctx, workloads, client.MatchingFields{unplacedIndex: check.Name}, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list Workloads with AdmissionCheck %s: %w", check.Name, err)
		}
		own, isOwn := kueuestate.GateOf(check)
		for j := range workloads.Items {
			key := client.ObjectKeyFromObject(&workloads.Items[j])
			// A wake-up of another gate than that of the check does not decide the workload.
			if gate := r.engine.Waiting.GateOf(key); gate != "" && (!isOwn || gate == own) {
				gates[gate] = true
				continue
			}
			requests = append(requests, reconcile.Request{NamespacedName: key})
		}
	}
	return requests, nil
}

// checksOf returns a changed AdmissionCheck, or the checks of MultiKueue that depend on a changed
// MultiKueueConfig or MultiKueueCluster.
func (r *Reconciler) checksOf(ctx context.Context, changed client.Object) ([]*kueue.AdmissionCheck, error) {
	if check, isCheck := changed.(*kueue.AdmissionCheck); isCheck {
		return []*kueue.AdmissionCheck{check}, nil
	}
	configs, err := r.configsWith(ctx, changed)
	if err != nil {
		return nil, err
	}
	all := &kueue.AdmissionCheckList{}
	if err := r.client.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list AdmissionChecks: %w", err)
	}
	var checks []*kueue.AdmissionCheck
	for i := range all.Items {
		if config, ok := kueuestate.MultiKueueConfigOf(&all.Items[i]); ok && slices.Contains(configs, config) {
			checks = append(checks, &all.Items[i])
		}
	}
	return checks, nil
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
