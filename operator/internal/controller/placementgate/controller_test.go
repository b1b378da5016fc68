package placementgate

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// TestReconcileLog reconciles a gate several times, and compares the log of each time.
func TestReconcileLog(t *testing.T) {
	clock := now
	r, hub := newReconciler(t, &clock, interceptor.Funcs{}, healthyHub("c1", "c2")...)
	decide := func(clusters ...string) {
		decision := newDecision()
		if err := hub.Get(t.Context(), client.ObjectKeyFromObject(decision), decision); err != nil {
			t.Fatal(err)
		}
		decision.Status = newDecision(clusters...).Status
		if err := hub.Update(t.Context(), decision); err != nil {
			t.Fatal(err)
		}
	}
	update := func(change func(*v1alpha1.PlacementGate)) {
		g := newGate()
		if err := hub.Get(t.Context(), client.ObjectKeyFromObject(g), g); err != nil {
			t.Fatal(err)
		}
		change(g)
		if err := hub.Update(t.Context(), g); err != nil {
			t.Fatal(err)
		}
	}
	clusterLine := func(verb, name string) logLine {
		return logLine{Message: "MultiKueueCluster " + verb, Gate: "gpu", Cluster: name}
	}
	configLine := func(verb string, clusters ...string) logLine {
		return logLine{Message: "MultiKueueConfig " + verb, Gate: "gpu", Config: "plimsoll-gpu", Clusters: clusters}
	}
	conditionLine := func(conditionType, from, to, reason string) logLine {
		return logLine{Message: "Condition changed", Gate: "gpu", Type: conditionType, From: from, To: to, Reason: reason}
	}
	unchanged := []logLine{{Level: 1, Message: "Status unchanged", Gate: "gpu"}}
	for _, tc := range []struct {
		name    string
		prepare func()
		want    []logLine
	}{
		{"the first reconciliation creates the configuration", func() {}, []logLine{
			clusterLine("created", "c1"), clusterLine("created", "c2"), configLine("created", "c1", "c2"),
			conditionLine("Ready", "Unknown", "True", "Deciding"),
		}},
		{"no change logs at debug", func() {}, unchanged},
		{"an undecided cluster stays for two rounds", func() { decide("c1"); clock = clock.Add(15 * time.Second) },
			[]logLine{conditionLine("MultipleCandidates", "True", "False", "OneCluster")}},
		{"a changed configuration logs exactly one line", func() { clock = clock.Add(30 * time.Second) }, []logLine{configLine("changed", "c1")}},
		{"changed credentials log one line per cluster", func() {
			update(func(g *v1alpha1.PlacementGate) { g.Spec.MultiKueue.Credentials.NameTemplate = "kc-{cluster}" })
		}, append([]logLine{clusterLine("changed", "c1"), clusterLine("changed", "c2")}, unchanged...)},
		{"a missing source changes Ready", func() { update(func(g *v1alpha1.PlacementGate) { g.Spec.SourceRef.Name = "missing" }) },
			[]logLine{conditionLine("Ready", "True", "False", "SourceNotFound")}},
		{"a missing source is logged once", func() {}, unchanged},
		{"a deleted gate keeps its configuration", func() {
			if err := hub.Delete(t.Context(), newGate()); err != nil {
				t.Fatal(err)
			}
		}, []logLine{{Message: "Gate deleted", Gate: "gpu", Kept: []string{"plimsoll-gpu"}}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.prepare()
			var lines []logLine
			ctx := log.IntoContext(t.Context(), newLogger(t, &lines))
			if _, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKey{Name: "gpu"}}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, lines, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("log (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReconcileLeavesForeignObjectsAlone(t *testing.T) {
	clock := now
	config, cluster := newConfig("plimsoll-gpu", "other", "elsewhere"), newForeignCluster("c1", "other")
	fail := errors.New("unexpected write")
	calls := interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return fail },
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return fail
		},
	}
	r, _ := newReconciler(t, &clock, calls, append(healthyHub("c1"), config, cluster)...)
	if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "gpu"}}); err != nil {
		t.Error(err)
	}
}

