package placementgate

import (
	"context"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	clusterv1beta1 "open-cluster-management.io/api/cluster/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/promql"
	"plimsoll.dev/plimsoll/operator/internal/registry"
	"plimsoll.dev/plimsoll/operator/internal/shape"
)

// input of one reconciliation.
type input struct {
	gate       *v1alpha1.PlacementGate
	placement  bool
	source     bool
	clusters   []registry.Cluster
	config     *kueue.MultiKueueConfig
	mkClusters map[string]*kueue.MultiKueueCluster
	inUse      map[string]bool

	invalid string
	// nominate: the operator is Kueue's dispatcher.
	nominate bool
	// conflict is evidence that Kueue uses another dispatcher; empty = none.
	conflict string
	waiting  int32
	// failingQueries names the failing queries and since when they fail; empty = none.
	failingQueries string
}

func (r *Reconciler) gather(ctx context.Context, g *v1alpha1.PlacementGate) (*input, error) {
	in := &input{gate: g, nominate: r.opts.Nominate, mkClusters: map[string]*kueue.MultiKueueCluster{}, inUse: map[string]bool{}}
	var err error
	ref := client.ObjectKey{Namespace: g.Spec.PlacementRef.Namespace, Name: g.Spec.PlacementRef.Name}
	if in.placement, err = r.exists(ctx, ref, &clusterv1beta1.Placement{}); err != nil {
		return nil, err
	}
	if in.source, err = r.exists(ctx, client.ObjectKey{Name: g.Spec.SourceRef.Name}, &v1alpha1.MetricsSource{}); err != nil {
		return nil, err
	}
	names, err := r.decided(ctx, ref)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		scores, err := r.scores(ctx, name, g.Spec.Policies)
		if err != nil {
			return nil, err
		}
		in.clusters = append(in.clusters, registry.Cluster{Name: name, Scores: scores})
	}
	if g.Spec.MultiKueue == nil {
		return in, nil
	}
	return in, r.gatherMultiKueue(ctx, in)
}

func (r *Reconciler) exists(ctx context.Context, key client.ObjectKey, obj client.Object) (bool, error) {
	err := r.client.Get(ctx, key, obj)
	return err == nil, client.IgnoreNotFound(err)
}

// decided is the union of the Placement's decisions, in their order.
func (r *Reconciler) decided(ctx context.Context, placement client.ObjectKey) ([]string, error) {
	list := &clusterv1beta1.PlacementDecisionList{}
	if err := r.client.List(ctx, list, client.InNamespace(placement.Namespace),
		client.MatchingLabels{clusterv1beta1.PlacementLabel: placement.Name}); err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, func(a, b clusterv1beta1.PlacementDecision) int { return strings.Compare(a.Name, b.Name) })
	var names []string
	for _, d := range list.Items {
		for _, c := range d.Status.Decisions {
			if c.ClusterName != "" && !slices.Contains(names, c.ClusterName) {
				names = append(names, c.ClusterName)
			}
		}
	}
	return names, nil
}

func (r *Reconciler) scores(ctx context.Context, cluster string, policies []v1alpha1.GatePolicy) (map[string]gate.Score, error) {
	scores := map[string]gate.Score{}
	for _, p := range policies {
		s := &clusterv1alpha1.AddOnPlacementScore{}
		err := r.client.Get(ctx, client.ObjectKey{Namespace: cluster, Name: p.Policy}, s)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		key := gate.ScoreKey(p.Policy, p.Score)
		if score, ok := gate.ScoresOf(s)[key]; ok {
			scores[key] = score
		}
	}
	return scores, nil
}

