package placementgate

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/controller/condition"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

func TestDecideConditions(t *testing.T) {
	const foreignConfig = "MultiKueueConfig shared belongs to PlacementGate other, so gate gpu neither changes it nor admits workloads; " +
		"set spec.multiKueue.configName to another name"
	for _, tc := range []struct {
		name      string
		change    func(*input)
		condition string
		status    metav1.ConditionStatus
		reason    string
		message   string
	}{
		{"no fault", func(*input) {}, v1alpha1.ConditionReady, "True", "Deciding", "decides over 2 clusters"},
		{"Placement without decisions", func(in *input) { in.clusters = nil }, v1alpha1.ConditionReady, "False", "NoDecisions",
			"Placement plimsoll-system/gpu has decided no cluster"},
		{"Placement without decisions has no candidates", func(in *input) { in.clusters = nil }, v1alpha1.ConditionMultipleCandidates, "False", "NoDecisions",
			"Placement plimsoll-system/gpu has decided no cluster"},
		{"Placement with decisions", func(*input) {}, v1alpha1.ConditionPlacementFound, "True", "Decided",
			"Placement plimsoll-system/gpu has decided 2 clusters"},
		{"missing Placement", func(in *input) { in.placementFound = false }, v1alpha1.ConditionPlacementFound, "False", "PlacementNotFound",
			"Placement plimsoll-system/gpu does not exist"},
		{"gate of a missing Placement", func(in *input) { in.placementFound = false }, v1alpha1.ConditionReady, "False", "PlacementNotFound",
			"Placement plimsoll-system/gpu does not exist"},
		{"missing source", func(in *input) { in.sourceFound = false }, v1alpha1.ConditionReady, "False", "SourceNotFound", "MetricsSource thanos does not exist"},
		{"invalid query", func(in *input) { in.invalidQueries = "fit: 1:3: oh" }, v1alpha1.ConditionQueriesValid, "False", "InvalidQuery", "fit: 1:3: oh"},
		{"gate with an invalid query", func(in *input) { in.invalidQueries = "fit: 1:3: oh" }, v1alpha1.ConditionReady, "False", "InvalidQuery", "fit: 1:3: oh"},
		{"configuration of another gate", func(in *input) { in.config = newConfig("shared", "other") },
			v1alpha1.ConditionReady, "False", "NotOurs", foreignConfig},
		{"queries succeed", func(*input) {}, v1alpha1.ConditionQueriesSucceeding, "True", "Succeeding", "every recent query returned a complete result"},
		{"queries fail", func(in *input) { in.faults.Failing = "failing: fit: timeout" },
			v1alpha1.ConditionQueriesSucceeding, "False", "QueriesFailing", "failing: fit: timeout"},
		{"requirements are met", func(*input) {}, v1alpha1.ConditionRequirementsMeetable, "True", "Meetable", "each requirement was met by a cluster when it was last tested"},
		{"a requirement excludes all", func(in *input) { in.faults.Excluding = "requirement x is 0 for each cluster" },
			v1alpha1.ConditionRequirementsMeetable, "False", "NoneEligible", "requirement x is 0 for each cluster"},
		{"a gate whose requirement excludes all", func(in *input) { in.faults.Excluding = "requirement x is 0 for each cluster" },
			v1alpha1.ConditionReady, "True", "NoneEligible", "decides over 2 clusters, of which none is eligible: requirement x is 0 for each cluster"},
		{"several clusters", func(*input) {}, v1alpha1.ConditionMultipleCandidates, "True", "SeveralClusters",
			"Placement plimsoll-system/gpu has decided several clusters"},
		{"single cluster", func(in *input) { in.clusters = in.clusters[:1] }, v1alpha1.ConditionMultipleCandidates, "False", "OneCluster",
			"Placement plimsoll-system/gpu has decided a single cluster, so the gate has no choice; leave the Placement's numberOfClusters unset"},
		{"missing score", func(in *input) {
			in.gate.Spec.Scores = []v1alpha1.GateScore{{ResourceName: "fleet", ScoreName: "totla", Use: v1alpha1.UsePrefer}}
		}, v1alpha1.ConditionScoresFound, "False", "NoSuchScore", "no decided cluster has an AddOnPlacementScore with fleet/totla"},
		{"configuration", func(*input) {}, v1alpha1.ConditionConfigured, "True", "Written", "written"},
		{"only dispatcher", func(*input) {}, v1alpha1.ConditionDispatcherMatches, "True", "OnlyDispatcher", "no other component nominates clusters"},
		{"built-in dispatcher", func(in *input) { in.nominate = false }, v1alpha1.ConditionDispatcherMatches, "True", "DispatchOff",
			"the operator runs with --multikueue-dispatch=off and leaves nominations to Kueue's built-in dispatcher"},
		{"no dispatcher", func(in *input) { in.nominate, in.conflict = false, "team-a/job was not nominated" },
			v1alpha1.ConditionDispatcherMatches, "False", "NoDispatcher",
			"team-a/job was not nominated; run the operator with --multikueue-dispatch=nominate, or set multiKueue.dispatcherName to one of Kueue's built-in dispatchers"},
		{"another dispatcher", func(in *input) { in.conflict = "team-a/job was nominated to cluster3 by another dispatcher" },
			v1alpha1.ConditionDispatcherMatches, "False", "AnotherDispatcher",
			"team-a/job was nominated to cluster3 by another dispatcher; set multiKueue.dispatcherName to plimsoll.dev/dispatcher in Kueue's configuration"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := newInput("cluster1", "cluster2")
			tc.change(in)
			var got *condition.Decision
			for _, d := range decideConditions(in, condition.True(v1alpha1.ReasonWritten, "written")) {
				if d.conditionType == tc.condition {
					got = &d.Decision
				}
			}
			if got == nil || got.Status != tc.status || got.Reason != tc.reason || got.Message != tc.message {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// A doubt of a cluster is a condition of the gates that use the cluster, with an event at each end.
func TestDoubtIsReported(t *testing.T) {
	clock := now
	r, hub := newReconciler(t, &clock, interceptor.Funcs{}, healthyHub("c1", "c2")...)
	recorder := events.NewFakeRecorder(100)
	r.recorder = recorder
	check := func(want metav1.ConditionStatus, event string) {
		t.Helper()
		if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "gpu"}}); err != nil {
			t.Fatal(err)
		}
		g := newGate()
		if err := hub.Get(t.Context(), client.ObjectKeyFromObject(g), g); err != nil {
			t.Fatal(err)
		}
		if c := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionClustersStart); c.Status != want {
			t.Errorf("ClustersStart is %s %q, want %s", c.Status, c.Message, want)
		}
		got := ""
		for len(recorder.Events) > 0 {
			if e := <-recorder.Events; strings.Contains(e, v1alpha1.ReasonClusterDoubted) || strings.Contains(e, v1alpha1.ReasonStarting) {
				got = e
			}
		}
		if !strings.HasPrefix(got, event) || event == "" && got != "" {
			t.Errorf("event %q, want %q", got, event)
		}
	}
	hangs := func(uid, cluster string) {
		r.opts.Ledger.PutRunning(ledger.Running{UID: uid, Namespace: "team-a", Cluster: cluster, Since: now.Add(-timing.HangsAfter), ReportsPodsReady: true})
	}
	check(metav1.ConditionTrue, "")
	hangs("x", "elsewhere")
	hangs("y", "elsewhere")
	check(metav1.ConditionTrue, "")
	hangs("a", "c2")
	hangs("b", "c2")
	check(metav1.ConditionFalse, "Warning ClusterDoubted clusters that did not start the last workloads of at least one namespace: c2;")
	check(metav1.ConditionFalse, "")
	r.opts.Ledger.PutRunning(ledger.Running{UID: "a", Namespace: "team-a", Cluster: "c2", Since: now.Add(-timing.HangsAfter), ReportsPodsReady: true, StartedAt: now})
	check(metav1.ConditionTrue, "Normal Starting no cluster is doubted")
}
