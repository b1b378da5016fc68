package placementgate

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	clusterv1beta1 "open-cluster-management.io/api/cluster/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

func TestAffectedGates(t *testing.T) {
	g := newGate()
	g.Spec.Scores = []v1alpha1.GateScore{{ResourceName: "fleet", ScoreName: "total"}}
	unrelated := &v1alpha1.PlacementGate{ObjectMeta: metav1.ObjectMeta{Name: "unrelated"}}
	clock := now
	r, _ := newReconciler(t, &clock, interceptor.Funcs{}, g, unrelated)
	placement := func(namespace, name string) client.Object {
		return &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	score := func(name string) client.Object {
		return &clusterv1alpha1.AddOnPlacementScore{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: name}}
	}
	source := func(name string) client.Object {
		return &v1alpha1.MetricsSource{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	for _, tc := range []struct {
		name    string
		affects gatePredicate
		obj     client.Object
		want    bool
	}{
		{"Placement", usesPlacement, placement("plimsoll-system", "gpu"), true},
		{"another Placement", usesPlacement, placement("plimsoll-system", "cpu"), false},
		{"Placement of another namespace", usesPlacement, placement("default", "gpu"), false},
		{"PlacementDecision", usesPlacementDecision, newDecision(), true},
		{"AddOnPlacementScore", usesPlacementScore, score("fleet"), true},
		{"another AddOnPlacementScore", usesPlacementScore, score("power"), false},
		{"MetricsSource", usesSource, source("thanos"), true},
		{"another MetricsSource", usesSource, source("prometheus"), false},
		{"MultiKueueConfig", namesConfig, newConfig("plimsoll-gpu", ""), true},
		{"another MultiKueueConfig", namesConfig, newConfig("shared", ""), false},
		{"MultiKueueCluster", maintainsClusters, newForeignCluster("c1", ""), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			requests := r.affectedGates(t.Context(), tc.obj, tc.affects)
			if tc.want != (len(requests) == 1 && requests[0].Name == "gpu") || !tc.want && len(requests) > 0 {
				t.Errorf("requests %v", requests)
			}
		})
	}
}

func TestAffectedGatesLogsFailures(t *testing.T) {
	clock := now
	r, _ := newReconciler(t, &clock, failingList(errors.New("no RBAC")))
	var lines []logLine
	requests := r.affectedGates(log.IntoContext(t.Context(), newLogger(t, &lines)), newConfig("plimsoll-gpu", ""), namesConfig)
	want := []logLine{{
		Message: "Could not list the PlacementGates of a changed object; they reconcile at their next period",
		Error:   "no RBAC", Type: "*v1beta2.MultiKueueConfig",
	}}
	if diff := cmp.Diff(want, lines); diff != "" || len(requests) > 0 {
		t.Errorf("requests %v, log (-want +got):\n%s", requests, diff)
	}
}
