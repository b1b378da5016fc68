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

// Seeds reads what an owner has published under a name, for the first round after
// a restart. Valid is how long its scores are valid.
func (p *Publisher) Seeds(ctx context.Context, owner Owner, name string, valid time.Duration) ([]score.Seed, error) {
	var live clusterv1alpha1.AddOnPlacementScoreList
	if err := p.Client.List(ctx, &live, client.MatchingFields{byName: name}); err != nil {
		return nil, fmt.Errorf("list AddOnPlacementScores: %w", err)
	}
	var seeds []score.Seed
	for i := range live.Items {
		if owned, _ := owner.owns(&live.Items[i]); owned {
			seeds = append(seeds, seed(&live.Items[i], valid))
		}
	}
	return seeds, nil
}

// seed takes the time of the sample from the validity, which is set from it, or,
// once values are held, from when that began.
func seed(s *clusterv1alpha1.AddOnPlacementScore, valid time.Duration) score.Seed {
	out := score.Seed{Cluster: s.Namespace, Values: map[string]int32{}}
	for _, item := range s.Status.Scores {
		out.Values[item.Name] = item.Value
	}
	if s.Status.ValidUntil != nil {
		out.SampleTime = s.Status.ValidUntil.Add(-valid)
	}
	switch c := meta.FindStatusCondition(s.Status.Conditions, DataFresh); {
	case c == nil:
	case c.Status == metav1.ConditionTrue:
		out.Fresh = true
	default:
		out.SampleTime = c.LastTransitionTime.Time
		out.Fresh = c.Reason == ReasonHeld
	}
	return out
}
