package publish

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/scoring/score"
)

// Seeds reads the published scores of an owner, as the starting point of the first round
// after a restart.
func (p *Publisher) Seeds(ctx context.Context, owner Owner, name string) ([]score.Seed, error) {
	var live clusterv1alpha1.AddOnPlacementScoreList
	if err := p.Client.List(ctx, &live, client.MatchingFields{nameIndex: name}); err != nil {
		return nil, fmt.Errorf("list AddOnPlacementScores: %w", err)
	}
	var seeds []score.Seed
	for i := range live.Items {
		if owned, _ := owner.owns(&live.Items[i]); owned {
			seeds = append(seeds, newSeed(&live.Items[i]))
		}
	}
	return seeds, nil
}

// Expiry returns the earliest time at which published scores of an owner expire. It is zero if there are
// none.
func (p *Publisher) Expiry(ctx context.Context, owner Owner, name string) (time.Time, error) {
	var live clusterv1alpha1.AddOnPlacementScoreList
	if err := p.Client.List(ctx, &live, client.MatchingFields{nameIndex: name}, client.UnsafeDisableDeepCopy); err != nil {
		return time.Time{}, fmt.Errorf("list AddOnPlacementScores: %w", err)
	}
	var earliest time.Time
	for i := range live.Items {
		until := live.Items[i].Status.ValidUntil
		if owned, _ := owner.owns(&live.Items[i]); owned && until != nil && (earliest.IsZero() || until.Time.Before(earliest)) {
			earliest = until.Time
		}
	}
	return earliest, nil
}

// newSeed recovers the state of each score of a cluster from its condition. A score without
// a condition was fresh when the object was last written. A score without a value is omitted.
func newSeed(s *clusterv1alpha1.AddOnPlacementScore) score.Seed {
	written := lastWrite(s.ManagedFields, isStatusApply)
	seed := score.Seed{
		Cluster: s.Namespace, Scores: map[string]score.SeedScore{}, Series: readSeries(s),
		Written: written, SeriesWritten: lastWrite(s.ManagedFields, isUpdate),
	}
	if c := meta.FindStatusCondition(s.Status.Conditions, DataFresh); c != nil {
		seed.Stale = c.Reason == ReasonStale
	}
	for _, item := range s.Status.Scores {
		recovered := score.SeedScore{Value: item.Value, State: score.Scored, SampleTime: written}
		if c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ScoreConditionPrefix+item.Name); c != nil {
			recovered.State, recovered.Unmatched = stateOf(c.Reason), c.Reason == reasonUnmatched
			if c.Status != metav1.ConditionTrue {
				recovered.SampleTime, recovered.MissingSince = c.LastTransitionTime.Time, c.LastTransitionTime.Time
			}
		}
		seed.Scores[item.Name] = recovered
	}
	for i := range s.Status.Conditions {
		c := &s.Status.Conditions[i]
		name, ok := strings.CutPrefix(c.Type, v1alpha1.ScoreConditionPrefix)
		if _, published := seed.Scores[name]; !ok || published || c.Reason != score.Omitted.String() && c.Reason != reasonUnmatched {
			continue
		}
		seed.Scores[name] = score.SeedScore{State: score.Omitted, MissingSince: c.LastTransitionTime.Time, Unmatched: c.Reason == reasonUnmatched}
	}
	return seed
}

// stateOf returns the state with the given name. An unknown name becomes Worst: there is
// nothing to keep.
func stateOf(name string) score.State {
	if name == reasonUnmatched {
		return score.Kept
	}
	for s := score.Scored; s <= score.Omitted; s++ {
		if s.String() == name {
			return s
		}
	}
	return score.Worst
}

// lastWrite returns the time of the last write by a Publisher, of the status or of the rest. It
// can't be computed from validUntil: the period of the policy may have changed while no operator
// ran.
func lastWrite(entries []metav1.ManagedFieldsEntry, isWrite func(metav1.ManagedFieldsEntry) bool) time.Time {
	i := slices.IndexFunc(entries, isWrite)
	if i < 0 || entries[i].Time == nil {
		return time.Time{}
	}
	return entries[i].Time.Time
}
