package scoringpolicy

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

func TestPoliciesOfASourceAreDueTogether(t *testing.T) {
	policy := func(source string, period int32) *v1alpha1.ScoringPolicy {
		p := &v1alpha1.ScoringPolicy{}
		p.Spec.SourceRef.Name, p.Spec.PeriodSeconds = source, period
		return p
	}
	a, b, other, slow := policy("thanos", 30), policy("thanos", 30), policy("mimir", 30), policy("thanos", 60)
	due := lastDue(a, now).Add(timeToNextRound(a, healthy.round(newSpec("free"), nil, now), lastDue(a, now)))
	if late := due.Add(7 * time.Second); !lastDue(b, late).Equal(due) {
		t.Errorf("two policies of a source are due at %v and %v", due, lastDue(b, late))
	}
	if lastDue(other, due).Equal(due) {
		t.Error("policies of two sources are due at the same time")
	}
	if at := lastDue(slow, due.Add(30*time.Second)); !lastDue(a, at).Equal(at) {
		t.Error("a policy with twice the period is not due with the others")
	}
	for _, at := range []time.Time{now, due, due.Add(1), due.Add(-1)} {
		if wait := timeToNextRound(a, healthy.round(newSpec("free"), nil, now), at); wait <= 0 || wait > 30*time.Second || lastDue(a, at).After(at) {
			t.Errorf("at %v: last due %v, next in %v", at, lastDue(a, at), wait)
		}
	}
}

func TestEvaluationTime(t *testing.T) {
	policy := &v1alpha1.ScoringPolicy{}
	policy.Spec.SourceRef.Name, policy.Spec.PeriodSeconds, policy.Generation = "thanos", 30, 2
	due := lastDue(policy, now)
	for _, tc := range []struct {
		name           string
		generation     int64
		lastRound, now time.Duration // since due
		periodic       bool
	}{
		{"due", 2, -30 * time.Second, time.Second, true},
		{"second round after it was due", 2, 0, 2 * time.Second, false},
		{"changed policy", 1, -30 * time.Second, time.Second, false},
		{"late", 2, -30 * time.Second, 8 * time.Second, false},
	} {
		r := &Reconciler{policies: map[string]*policyState{"": {generation: tc.generation, startedAt: due.Add(tc.lastRound)}}}
		at, want := due.Add(tc.now), due.Add(tc.now)
		if tc.periodic {
			want = due
		}
		if got := r.evaluationTime(policy, at); !got.Equal(want) {
			t.Errorf("%s: %v after it was due, want %v", tc.name, got.Sub(due), want.Sub(due))
		}
	}
}

// The liveness probe restarts the operator if a round lasts 5 minutes. A source that does not respond
// must not cause this, however long the period and the timeout are.
func TestRoundEndsBeforeTheLivenessProbeFails(t *testing.T) {
	for name, change := range map[string]func(*roundInput){
		"long period":  func(in *roundInput) { in.period = time.Hour },
		"long timeout": func(in *roundInput) { in.timeout = 300 * time.Second },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in := healthy.round(newSpec("free", "used"), nil, now).in
				change(in)
				in.request.Querier = query.QuerierFunc(func(ctx context.Context, _ string, _ time.Time) (query.Result, error) {
					<-ctx.Done()
					return query.Result{}, ctx.Err()
				})
				start := time.Now()
				in.run(t.Context())
				if took := time.Since(start); took != timing.MaxRound {
					t.Errorf("the round took %v, want %v", took, timing.MaxRound)
				}
			})
		})
	}
}
