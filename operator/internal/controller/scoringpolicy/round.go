package scoringpolicy

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clusterv1 "open-cluster-management.io/api/cluster/v1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
	"plimsoll.dev/plimsoll/operator/internal/metrics/clustermap"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/scoring/publish"
	"plimsoll.dev/plimsoll/operator/internal/scoring/round"
	"plimsoll.dev/plimsoll/operator/internal/scoring/score"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// roundInput is everything that a round needs.
type roundInput struct {
	request round.Request
	// sourceErr means that the source does not exist or can't be used. The round still
	// runs: every query fails, and the last scores are kept.
	sourceErr error
	source    query.SourceInfo
	// sourceID is the identity of the source. For one that does not exist, it is that of the last
	// source that the policy read.
	sourceID string
	// specErr means that the spec can't be evaluated. No round runs.
	specErr error
	owner   publish.Owner
	name    string // of the AddOnPlacementScores
	// uids of the clusters, in their order in the request.
	uids []types.UID
	// seriesValues are the label values by which series name the clusters, in the same order. A cluster
	// that lacks the label or claim at present keeps its last value. Empty: not known.
	seriesValues []string
	// contributions of the earlier rounds, also while the source can't be partial.
	contributions *round.Contributions
	period        time.Duration
	valid         time.Duration // of the scores
	timeout       time.Duration // of one query
	shadow        bool
	// warnings about settings, for the status.
	warnings []string
	adopt    bool // AddOnPlacementScores that no object controls
}

// gather reads the source, the clusters and the previous result of a policy.
func (r *Reconciler) gather(ctx context.Context, policy *v1alpha1.ScoringPolicy) (*roundInput, error) {
	in := &roundInput{
		owner: publish.Owner{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "ScoringPolicy", Name: policy.Name, UID: policy.UID,
		},
		name:   publishName(policy),
		period: periodOf(policy),
		shadow: policy.Spec.Mode == v1alpha1.ModeShadow,
		adopt:  policy.Spec.Publish.Existing == v1alpha1.ExistingAdopt,
	}
	in.valid = in.period * time.Duration(cmp.Or(policy.Spec.ValidForPeriods, 3))
	if err := r.restoreExpiry(ctx, policy, in); err != nil {
		return nil, err
	}
	querier, err := r.source(ctx, policy, in)
	if err != nil {
		return nil, err
	}
	clusters, err := hubstate.ManagedClusters(ctx, r.client)
	if err != nil {
		return nil, err
	}
	selected, err := hubstate.SelectNames(clusters, policy.Spec.ClusterSelector)
	if err != nil {
		in.specErr = fmt.Errorf("clusterSelector: %w", err)
		return in, nil
	}
	spec, compiled, err := round.Compile(&policy.Spec, in.source.ClusterLabel)
	if err != nil {
		in.specErr = err
		return in, nil
	}
	in.request.Clusters = clustermap.New(clusters, in.source).Select(selected)
	members := membersOf(clusters, selected)
	for _, c := range members {
		in.uids = append(in.uids, c.UID)
		in.seriesValues = append(in.seriesValues, seriesValue(c, in.source))
	}
	previous, err := r.restore(ctx, policy, compiled, in, members)
	if err != nil {
		return nil, err
	}
	in.warnings = settingsWarnings(spec, len(clusters), len(selected))
	at := r.evaluationTime(policy, r.now())
	querier = r.shared.querier(policy.Name, policy.Spec.SourceRef.Name, round.SharedExpressions(spec), querier)
	in.request = round.Request{
		Spec: spec, Policy: compiled, Querier: querier, Previous: previous, Now: at, Clusters: in.request.Clusters,
	}
	if in.source.Partial {
		in.request.Contributions = in.contributions
	}
	return in, nil
}

// source returns the client of the source, and sets in.source. For a source that can't be used,
// it sets in.sourceErr and returns a client whose queries all fail.
//
// A source that was deleted counts as the one of the last round. Otherwise $cluster_label would
// change, and with it the queries: the round would not know any more that they have matched. After
// a restart, the status of the policy has the label.
func (r *Reconciler) source(ctx context.Context, policy *v1alpha1.ScoringPolicy, in *roundInput) (query.Querier, error) {
	querier, info, unusable, err := hubstate.Source(ctx, r.client, r.sources, policy.Spec.SourceRef.Name)
	if err != nil {
		return nil, err
	}
	if unusable != nil {
		in.sourceErr, querier = unusable, failingQuerier(query.ReasonUnreachable, unusable)
	}
	lastID := policy.Status.Source
	if state := r.stateOf(policy); state != nil {
		lastID = state.last.in.sourceID
		if info.ClusterLabel == "" {
			info = state.last.in.source
		}
	}
	in.sourceID = cmp.Or(info.Identity(), lastID)
	info.ClusterLabel = cmp.Or(info.ClusterLabel, policy.Status.ClusterLabel, "cluster")
	in.source, in.timeout = info, info.Timeout
	return querier, nil
}

// seriesValue returns the label value by which the series of a source name the cluster. It is empty if the
// cluster lacks the label or claim, or if the mapping of the source is not known.
func seriesValue(cluster *clusterv1.ManagedCluster, source query.SourceInfo) string {
	if source.Name == "" {
		return ""
	}
	return clustermap.SeriesValue(cluster, source)
}

// failingQuerier returns a client whose queries all fail with err.
func failingQuerier(reason query.Reason, err error) query.Querier {
	return query.QuerierFunc(func(context.Context, string, time.Time) (query.Result, error) {
		return query.Result{}, &query.Error{Reason: reason, Message: err.Error()}
	})
}

// run evaluates the round. It waits for slow queries for one period, or for the timeout
// of a single query if that is longer, but at most for timing.MaxRound: published scores must be
// renewed before they expire.
func (in *roundInput) run(ctx context.Context) *round.Report {
	ctx, cancel := context.WithTimeout(ctx, min(max(in.period, in.timeout), timing.MaxRound))
	defer cancel()
	return round.Run(ctx, in.request)
}

// publishRequest returns the request to publish a result. In Shadow mode it wants no
// scores, so that the published ones are deleted.
func (in *roundInput) publishRequest(result *score.Result) publish.Request {
	req := publish.Request{Owner: in.owner, Name: in.name, Adopt: in.adopt, Valid: in.valid, Now: in.request.Now}
	if !in.shadow {
		req.Want = publish.Desire(result, in.request.Policy.HasTotal, in.valid)
		series := in.contributions.ByCluster(in.request.Spec)
		for i := range req.Want {
			req.Want[i].Series = series[req.Want[i].Cluster]
		}
	}
	return req
}

func periodOf(policy *v1alpha1.ScoringPolicy) time.Duration {
	return time.Duration(cmp.Or(policy.Spec.PeriodSeconds, 30)) * time.Second
}
