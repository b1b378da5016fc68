package gate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/ledger"
	"plimsoll.dev/plimsoll/operator/internal/shape"
)

func TestExplainNamesEveryRuleThatIsBroken(t *testing.T) {
	minimum := int32(30)
	r := rules()
	r.Policies = append(prefer(&minimum), v1alpha1.GatePolicy{Policy: "health", Score: "total", Use: v1alpha1.UseRequire})
	out := scored(cluster("cluster1", 1, 8, 8, 64), 10)
	out.Conditions = []ConditionResult{says("power", 0), says("cooling", 2), {Name: "network"}}
	in := scored(cluster("cluster2", 2, 16, 8, 64), 80)
	in.Scores["health/total"] = Score{Value: 1}
	l := ledger.New(time.Second, time.Hour)
	promised := ledger.Entry{UID: "b", Workload: "team-a/b", Cluster: "cluster1", PodSets: job("b", 8, 1).PodSets, DebitedAt: t0}
	l.Debit(promised)
	l.Credit(ledger.Credit{Cluster: "cluster2", PodSets: job("c", 4, 1).PodSets, FinishedAt: t0})

	d, got := Explain(job("a", 8, 1), []Candidate{out, in}, Fleet{}, l.View(), r, 1, t0)
	if d.State != Ready || cmp.Diff([]string{"cluster2"}, d.Order) != "" {
		t.Errorf("decision: %+v", d)
	}
	want := []BrokenRule{{RejectScore, "fleet/total"}, {RejectNoScore, "health/total"}, {RejectCondition, "power"}, {RejectConditionFailing, "network"}, {RejectNoRoom, "main"}}
	if diff := cmp.Diff(want, got[0].Broken); diff != "" {
		t.Errorf("broken (-want +got):\n%s", diff)
	}
	if want := "is below the minimum of fleet/total, has no valid score health/total, does not meet condition power, " +
		"has no answer to condition network, has room for 0 such pods, with 8 devices promised"; got[0].Why != want {
		t.Errorf("why: %s", got[0].Why)
	}
	if got[0].Rejection != RejectScore || got[0].Score != Known(10) || got[0].Fit != Known(1) || cmp.Diff(out.Conditions, got[0].Conditions) != "" ||
		cmp.Diff([]ledger.Entry{promised}, got[0].Ledger) != "" {
		t.Errorf("what stands behind it: %+v", got[0])
	}
	if got[1].Why != "can take it" || got[1].Broken != nil || got[1].Credited != 4 || got[1].Net != 20 {
		t.Errorf("the other: %+v", got[1])
	}
}

func TestExplainForgivesWhatDecideForgives(t *testing.T) {
	r := rules()
	r.OnStale, r.Policies = v1alpha1.StaleOpen, []v1alpha1.GatePolicy{{Policy: "fleet", Score: "total", Use: v1alpha1.UseRequire}}
	c := Candidate{Name: "cluster1", Conditions: []ConditionResult{{Name: "power"}}}
	if _, got := Explain(shape.Facts{UID: "a"}, []Candidate{c}, Fleet{}, ledger.View{}, Rules{OnStale: v1alpha1.StaleOpen}, 1, t0); got[0].Why != "can take it, though nobody answers condition power" {
		t.Errorf("forgiven, and explained as %q", got[0].Why)
	}
	if d, got := Explain(job("a", 8, 1), []Candidate{c}, Fleet{}, ledger.View{}, r, 1, t0); d.State != Ready || got[0].Broken != nil || !got[0].WithoutMetrics {
		t.Errorf("nothing is known and onStale is Open: %+v %+v", d, got[0])
	}
}

func TestExplainIsAsPatientAsDecide(t *testing.T) {
	r := rules()
	r.OnStale = v1alpha1.StaleOpen
	_, got := Explain(job("a", 8, 1), []Candidate{{Name: "cluster1"}}, Fleet{Problem: "timeout", FailingSince: t0.Add(-time.Minute)}, ledger.View{}, r, 1, t0)
	if diff := cmp.Diff([]BrokenRule{{Rejection: RejectUnknown}}, got[0].Broken); diff != "" {
		t.Errorf("broken (-want +got):\n%s", diff)
	}
}

func TestScoresTellTheirAge(t *testing.T) {
	at := func(seconds int) *metav1.Time {
		return &metav1.Time{Time: t0.Add(time.Duration(seconds) * time.Second)}
	}
	object := &clusterv1alpha1.AddOnPlacementScore{ObjectMeta: metav1.ObjectMeta{Name: "fleet", Namespace: "cluster1", ManagedFields: []metav1.ManagedFieldsEntry{
		{Manager: "before", Subresource: "status", Time: at(-60)}, {Manager: "now", Subresource: "status", Time: at(-12)}, {Manager: "labels", Time: at(-1)},
	}}}
	object.Status.ValidUntil = at(30)
	object.Status.Scores = []clusterv1alpha1.AddOnPlacementScoreItem{{Name: "total", Value: 80}}
	want := Score{Value: 80, Written: t0.Add(-12 * time.Second), ValidUntil: t0.Add(30 * time.Second)}
	if diff := cmp.Diff(map[string]Score{"fleet/total": want}, ScoresOf(object)); diff != "" {
		t.Errorf("fresh (-want +got):\n%s", diff)
	}
	object.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionDataFresh, Status: metav1.ConditionFalse, Reason: "Held"}}
	want.State = "Held"
	if diff := cmp.Diff(map[string]Score{"fleet/total": want}, ScoresOf(object)); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
	if s := ScoresOf(&clusterv1alpha1.AddOnPlacementScore{Status: object.Status})["/total"]; !s.Written.IsZero() {
		t.Errorf("without managedFields the age is unknown: %+v", s)
	}
}