func (r *Reconciler) gatherMultiKueue(ctx context.Context, in *input) error {
	name := in.gate.Spec.MultiKueue.ConfigName
	config := &kueue.MultiKueueConfig{}
	found, err := r.exists(ctx, client.ObjectKey{Name: name}, config)
	if err != nil {
		return err
	}
	if found {
		in.config = config
	}
	clusters := &kueue.MultiKueueClusterList{}
	if err := r.client.List(ctx, clusters); err != nil {
		return err
	}
	for i := range clusters.Items {
		in.mkClusters[clusters.Items[i].Name] = &clusters.Items[i]
	}
	return r.gatherInUse(ctx, in)
}

// gatherInUse finds the members of the configuration that a workload uses. Those
// that are decided stay in any case, so that nobody asks for them.
func (r *Reconciler) gatherInUse(ctx context.Context, in *input) error {
	if in.config == nil {
		return nil
	}
	checks := &kueue.AdmissionCheckList{}
	if err := r.client.List(ctx, checks); err != nil {
		return err
	}
	for _, member := range in.config.Spec.Clusters {
		if slices.ContainsFunc(in.clusters, func(c registry.Cluster) bool { return c.Name == member }) {
			continue
		}
		for i := range checks.Items {
			check := &checks.Items[i]
			if config, ok := kueuestate.MultiKueueConfigOf(check); !ok || config != in.config.Name {
				continue
			}
			users := &kueue.WorkloadList{}
			if err := r.client.List(ctx, users, client.MatchingFields{usesIndex: use(check.Name, member)}, client.Limit(1)); err != nil {
				return err
			}
			in.inUse[member] = in.inUse[member] || len(users.Items) > 0
		}
	}
	return nil
}

// usesIndex of Workloads: the clusters that each is on or may be on, by check.
const usesIndex = "plimsoll.uses"

func use(check, cluster string) string { return check + "/" + cluster }

// uses of an unfinished workload, for usesIndex.
func uses(obj client.Object) []string {
	wl, ok := obj.(*kueue.Workload)
	if !ok || kueuestate.IsFinished(wl) {
		return nil
	}
	clusters := slices.Clone(wl.Status.NominatedClusterNames)
	if wl.Status.ClusterName != nil {
		clusters = append(clusters, *wl.Status.ClusterName)
	}
	var all []string
	for _, check := range wl.Status.AdmissionChecks {
		for _, cluster := range clusters {
			all = append(all, use(string(check.Name), cluster))
		}
	}
	return all
}

// invalidQueries says what is wrong with the gate's PromQL; empty = nothing.
func invalidQueries(spec *v1alpha1.PlacementGateSpec) string {
	var all []string
	for _, q := range gate.Queries(spec, "cluster") {
		if _, problems := promql.ParseTemplate(q.Expr, shape.Variables); len(problems) > 0 {
			all = append(all, q.Name+": "+promql.Strings(problems))
		}
	}
	return strings.Join(all, "; ")
}

// board is what the workloads need to know of the gate.
func (in *input) board() registry.Gate {
	g := registry.Gate{Name: in.gate.Name, Spec: *in.gate.Spec.DeepCopy(), Clusters: in.clusters, Generation: in.gate.Generation}
	if _, _, message := in.fault(); message != "" {
		g.Problem = message
	}
	return g
}

// fault that keeps the gate from deciding: the condition that it belongs to, a
// reason and a message.
func (in *input) fault() (condition, reason, message string) {
	ref := in.gate.Spec.PlacementRef
	switch {
	case in.invalid != "":
		return v1alpha1.ConditionQueriesValid, "InvalidQuery", in.invalid
	case !in.placement:
		return v1alpha1.ConditionPlacementFound, "PlacementNotFound", "Placement " + ref.Namespace + "/" + ref.Name + " does not exist"
	case !in.source:
		return v1alpha1.ConditionReady, "SourceNotFound", "MetricsSource " + in.gate.Spec.SourceRef.Name + " does not exist"
	}
	if why := foreign(in.gate, in.config); why != "" {
		return v1alpha1.ConditionConfigured, reasonNotOurs, why
	}
	return "", "", ""
}
