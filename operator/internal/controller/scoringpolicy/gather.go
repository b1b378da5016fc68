package scoringpolicy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/clustermap"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
	"plimsoll.dev/plimsoll/operator/internal/publish"
	"plimsoll.dev/plimsoll/operator/internal/query"
	"plimsoll.dev/plimsoll/operator/internal/round"
	"plimsoll.dev/plimsoll/operator/internal/score"
)

// memory is what one process keeps of a policy between rounds.
type memory struct {
	uid        types.UID
	generation int64
	began      time.Time
	last       *outcome
}

// outcome is all that a round brought.
type outcome struct {
	in        *gathered
	report    *round.Report
	published *publish.Report
	took      time.Duration
}

// gathered is what a round starts from.
type gathered struct {
	request   round.Request
	sourceErr error // the source can't be asked at all
	invalid   error // the spec can't be evaluated at all
	owner     publish.Owner
	name      string // of the AddOnPlacementScores
	period    time.Duration
	valid     time.Duration
	timeout   time.Duration // of one query
	shadow    bool
}

func (r *Reconciler) gather(ctx context.Context, policy *v1alpha1.ScoringPolicy) (*gathered, error) {
	in := &gathered{
		owner: publish.Owner{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "ScoringPolicy", Name: policy.Name, UID: policy.UID,
		},
		name:   cmp.Or(policy.Spec.Publish.Name, policy.Name),
		period: period(policy),
		shadow: policy.Spec.Mode == v1alpha1.ModeShadow,
	}
	in.valid = in.period * time.Duration(cmp.Or(policy.Spec.ValidForPeriods, 3))
	querier, info, err := r.sources.For(policy.Spec.SourceRef.Name)
	if errors.Is(err, query.ErrNoSource) && r.exists(ctx, policy.Spec.SourceRef.Name) {
		return nil, errNotYet
	}
	if err != nil {
		in.sourceErr, querier, info.ClusterLabel = err, unaskable(err), "cluster"
	}
	in.timeout = info.Timeout
	clusters, err := hubstate.ManagedClusters(ctx, r.client)
	if err != nil {
		return nil, err
	}
	selected, err := hubstate.SelectNames(clusters, policy.Spec.ClusterSelector)
	if err != nil {
		in.invalid = fmt.Errorf("clusterSelector: %w", err)
		return in, nil
	}
	compiled := score.Compile(&policy.Spec)
	previous, err := r.previous(ctx, policy, compiled, in)
	if err != nil {
		return nil, err
	}
	in.request = round.Request{
		Spec: &policy.Spec, Policy: compiled, Querier: querier, Clusters: clustermap.New(clusters, info).Select(selected), Previous: previous, Now: r.now(),
	}
	if info.Partial {
		in.request.Contributions = r.contributions(policy)
	}
	return in, nil
}

// errNotYet is returned for a source that exists and has not been read yet.
var errNotYet = errors.New("the source has not been read yet")

func (r *Reconciler) exists(ctx context.Context, source string) bool {
	return r.client.Get(ctx, client.ObjectKey{Name: source}, &v1alpha1.MetricsSource{}) == nil
}

// unaskable stands in for a source that does not exist or can't be used: every
// question fails, and what is published is held.
func unaskable(err error) query.Querier {
	return query.Func(func(context.Context, string, time.Time) (query.Answer, error) {
		return query.Answer{}, &query.Error{Reason: query.ReasonUnreachable, Message: err.Error()}
	})
}

// previous is the last round of this process, or what is published.
func (r *Reconciler) previous(ctx context.Context, policy *v1alpha1.ScoringPolicy, compiled *score.Policy, in *gathered) (*score.Result, error) {
	r.mu.Lock()
	m := r.memories[policy.Name]
	r.mu.Unlock()
	if m != nil && m.uid == policy.UID {
		last := m.last.report.Result
		if m.generation != policy.Generation {
			last = last.Restart()
		}
		return last, nil
	}
	seeds, err := r.publisher.Seeds(ctx, in.owner, in.name, in.valid)
	if err != nil {
		return nil, err
	}
	return score.FromSeeds(compiled, seeds, r.now()), nil
}

// contributions are those of the policy's last round, or none yet.
func (r *Reconciler) contributions(policy *v1alpha1.ScoringPolicy) *round.Contributions {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.memories[policy.Name]; m != nil && m.uid == policy.UID && m.last.in.request.Contributions != nil {
		return m.last.in.request.Contributions
	}
	return &round.Contributions{}
}

// ask runs the round, and gives up what a slow source has not answered within a
// period, but no single question before its time: what is published must be renewed
// before it expires.
func (in *gathered) ask(ctx context.Context) *round.Report {
	ctx, cancel := context.WithTimeout(ctx, max(in.period, in.timeout))
	defer cancel()
	return round.Run(ctx, in.request)
}

// publication asks for the scores of a result, or in Shadow mode for none.
func (in *gathered) publication(result *score.Result) publish.Request {
	req := publish.Request{Owner: in.owner, Name: in.name, Valid: in.valid, Now: in.request.Now}
	if !in.shadow {
		req.Want = publish.Want(result, in.request.Policy.HasTotal, in.valid)
	}
	return req
}

func (r *Reconciler) remember(policy *v1alpha1.ScoringPolicy, done *outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.memories[policy.Name] = &memory{uid: policy.UID, generation: policy.Generation, began: done.in.request.Now, last: done}
}

// last returns the last round of a policy, nil when there was none.
func (r *Reconciler) last(name string) *outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.memories[name]; m != nil {
		return m.last
	}
	return nil
}

// outcomes are the last rounds of all policies, by name.
func (r *Reconciler) outcomes() map[string]*outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[string]*outcome, len(r.memories))
	for name, m := range r.memories {
		all[name] = m.last
	}
	return all
}

func period(policy *v1alpha1.ScoringPolicy) time.Duration {
	return time.Duration(cmp.Or(policy.Spec.PeriodSeconds, 30)) * time.Second
}
