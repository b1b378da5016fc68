package publish

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/internal/score"
)

// Seeds reads the published scores of an owner, as the starting point of the first round
// after a restart. valid is the validity of scores when they are written.
func (p *Publisher) Seeds(ctx context.Context, owner Owner, name string, valid time.Duration) ([]score.Seed, error) {
	var live clusterv1alpha1.AddOnPlacementScoreList
	if err := p.Client.List(ctx, &live, client.MatchingFields{nameIndex: name}); err != nil {
		return nil, fmt.Errorf("list AddOnPlacementScores: %w", err)
	}
	var seeds []score.Seed
	for i := range live.Items {
		if owned, _ := owner.owns(&live.Items[i]); owned {
			seeds = append(seeds, newSeed(&live.Items[i], valid))
		}
	}
	return seeds, nil
}

// newSeed recovers the state of a cluster from its published scores. The sample time is
// the time of the last write (validUntil - valid) while values are fresh. Once values
// are held, it is the time at which the hold began.
func newSeed(s *clusterv1alpha1.AddOnPlacementScore, valid time.Duration) score.Seed {
	seed := score.Seed{Cluster: s.Namespace, Values: map[string]int32{}}
	for _, item := range s.Status.Scores {
		seed.Values[item.Name] = item.Value
	}
	if s.Status.ValidUntil != nil {
		seed.SampleTime = s.Status.ValidUntil.Add(-valid)
	}
	switch c := meta.FindStatusCondition(s.Status.Conditions, DataFresh); {
	case c == nil:
	case c.Status == metav1.ConditionTrue:
		seed.Fresh = true
	default:
		seed.SampleTime = c.LastTransitionTime.Time
		seed.Fresh = c.Reason == ReasonHeld
	}
	return seed
}
