package admissioncheck

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// TestReconcileLog reconciles a check several times, and compares the log of each time.
func TestReconcileLog(t *testing.T) {
	r, hub := newReconciler(t, interceptor.Funcs{}, newCheck("placement", gateParameters("gpu")), newGate(2, "True", "Deciding", ""))
	setReady := func(observedGeneration int64, status metav1.ConditionStatus, reason string) {
		g := &v1alpha1.PlacementGate{}
		if err := hub.Get(t.Context(), client.ObjectKey{Name: "gpu"}, g); err != nil {
			t.Fatal(err)
		}
		g.Status = newGate(observedGeneration, status, reason, "").Status
		if err := hub.Status().Update(t.Context(), g); err != nil {
			t.Fatal(err)
		}
	}
	changed := func(from, to, reason string) []logLine {
		return []logLine{{Message: "Condition changed", Check: "placement", Type: "Active", From: from, To: to, Reason: reason}}
	}
	unchanged := []logLine{{Level: 1, Message: "Status unchanged", Check: "placement"}}
	for _, tc := range []struct {
		name    string
		prepare func()
		want    []logLine
	}{
		{"the first reconciliation", func() {}, changed("Unknown", "True", "Active")},
		{"no change", func() {}, unchanged},
		{"an invalid gate", func() { setReady(2, "False", "InvalidQuery") }, changed("True", "False", "InvalidQuery")},
		{"a gate whose status is outdated", func() { setReady(1, "True", "Deciding") },
			[]logLine{{Level: 1, Message: "Gate status is not up to date yet", Check: "placement", Gate: "gpu"}}},
		{"a deleted gate", func() {
			if err := hub.Delete(t.Context(), newGate(0, "", "", "")); err != nil {
				t.Fatal(err)
			}
		}, changed("False", "False", "GateNotFound")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.prepare()
			var lines []logLine
			ctx := log.IntoContext(t.Context(), newLogger(t, &lines))
			if _, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKey{Name: "placement"}}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, lines); diff != "" {
				t.Errorf("log (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReconcileIgnoresOtherControllers(t *testing.T) {
	check := newCheck("multikueue", nil)
	check.Spec.ControllerName = kueue.MultiKueueControllerName
	r, hub := newReconciler(t, interceptor.Funcs{}, check)
	if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(check)}); err != nil {
		t.Fatal(err)
	}
	if err := hub.Get(t.Context(), client.ObjectKeyFromObject(check), check); err != nil || len(check.Status.Conditions) > 0 {
		t.Errorf("%v, conditions %v", err, check.Status.Conditions)
	}
}

func TestChecksOfGate(t *testing.T) {
	failure := errors.New("no RBAC")
	for _, tc := range []struct {
		name string
		err  error
		want []string
		log  []logLine
	}{
		{"checks that name the gate", nil, []string{"placement"}, nil},
		{"failed list", failure, nil,
			[]logLine{{Message: "Could not list the AdmissionChecks of a changed PlacementGate", Gate: "gpu", Error: "no RBAC"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			calls := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if tc.err != nil {
					return tc.err
				}
				return c.List(ctx, list, opts...)
			}}
			r, _ := newReconciler(t, calls, newCheck("placement", gateParameters("gpu")), newCheck("other", gateParameters("other")), newCheck("none", nil))
			var lines []logLine
			var got []string
			for _, request := range r.checksOfGate(log.IntoContext(t.Context(), newLogger(t, &lines)), newGate(2, "True", "Deciding", "")) {
				got = append(got, request.Name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("checks (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.log, lines); diff != "" {
				t.Errorf("log (-want +got):\n%s", diff)
			}
		})
	}
}
