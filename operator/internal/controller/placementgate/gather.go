package placementgate

import (
	"context"
	"slices"
	"strings"

	clusterv1beta1 "open-cluster-management.io/api/cluster/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
	"plimsoll.dev/plimsoll/operator/internal/metrics/promql"
)

// input is the state that one reconciliation decides on.
type input struct {
	gate           *v1alpha1.PlacementGate
	placementFound bool
	sourceFound    bool
	// clusters that the Placement decided, with the scores that the gate names.
	clusters []gatestate.Cluster
	// invalidQueries states which of the gate's PromQL queries do not parse. Empty: none.
	invalidQueries string

	// config is nil if the MultiKueueConfig does not exist or the gate names none.
	config *kueue.MultiKueueConfig
	// mkClusters are all MultiKueueClusters of the hub, by name.
	mkClusters map[string]*kueue.MultiKueueCluster
	// inUse are the members of config that have workloads, by name. Decided members are included
	// only if they may have to leave. Without a config, they are all clusters with workloads.
	inUse map[string]bool
	// requested are the clusters that waiting workloads need.
	requested []string

	// nominate is true if the operator nominates clusters.
	nominate bool
	// conflict is the evidence that Kueue uses another dispatcher. Empty: none.
	conflict string
	// waiting is the number of workloads that hold quota and wait for the gate.
	waiting int32
	// holds are the clusters that the gate holds.
	holds []ledger.Hold
	// doubted are the clusters that do not start what they admit.
	doubted map[string]bool
	faults  gatestate.QueryFaults
	// preempting are the quotas of the queues that preempt and have a check of the gate.
	preempting []preemptingQuota
}

// gather reads the state of a gate. A missing object is a state; every other failure is
// an error.
func (r *Reconciler) gather(ctx context.Context, g *v1alpha1.PlacementGate) (*input, error) {
	in := &input{
		gate: g, invalidQueries: describeInvalidQueries(&g.Spec), nominate: r.opts.Nominate,
		conflict:  r.opts.Registry.Conflict(g.Name, r.opts.Now()),
		waiting:   r.opts.Registry.Waiting(g.Name),
		faults:    r.opts.Registry.QueryFaults(g.Name),
		requested: r.opts.Registry.RequestedClusters(g.Name, r.opts.Now()),
		holds:     r.opts.Ledger.View().HoldsOf(g.Name),
		doubted:   r.opts.Ledger.View().Doubted(r.opts.Now()),
	}
	var err error
	placement := client.ObjectKey{Namespace: g.Spec.PlacementRef.Namespace, Name: g.Spec.PlacementRef.Name}
	if in.placementFound, err = hubstate.Find(ctx, r.client, placement, &clusterv1beta1.Placement{}); err != nil {
		return nil, err
	}
	if in.sourceFound, err = hubstate.Find(ctx, r.client, client.ObjectKey{Name: g.Spec.SourceRef.Name}, &v1alpha1.MetricsSource{}); err != nil {
		return nil, err
	}
	names, err := hubstate.DecidedClusters(ctx, r.client, placement)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		scores, err := r.gatherScores(ctx, name, g.Spec.Scores)
		if err != nil {
			return nil, err
		}
		in.clusters = append(in.clusters, gatestate.Cluster{Name: name, Scores: scores})
	}
	if in.preempting, err = r.gatherPreemptingQuotas(ctx, g); err != nil {
		return nil, err
	}
	if g.Spec.MultiKueue == nil {
		return in, nil
	}
	return in, r.gatherMultiKueue(ctx, in)
}

// gatherScores returns the scores of a cluster that the policies name. A score that is not
// published is absent from the result.
func (r *Reconciler) gatherScores(ctx context.Context, cluster string, policies []v1alpha1.GateScore) (map[string]gate.Score, error) {
	scores := map[string]gate.Score{}
	for _, p := range policies {
		published, err := hubstate.PlacementScore(ctx, r.client, cluster, p.ResourceName)
		if err != nil {
			return nil, err
		}
		if published == nil {
			continue
		}
		key := gate.ScoreKey(p.ResourceName, p.ScoreName)
		if score, ok := gate.ScoresOf(published)[key]; ok {
			scores[key] = score
		}
	}
	return scores, nil
}

func (r *Reconciler) gatherMultiKueue(ctx context.Context, in *input) error {
	var err error
	if in.config, err = hubstate.MultiKueueConfig(ctx, r.client, in.gate.Spec.MultiKueue.ConfigName); err != nil {
		return err
	}
	if in.mkClusters, err = hubstate.MultiKueueClusters(ctx, r.client); err != nil {
		return err
	}
	in.inUse, err = r.gatherClustersInUse(ctx, in)
	return err
}

// describeInvalidQueries states which PromQL queries of a gate do not parse, and why. It
// returns an empty string if all of them parse.
func describeInvalidQueries(spec *v1alpha1.PlacementGateSpec) string {
	var descriptions []string
	for _, q := range gate.Queries(spec, "cluster") {
		expr, _ := promql.ExpandClusterLabel(q.Expr, "cluster")
		if _, problems := promql.ParseTemplate(expr, q.Variables()); len(problems) > 0 {
			descriptions = append(descriptions, q.Name+": "+promql.Strings(problems))
		}
	}
	return strings.Join(descriptions, "; ")
}

// registryEntry returns the state of the gate for the workload controller. leaving are the
// members to which no workload may be sent any more.
func (in *input) registryEntry(leaving []string) gatestate.Gate {
	entry := gatestate.Gate{Name: in.gate.Name, Spec: *in.gate.Spec.DeepCopy(), Clusters: slices.Clone(in.clusters),
		UID: in.gate.UID, Generation: in.gate.Generation}
	for i := range entry.Clusters {
		entry.Clusters[i].Leaving = slices.Contains(leaving, entry.Clusters[i].Name)
	}
	if f := findFault(in); f != nil {
		entry.Problem = f.Message
	}
	return entry
}
