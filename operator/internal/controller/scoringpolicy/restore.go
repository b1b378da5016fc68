package scoringpolicy

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/scoring/round"
	"plimsoll.dev/plimsoll/operator/internal/scoring/score"
)

// restore returns the result of the last round of this process, and sets in.contributions.
// After a restart, both are reconstructed from the published scores. What belongs to another
// source, to a deleted cluster of the same name, or to other series of a cluster, is dropped.
func (r *Reconciler) restore(ctx context.Context, policy *v1alpha1.ScoringPolicy, compiled *score.Policy, in *roundInput, members []*clusterv1.ManagedCluster) (*score.Result, error) {
	last, lastSource, generation, err := r.lastResult(ctx, policy, compiled, in, members)
	if err != nil {
		return nil, err
	}
	if generation != policy.Generation {
		last = last.SkipDamping()
	}
	if lastSource != in.sourceID {
		last, in.contributions = last.SkipDamping(), &round.Contributions{}
		last.Matched, last.AgeKnown = nil, nil
	}
	return last, nil
}

// restoreExpiry sets the metric of the time at which the published scores expire, before the first round
// of this process. Rounds advance it if they can write scores, and none runs if the spec is invalid.
func (r *Reconciler) restoreExpiry(ctx context.Context, policy *v1alpha1.ScoringPolicy, in *roundInput) error {
	if r.stateOf(policy) != nil {
		return nil
	}
	expiry, err := r.publisher.Expiry(ctx, in.owner, in.name)
	if err != nil {
		return err
	}
	if !expiry.IsZero() {
		r.metrics.setExpiry(policy.Name, expiry)
	}
	return nil
}

// lastResult returns the result of the last round, and the source and the generation of the policy
// that it comes from. It sets in.contributions.
func (r *Reconciler) lastResult(ctx context.Context, policy *v1alpha1.ScoringPolicy, compiled *score.Policy, in *roundInput, members []*clusterv1.ManagedCluster) (last *score.Result, source string, generation int64, err error) {
	if state := r.stateOf(policy); state != nil {
		before := state.last.in
		in.contributions = before.contributions
		gone := before.goneClusters(in)
		in.keepSeriesValues(before)
		in.contributions.Forget(gone)
		return state.last.report.Result.Without(gone), before.sourceID, state.generation, nil
	}
	seeds, err := r.publisher.Seeds(ctx, in.owner, in.name)
	if err != nil {
		return nil, "", 0, err
	}
	seeds, source = ownSeeds(seeds, members), restoredSource(policy, in)
	if source == in.sourceID {
		renewSamples(seeds, policy, compiled.MaxAge)
	}
	in.contributions = round.RestoreContributions(seeds)
	last = score.FromSeeds(compiled, seeds, r.now())
	last.Matched = matchedQueries(policy)
	return last, source, policy.Status.ObservedGeneration, nil
}

// restoredSource returns the identity of the source that published scores come from. An operator
// of an earlier version recorded none: its source counts as the present one. A policy that was
// deleted and created again has no status, and nothing is known about its source.
func restoredSource(policy *v1alpha1.ScoringPolicy, in *roundInput) string {
	if policy.Status.Source == "" && policy.Status.LastRound != nil {
		return in.sourceID
	}
	return policy.Status.Source
}

// renewSamples sets the sample times of scores that were fresh in the last round. An unchanged
// score is written only when a third of its validity has passed. With a long validity, a keep time that
// starts at this write has ended before the restart. A sample of the round was at most maxAge old.
// A round of another spec, or one with a write that failed, says nothing about the published scores.
func renewSamples(seeds []score.Seed, policy *v1alpha1.ScoringPolicy, maxAge time.Duration) {
	published := meta.FindStatusCondition(policy.Status.Conditions, v1alpha1.ConditionPublished)
	if policy.Status.LastRound == nil || published == nil || published.Status != metav1.ConditionTrue || published.ObservedGeneration != policy.Generation {
		return
	}
	sampled := policy.Status.LastRound.Time.Add(-maxAge)
	for i := range seeds {
		for name, s := range seeds[i].Scores {
			if s.MissingSince.IsZero() && s.SampleTime.Before(sampled) {
				s.SampleTime = sampled
				seeds[i].Scores[name] = s
			}
		}
	}
}

// matchedQueries returns the queries that have matched a cluster in the last round or before. A query that
// replaced another one while no round ran has matched nothing yet, and so have those of a policy that was
// deleted and created again. Published scores don't say it: none may be left of a query that has matched.
func matchedQueries(policy *v1alpha1.ScoringPolicy) map[string]bool {
	matched := map[string]bool{}
	for _, s := range policy.Status.Scores {
		if !s.Unmatched {
			matched[s.Query] = true
		}
	}
	return matched
}

// membersOf returns the selected clusters. Both arguments must be sorted by name.
func membersOf(clusters []clusterv1.ManagedCluster, selected []string) []*clusterv1.ManagedCluster {
	members := make([]*clusterv1.ManagedCluster, 0, len(selected))
	for i := range clusters {
		if _, ok := slices.BinarySearch(selected, clusters[i].Name); ok {
			members = append(members, &clusters[i])
		}
	}
	return members
}

// goneClusters returns the clusters of a round that a later one does not have. A cluster that was
// deleted and created again has the name of its predecessor, and not its state. Nor has a cluster that
// other series belong to: its label was wrong, or another cluster was imported into the ManagedCluster.
func (in *roundInput) goneClusters(later *roundInput) []string {
	var gone []string
	names := later.request.Clusters.Names()
	for i, name := range in.request.Clusters.Names() {
		j, ok := slices.BinarySearch(names, name)
		if !ok || later.uids[j] != in.uids[i] || later.sourceID == in.sourceID && hasOtherSeries(in.seriesValues[i], later.seriesValues[j]) {
			gone = append(gone, name)
		}
	}
	return gone
}

// hasOtherSeries reports whether a cluster has other series than before. A label or claim that is missing
// for a while says nothing.
func hasOtherSeries(before, after string) bool { return before != "" && after != "" && before != after }

// keepSeriesValues sets the values of clusters that lack the label or claim to those of the round before.
func (in *roundInput) keepSeriesValues(before *roundInput) {
	if before.sourceID != in.sourceID {
		return
	}
	names := before.request.Clusters.Names()
	for j, name := range in.request.Clusters.Names() {
		if i, ok := slices.BinarySearch(names, name); ok && before.uids[i] == in.uids[j] {
			in.seriesValues[j] = cmp.Or(in.seriesValues[j], before.seriesValues[i])
		}
	}
}

// ownSeeds returns the seeds without those of deleted clusters: what was written before a cluster
// was created is about its predecessor. Times have seconds, so the second of the creation counts
// as before.
func ownSeeds(seeds []score.Seed, members []*clusterv1.ManagedCluster) []score.Seed {
	created := make(map[string]time.Time, len(members))
	for _, c := range members {
		created[c.Name] = c.CreationTimestamp.Time
	}
	own := make([]score.Seed, 0, len(seeds))
	for _, seed := range seeds {
		isEarlier := func(written time.Time) bool {
			at := created[seed.Cluster]
			return !written.IsZero() && !at.IsZero() && !written.After(at)
		}
		if isEarlier(seed.Written) {
			continue
		}
		if isEarlier(seed.SeriesWritten) {
			seed.Series = nil
		}
		own = append(own, seed)
	}
	return own
}
