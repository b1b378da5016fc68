package gate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

func TestScoresOfStateAgeAndFreshness(t *testing.T) {
	at := func(seconds int) *metav1.Time {
		return &metav1.Time{Time: t0.Add(time.Duration(seconds) * time.Second)}
	}
	object := &clusterv1alpha1.AddOnPlacementScore{ObjectMeta: metav1.ObjectMeta{Name: "fleet", Namespace: "cluster1", ManagedFields: []metav1.ManagedFieldsEntry{
		{Manager: "now", Subresource: "status", Time: at(-12)}, {Manager: "before", Subresource: "status", Time: at(-60)}, {Manager: "labels", Time: at(-1)}, {Manager: "unknown", Subresource: "status"},
	}}}
	object.Status.ValidUntil = at(30)
	object.Status.Scores = []clusterv1alpha1.AddOnPlacementScoreItem{{Name: "power", Value: 10}, {Name: "total", Value: 80}}
	total := Score{Value: 80, Written: t0.Add(-12 * time.Second), ValidUntil: t0.Add(30 * time.Second)}
	power := total
	power.Value = 10
	if diff := cmp.Diff(map[string]Score{"fleet/power": power, "fleet/total": total}, ScoresOf(object)); diff != "" {
		t.Errorf("fresh (-want +got):\n%s", diff)
	}
	object.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionDataFresh, Status: metav1.ConditionFalse, Reason: "Held"},
		{Type: v1alpha1.ScoreConditionPrefix + "power", Status: metav1.ConditionTrue, Reason: "Vetoed"},
		{Type: v1alpha1.ScoreConditionPrefix + "total", Status: metav1.ConditionFalse, Reason: "Held"},
	}
	total.State = "Held" // a veto of power is decided by fresh data
	if diff := cmp.Diff(map[string]Score{"fleet/power": power, "fleet/total": total}, ScoresOf(object)); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
	if s := ScoresOf(&clusterv1alpha1.AddOnPlacementScore{Status: object.Status})["/total"]; !s.Written.IsZero() {
		t.Errorf("without managedFields the time of the write must be unknown: %+v", s)
	}
}