func TestReconcileReturnsErrors(t *testing.T) {
	fail := errors.New("the API server timed out")
	for _, tc := range []struct {
		name  string
		calls interceptor.Funcs
		want  string
	}{
		{"list", failingList(fail), "gather the state of PlacementGate gpu: list PlacementDecisions of Placement plimsoll-system/gpu: "},
		{"create a cluster", interceptor.Funcs{
			Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return fail },
		}, "configure MultiKueue for PlacementGate gpu: create MultiKueueCluster c1: "},
		{"create a configuration", interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
				if _, ok := obj.(*kueue.MultiKueueConfig); ok {
					return fail
				}
				return c.Create(ctx, obj, opts...)
			},
		}, "configure MultiKueue for PlacementGate gpu: create MultiKueueConfig plimsoll-gpu: "},
		{"write the status", interceptor.Funcs{
			SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
				return fail
			},
		}, "write the status of PlacementGate gpu: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			clock := now
			r, _ := newReconciler(t, &clock, tc.calls, healthyHub("c1")...)
			_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "gpu"}})
			if !errors.Is(err, fail) || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("error %v, want %q with the cause", err, tc.want)
			}
		})
	}
}

// While the configuration can't be written, the conditions still show the present state. A cluster
// that can't be created delays no other one.
func TestFailedWriteIsReported(t *testing.T) {
	refused := errors.New("admission webhook denied the request")
	refuse := func(name string) interceptor.Funcs {
		return interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if obj.GetName() == name {
				return refused
			}
			return c.Create(ctx, obj, opts...)
		}}
	}
	for _, tc := range []struct {
		name    string
		refused string
		config  []string // as it exists before; nil = it does not
		members []string
		message string
	}{
		{"a cluster", "c1", nil, []string{"c2"}, "the MultiKueue configuration could not be written: create MultiKueueCluster c1: " + refused.Error()},
		{"a cluster, and others are members", "c1", []string{"c3"}, []string{"c2", "c3"}, "the MultiKueue configuration could not be written: create MultiKueueCluster c1: " + refused.Error()},
		{"a member", "c1", []string{"c1"}, []string{"c1", "c2"}, "the MultiKueue configuration could not be written: create MultiKueueCluster c1: " + refused.Error()},
		{"the configuration", "plimsoll-gpu", nil, nil, "the MultiKueue configuration could not be written: create MultiKueueConfig plimsoll-gpu: " + refused.Error()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			clock := now
			objects := healthyHub("c1", "c2")
			if tc.config != nil {
				objects = append(objects, newConfig("plimsoll-gpu", "gpu", tc.config...))
			}
			r, hub := newReconciler(t, &clock, refuse(tc.refused), objects...)
			if result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "gpu"}}); !errors.Is(err, refused) || !result.IsZero() {
				t.Errorf("got %+v and error %v, want a retry by the error alone", result, err)
			}
			g := &v1alpha1.PlacementGate{}
			if err := hub.Get(t.Context(), client.ObjectKey{Name: "gpu"}, g); err != nil {
				t.Fatal(err)
			}
			configured := apimeta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionConfigured)
			if configured == nil || configured.Status != metav1.ConditionFalse || configured.Reason != v1alpha1.ReasonWriteFailed || configured.Message != tc.message {
				t.Errorf("Configured is %+v", configured)
			}
			if !apimeta.IsStatusConditionTrue(g.Status.Conditions, v1alpha1.ConditionReady) || g.Status.Candidates != 2 {
				t.Errorf("status %+v", g.Status)
			}
			config := &kueue.MultiKueueConfig{}
			if err := client.IgnoreNotFound(hub.Get(t.Context(), client.ObjectKey{Name: "plimsoll-gpu"}, config)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.members, config.Spec.Clusters); diff != "" {
				t.Errorf("members (-want +got):\n%s", diff)
			}
		})
	}
}

// A conflict shows that the cache is stale. It is no news for users.
func TestConflictIsNotReported(t *testing.T) {
	clock := now
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "multikueueconfigs"}, "plimsoll-gpu", errors.New("modified"))
	calls := interceptor.Funcs{Patch: func(_ context.Context, _ client.WithWatch, _ client.Object, _ client.Patch, _ ...client.PatchOption) error {
		return conflict
	}}
	r, hub := newReconciler(t, &clock, calls, append(healthyHub("c1", "c2"), newConfig("plimsoll-gpu", "gpu", "c1"))...)
	if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "gpu"}}); !errors.Is(err, conflict) {
		t.Errorf("error %v", err)
	}
	g := &v1alpha1.PlacementGate{}
	if err := hub.Get(t.Context(), client.ObjectKey{Name: "gpu"}, g); err != nil {
		t.Fatal(err)
	}
	if len(g.Status.Conditions) > 0 {
		t.Errorf("conditions %+v", g.Status.Conditions)
	}
}
