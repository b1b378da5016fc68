package jobprofile

import (
	"context"

	"plimsoll.dev/plimsoll/operator/internal/hubstate"
	"plimsoll.dev/plimsoll/operator/internal/policies/jobusage"
	"plimsoll.dev/plimsoll/operator/internal/policies/profile"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// measure sends one query per quantity to the source of the run's gate, within timing.MaxRound.
func (r *Reconciler) measure(ctx context.Context, f *finishedRun) (profile.Run, error) {
	querier, info, err := r.sources.For(f.gate.Spec.SourceRef.Name)
	if err != nil {
		return profile.Run{}, err
	}
	members, err := hubstate.ManagedClusters(ctx, r.client)
	if err != nil {
		return profile.Run{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, timing.MaxRound)
	defer cancel()
	queries := profile.Queries(f.duration)
	if f.isPart {
		queries = profile.PartQueries(f.duration)
	}
	results, err := jobusage.Measure(ctx, jobusage.Source{Querier: querier, Info: info, Members: members}, jobusage.Job{
		Namespace: f.namespace, OwnerKind: f.ownerKind, OwnerName: f.ownerName, Cluster: f.cluster, End: f.end, Duration: f.duration,
	}, queries)
	if err != nil {
		return profile.Run{}, err
	}
	if f.isPart {
		return profile.NewPart(f.uid, f.end, results), nil
	}
	return profile.NewRun(f.uid, f.end, f.duration, results), nil
}
