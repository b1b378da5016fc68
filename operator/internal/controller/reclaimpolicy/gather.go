package reclaimpolicy

import (
	"context"
	"fmt"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
	"plimsoll.dev/plimsoll/operator/internal/policies/reclaim"
)

// queues are what the hub shows of the ClusterQueues of a policy.
type queues struct {
	// missing are the ClusterQueues that do not exist.
	missing []string
	// candidates are the admitted workloads that agreed to be reclaimed, and workloads the objects
	// by UID.
	candidates []*reclaim.Candidate
	workloads  map[string]*kueue.Workload
	// refused are the recorded refusals to write a candidate.
	refused []v1alpha1.RefusedWrite
	// groups maps each ClusterQueue to what it draws quota from.
	groups map[string]string
	// checks are the AdmissionChecks.
	checks []kueue.AdmissionCheck
}

// gather reads the queues and workloads from the cache.
func (r *Reconciler) gather(ctx context.Context, policy *v1alpha1.ReclaimPolicy) (*queues, error) {
	groups, err := r.readGroups(ctx)
	if err != nil {
		return nil, err
	}
	q := &queues{workloads: map[string]*kueue.Workload{}, groups: groups}
	for _, name := range policy.Spec.ClusterQueues {
		if _, ok := groups[name]; !ok {
			q.missing = append(q.missing, name)
		}
	}
	all := &kueue.WorkloadList{}
	if err := r.client.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Workloads: %w", err)
	}
	for i := range all.Items {
		wl := &all.Items[i]
		if wl.Status.Admission == nil || !slices.Contains(policy.Spec.ClusterQueues, string(wl.Status.Admission.ClusterQueue)) {
			continue
		}
		if c, ok := reclaim.NewCandidate(wl, policy.Spec.PriorityClasses); ok {
			c.Group = groups[c.Queue]
			q.candidates, q.workloads[c.UID] = append(q.candidates, c), wl
		}
	}
	if len(q.candidates) == 0 {
		return q, nil
	}
	q.refused = reclaim.ApplyRefused(policy.Status.Refused, q.candidates)
	checks := &kueue.AdmissionCheckList{}
	if err := r.client.List(ctx, checks, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list AdmissionChecks: %w", err)
	}
	q.checks = checks.Items
	if err := r.locate(ctx, q); err != nil {
		return nil, err
	}
	protectSharedOwners(q.candidates)
	return q, nil
}

// readDemand sets what other workloads wait for, and protects candidates that would not get their
// quota back. It is read after the metrics, because a slow source must not delay it: a workload may have
// been admitted, a queue stopped, or another policy may have reclaimed a workload.
func (r *Reconciler) readDemand(ctx context.Context, policy *v1alpha1.ReclaimPolicy, q *queues, now time.Time) error {
	if len(q.candidates) == 0 {
		return nil
	}
	all := &kueue.WorkloadList{}
	if err := r.client.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list Workloads: %w", err)
	}
	states, err := r.readQueueStates(ctx)
	if err != nil {
		return err
	}
	demand := &reclaim.Demand{MinWait: periodOf(policy), RoomChecks: roomChecks(q.checks)}
	for i := range all.Items {
		wl := &all.Items[i]
		group, ok := q.groups[states.clusterQueueOf(wl)]
		if !ok {
			continue
		}
		if wl.Status.Admission == nil && states.noQuotaReason(wl) != "" {
			demand.AddReturning(group, wl)
			continue
		}
		demand.Add(group, wl, now)
	}
	for _, c := range q.candidates {
		demand.Apply(c)
		if why := states.noQuotaReason(q.workloads[c.UID]); why != "" && c.Protection == "" {
			c.Protection = "it would not get its quota back: " + why
		}
	}
	return nil
}

// findCheck returns an AdmissionCheck; nil = it does not exist.
func (q *queues) findCheck(name string) (*kueue.AdmissionCheck, error) {
	i := slices.IndexFunc(q.checks, func(c kueue.AdmissionCheck) bool { return c.Name == name })
	if i < 0 {
		return nil, nil
	}
	return &q.checks[i], nil
}

