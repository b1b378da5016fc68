package hubclient

import (
	"context"
	"maps"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
)

// ReadScores returns the scores of every cluster, by cluster name and score key.
func ReadScores(ctx context.Context, reader client.Reader) (map[string]map[string]gate.Score, error) {
	objects, err := hubstate.PlacementScores(ctx, reader)
	if err != nil {
		return nil, err
	}
	scores := make(map[string]map[string]gate.Score, len(objects))
	for cluster, list := range objects {
		scores[cluster] = map[string]gate.Score{}
		for i := range list {
			maps.Copy(scores[cluster], gate.ScoresOf(&list[i]))
		}
	}
	return scores, nil
}
