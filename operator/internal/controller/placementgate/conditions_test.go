package placementgate

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/membership"
	"plimsoll.dev/plimsoll/operator/internal/registry"
)

func fine(clusters ...string) *input {
	g := &v1alpha1.PlacementGate{ObjectMeta: metav1.ObjectMeta{Name: "gpu", Generation: 3}}
	g.Spec.PlacementRef = v1alpha1.NamespacedReference{Namespace: "plimsoll-system", Name: "gpu"}
	g.Spec.SourceRef.Name = "thanos"
	g.Spec.MultiKueue = &v1alpha1.GateMultiKueue{ConfigName: "plimsoll-gpu"}
	in := &input{gate: g, placement: true, source: true, nominate: true}
	for _, c := range clusters {
		in.clusters = append(in.clusters, registry.Cluster{Name: c})
	}
	return in
}

func TestConditions(t *testing.T) {
	written := outcome{metav1.ConditionTrue, "Written", ""}
	many := make([]string, 25)
	for i := range many {
		many[i] = fmt.Sprint("c", i)
	}
	for _, tc := range []struct {
		name       string
		change     func(*input)
		configured outcome
		condition  string
		status     metav1.ConditionStatus
		reason     string
		message    string
	}{
		{"fine", func(*input) {}, written, v1alpha1.ConditionReady, "True", "Deciding", "decides over 2 clusters"},
		{"no decisions", func(in *input) { in.clusters = nil }, written, v1alpha1.ConditionReady, "False", "NoDecisions", "the Placement has decided no cluster"},
		{"no Placement", func(in *input) { in.placement = false }, written, v1alpha1.ConditionPlacementFound, "False", "PlacementNotFound", "Placement plimsoll-system/gpu does not exist"},
		{"no source", func(in *input) { in.source = false }, written, v1alpha1.ConditionReady, "False", "SourceNotFound", "MetricsSource thanos does not exist"},
		{"a bad query", func(in *input) { in.invalid = "fit: 1:3: oh" }, written, v1alpha1.ConditionQueriesValid, "False", "InvalidQuery", "fit: 1:3: oh"},
		{"another's configuration", func(in *input) {
			in.config = &kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: "shared", Labels: map[string]string{v1alpha1.ManagedByLabel: "other"}}}
		}, written, v1alpha1.ConditionReady, "False", "NotOurs",
			"MultiKueueConfig shared belongs to PlacementGate other and is left alone: name another in spec.multiKueue.configName"},
		{"queries succeed", func(*input) {}, written, v1alpha1.ConditionQueriesSucceeding, "True", "Succeeding", "every recent query returned a complete result"},
		{"queries fail", func(in *input) { in.failingQueries = "failing: fit: timeout" }, written, v1alpha1.ConditionQueriesSucceeding, "False", "QueriesFailing", "failing: fit: timeout"},
		{"no choice", func(in *input) { in.clusters = in.clusters[:1] }, written, v1alpha1.ConditionMultipleCandidates, "False", "OneCluster", "the Placement decides a single cluster, so the gate has no choice; leave numberOfClusters unset"},
		{"an absent score", func(in *input) {
			in.gate.Spec.Policies = []v1alpha1.GatePolicy{{Policy: "fleet", Score: "totla", Use: v1alpha1.UsePrefer}}
		}, written, v1alpha1.ConditionScoresFound, "False", "NoSuchScore", "no decided cluster has an AddOnPlacementScore with fleet/totla"},
		{"the only dispatcher", func(*input) {}, written, v1alpha1.ConditionDispatcherMatches, "True", "OnlyDispatcher", "no other component nominates clusters"},
		{"Kueue's own dispatcher", func(in *input) { in.nominate = false }, written, v1alpha1.ConditionDispatcherMatches, "True", "DispatchOff",
			"the operator leaves nominations to Kueue's own dispatcher: --multikueue-dispatch=off"},
		{"no dispatcher", func(in *input) { in.nominate, in.conflict = false, "team-a/job was not nominated" }, written, v1alpha1.ConditionDispatcherMatches, "False", "NoDispatcher",
			"team-a/job was not nominated; run the operator with --multikueue-dispatch=nominate, or set multiKueue.dispatcherName to one of Kueue's own dispatchers"},
		{"another dispatcher", func(in *input) { in.conflict = "team-a/job was nominated to cluster3 by another dispatcher" }, written, v1alpha1.ConditionDispatcherMatches, "False", "AnotherDispatcher",
			"team-a/job was nominated to cluster3 by another dispatcher; set multiKueue.dispatcherName to plimsoll.dev/dispatcher in Kueue's configuration"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := fine("cluster1", "cluster2")
			tc.change(in)
			got := apimeta.FindStatusCondition(conditions(in, tc.configured), tc.condition)
			if got == nil || got.Status != tc.status || got.Reason != tc.reason || got.Message != tc.message || got.ObservedGeneration != 3 {
				t.Errorf("got %+v", got)
			}
		})
	}
	o := summary(fine(), membership.Result{Clusters: many[:20], Truncated: many[20:]}, nil)
	if o.reason != "ClustersTruncated" || !strings.HasSuffix(o.message, "left out: c20, c21, c22, c23, c24") {
		t.Errorf("25 clusters: %+v", o)
	}
	in := fine("c0")
	in.mkClusters = map[string]*kueue.MultiKueueCluster{}
	for name, owner := range map[string]string{"c0": "gpu", "c3": "gpu", "c2": "gpu", "theirs": "other"} {
		in.mkClusters[name] = &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.ManagedByLabel: owner}}}
	}
	const want = "MultiKueueConfig plimsoll-gpu holds c0; Kueue stays connected to c2, c3, which it no longer holds, until \"kubectl plimsoll release gpu --unused\""
	if o := summary(in, membership.Result{Clusters: []string{"c0"}}, nil); o.reason != "Written" || o.message != want {
		t.Errorf("clusters that left: %+v", o)
	}
}