// roomChecks returns the names of the checks of gates and of MultiKueue.
func roomChecks(checks []kueue.AdmissionCheck) []string {
	var names []string
	for i := range checks {
		_, isGate := kueuestate.GateOf(&checks[i])
		_, isMultiKueue := kueuestate.MultiKueueConfigOf(&checks[i])
		if isGate || isMultiKueue {
			names = append(names, checks[i].Name)
		}
	}
	return names
}

// readGroups maps each ClusterQueue to its group: the ClusterQueues that draw quota from the same place.
func (r *Reconciler) readGroups(ctx context.Context) (map[string]string, error) {
	cohorts, list := &kueue.CohortList{}, &kueue.ClusterQueueList{}
	if err := r.client.List(ctx, cohorts, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Cohorts: %w", err)
	}
	if err := r.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list ClusterQueues: %w", err)
	}
	parents := kueuestate.ParentCohorts(cohorts)
	groups := map[string]string{}
	for i := range list.Items {
		groups[list.Items[i].Name] = kueuestate.QuotaSource(&list.Items[i], parents)
	}
	return groups, nil
}

// locate sets the cluster of each candidate, and protects those whose cluster is unknown or
// not reachable.
func (r *Reconciler) locate(ctx context.Context, q *queues) error {
	connections, err := hubstate.MultiKueueClusters(ctx, r.client)
	if err != nil {
		return err
	}
	members, err := hubstate.ManagedClusters(ctx, r.client)
	if err != nil {
		return err
	}
	for _, c := range q.candidates {
		wl := q.workloads[c.UID]
		checks, err := kueuestate.ChecksOf(wl, q.findCheck)
		if err != nil {
			return err
		}
		c.Owner.Cluster = checks.PlacedCluster(wl)
		problem := clusterProblem(members, c.Owner.Cluster)
		if problem == "" && checks.MultiKueue != "" {
			if problem, err = r.multiKueueProblem(ctx, checks.Config, c.Owner.Cluster, connections); err != nil {
				return err
			}
			if problem == "" && len(checks.Foreign) > 0 {
				problem = "its eviction completes only when check " + checks.Foreign[0] + " is Ready again, which another controller decides"
			}
		}
		if c.Protection == "" {
			c.Protection = problem
		}
	}
	return nil
}

// clusterProblem returns why no workload on the cluster is reclaimed. It is empty if the hub is
// connected to the cluster.
func clusterProblem(members []clusterv1.ManagedCluster, cluster string) string {
	if cluster == "" {
		return "its cluster is unknown"
	}
	i := slices.IndexFunc(members, func(c clusterv1.ManagedCluster) bool { return c.Name == cluster })
	switch {
	case i < 0:
		return cluster + " is not a member of the hub"
	case !apimeta.IsStatusConditionTrue(members[i].Status.Conditions, clusterv1.ManagedClusterConditionAvailable):
		return cluster + " is not connected to the hub"
	}
	return ""
}

// multiKueueProblem returns why the eviction of a workload of MultiKueue might not complete: Kueue
// can't remove the copy, or nothing completes an eviction that is stuck.
func (r *Reconciler) multiKueueProblem(ctx context.Context, configName, cluster string, connections map[string]*kueue.MultiKueueCluster) (string, error) {
	if !r.nominates {
		return "the operator is not Kueue's dispatcher, so the eviction might not complete", nil
	}
	config, err := hubstate.MultiKueueConfig(ctx, r.client, configName)
	if err != nil {
		return "", err
	}
	if config == nil {
		return "MultiKueueConfig " + configName + " does not exist", nil
	}
	if why := kueuestate.DisconnectedReason(config, cluster, connections[cluster]); why != "" {
		return cluster + " " + why, nil
	}
	return "", nil
}

// protectSharedOwners protects workloads of the same job: metrics do not distinguish their pods.
func protectSharedOwners(candidates []*reclaim.Candidate) {
	count := map[reclaim.Owner]int{}
	for _, c := range candidates {
		count[c.Owner]++
	}
	for _, c := range candidates {
		if c.Protection == "" && count[c.Owner] > 1 {
			c.Protection = "another workload has the same owner"
		}
	}
}
