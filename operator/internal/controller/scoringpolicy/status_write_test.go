package scoringpolicy

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// TestStatusThatCannotBeWritten: while the status of a policy can't be written, the policy has its
// periodic rounds and few others. The status is complete after the first write that succeeds.
func TestStatusThatCannotBeWritten(t *testing.T) {
	fleet, clock := healthy, now
	r, hub := newReconciler(t, &fleet, &clock)
	fails := true
	r.client = interceptor.NewClient(hub.(client.WithWatch), interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if fails {
				return errors.New("the API server is busy")
			}
			return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
		},
	})
	queries := 0
	r.sources.Set(query.SourceInfo{Name: "prometheus", ClusterLabel: "cluster"},
		query.QuerierFunc(func(ctx context.Context, expr string, at time.Time) (query.Result, error) {
			queries++
			return fleet.Query(ctx, expr, at)
		}))
	// run reconciles as the queue does, for a duration.
	run := func(d time.Duration) {
		for end := clock.Add(d); clock.Before(end); {
			result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "fleet"}})
			if err != nil {
				result.RequeueAfter = 5 * time.Millisecond
			}
			clock = clock.Add(result.RequeueAfter)
		}
	}
	status := func() (*v1alpha1.ScoringPolicy, bool) {
		p := &v1alpha1.ScoringPolicy{}
		if err := hub.Get(t.Context(), client.ObjectKey{Name: "fleet"}, p); err != nil {
			t.Fatal(err)
		}
		return p, meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionReady)
	}
	run(10 * time.Minute)
	// 20 periods, and rounds 1, 2, 4, 8 and 16 s after the first failure.
	if queries < 20 || queries > 27 {
		t.Errorf("%d queries in 20 periods", queries)
	}
	p, _ := status()
	p.Spec.Mode, p.Generation = v1alpha1.ModeShadow, 2
	if err := hub.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	run(time.Second)
	fails = false
	run(time.Minute)
	if p, ready := status(); !ready || p.Status.ObservedGeneration != 2 || p.Status.LastRound == nil {
		t.Errorf("the status is incomplete: %+v", p.Status)
	}
	sent := r.recorder.(*events.FakeRecorder).Events
	var got []string
	for len(sent) > 0 {
		got = append(got, <-sent)
	}
	if !slices.ContainsFunc(got, func(e string) bool { return strings.Contains(e, "ScoresDeleted") }) {
		t.Errorf("no event of the deleted scores: %q", got)
	}
	// The next failure is retried soon.
	fails, queries = true, 0
	run(4 * time.Second)
	if queries < 2 {
		t.Errorf("%d queries in the first 4 s of another failure", queries)
	}
}

// TestScoresThatCannotBeWritten: scores that could not be written are written after at most 30 s, however
// long the period is.
func TestScoresThatCannotBeWritten(t *testing.T) {
	noNamespace := apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "c1")
	noNamespace.ErrStatus.Details.Kind = "namespaces"
	for name, tc := range map[string]struct {
		err  error // of the first write for c1
		wait time.Duration
	}{
		"a failed write": {errors.New("the API server is busy"), maxWriteRetry},
		"no namespace":   {noNamespace, maxWriteRetry},
		"no failure":     {nil, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			fleet, clock := healthy, now
			r, hub := newReconciler(t, &fleet, &clock)
			policy := &v1alpha1.ScoringPolicy{}
			if err := hub.Get(t.Context(), client.ObjectKey{Name: "fleet"}, policy); err != nil {
				t.Fatal(err)
			}
			policy.Spec.PeriodSeconds = 3600
			if err := hub.Update(t.Context(), policy); err != nil {
				t.Fatal(err)
			}
			clock = lastDue(policy, clock)
			failure := tc.err
			r.publisher.Client = interceptor.NewClient(hub.(client.WithWatch), interceptor.Funcs{
				SubResourceApply: func(ctx context.Context, c client.Client, sub string, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
					if o, ok := obj.(client.Object); ok && o.GetNamespace() == "c1" && failure != nil {
						err := failure
						failure = nil
						return err
					}
					return c.SubResource(sub).Apply(ctx, obj, opts...)
				},
			})
			run := func() time.Duration {
				result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "fleet"}})
				if err != nil {
					t.Fatal(err)
				}
				return result.RequeueAfter
			}
			wait := run()
			if wait != tc.wait {
				t.Errorf("the next round is after %v, want %v", wait, tc.wait)
			}
			clock = clock.Add(wait)
			run()
			written := &clusterv1alpha1.AddOnPlacementScore{}
			if err := hub.Get(t.Context(), client.ObjectKey{Namespace: "c1", Name: "fleet"}, written); err != nil || len(written.Status.Scores) == 0 {
				t.Errorf("after the next round: %+v, %v", written.Status, err)
			}
		})
	}
}