func TestConfigurationOfAnother(t *testing.T) {
	in := fine("cluster1")
	for label, want := range map[string]string{"gpu": "", "": "shared was not created by a gate", "other": "shared belongs to PlacementGate other"} {
		in.config = &kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: "shared"}}
		if label != "" {
			in.config.Labels = map[string]string{v1alpha1.ManagedByLabel: label}
		}
		if want != "" {
			want = "MultiKueueConfig " + want + " and is left alone: name another in spec.multiKueue.configName"
		}
		if got := in.board().Problem; got != want {
			t.Errorf("label %q: the workloads are told %q", label, got)
		}
	}
}

func TestUses(t *testing.T) {
	cluster := "cluster1"
	wl := &kueue.Workload{Status: kueue.WorkloadStatus{AdmissionChecks: []kueue.AdmissionCheckState{{Name: "multikueue"}, {Name: "plimsoll"}}}}
	if got := uses(wl); got != nil {
		t.Errorf("of nothing: %v", got)
	}
	wl.Status.ClusterName, wl.Status.NominatedClusterNames = &cluster, []string{"cluster2"}
	want := []string{"multikueue/cluster2", "multikueue/cluster1", "plimsoll/cluster2", "plimsoll/cluster1"}
	if got := uses(wl); !slices.Equal(got, want) {
		t.Errorf("of where it is and where it may be: %v", got)
	}
	wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue}}
	if got := uses(wl); got != nil {
		t.Errorf("of a finished one: %v", got)
	}
}

func TestRanked(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	in := fine("expired", "blind", "missing", "good")
	in.gate.Spec.Policies = []v1alpha1.GatePolicy{{Policy: "fleet", Score: "total", Use: v1alpha1.UsePrefer}, {Policy: "fleet", Score: "health", Use: v1alpha1.UseRequire}}
	in.clusters[0].Scores = map[string]gate.Score{"fleet/total": {Value: 90, ValidUntil: now.Add(-time.Second)}}
	in.clusters[1].Scores = map[string]gate.Score{"fleet/total": {Value: -100}}
	in.clusters[3].Scores = map[string]gate.Score{"fleet/total": {Value: 60, ValidUntil: now.Add(time.Second)}}
	var memory membership.History
	if got, want := membership.Plan(nil, ranked(in, now), nil, &memory, time.Second, now).Clusters, []string{"good", "blind", "expired", "missing"}; !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
}
