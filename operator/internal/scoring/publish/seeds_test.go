package publish

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/scoring/score"
)

// written returns the object as an API server stores it when the desired status is applied.
func written(d *Desired, at time.Time) *clusterv1alpha1.AddOnPlacementScore {
	until, stored := metav1.NewTime(d.ValidUntil), metav1.NewTime(at)
	object := &clusterv1alpha1.AddOnPlacementScore{ObjectMeta: metav1.ObjectMeta{Namespace: d.Cluster, ManagedFields: []metav1.ManagedFieldsEntry{
		{Manager: "another", Operation: metav1.ManagedFieldsOperationApply, Subresource: "status", Time: &metav1.Time{Time: at.Add(time.Hour)}},
		{Manager: string(FieldOwner), Operation: metav1.ManagedFieldsOperationUpdate, Time: &metav1.Time{Time: at.Add(-time.Hour)}},
		{Manager: string(FieldOwner), Operation: metav1.ManagedFieldsOperationApply, Subresource: "status", Time: &stored},
	}}}
	object.Status = clusterv1alpha1.AddOnPlacementScoreStatus{Scores: d.Scores, ValidUntil: &until}
	for _, c := range d.Conditions {
		c.LastTransitionTime = metav1.NewTime(transitionTime(nil, &c, at))
		object.Status.Conditions = append(object.Status.Conditions, c)
	}
	return object
}

// TestNewSeedRecoversEachScore: a is kept or vetoed, and b has its own state.
func TestNewSeedRecoversEachScore(t *testing.T) {
	good, stale, absent := score.Input{Value: 40}, score.Input{Outcome: score.Stale}, score.Input{Outcome: score.Absent}
	later := now.Add(200 * time.Second)
	for _, tc := range []struct {
		name string
		in   [][2]score.Input
		want map[string]score.SeedScore
	}{
		{"fresh", [][2]score.Input{{good, good}}, map[string]score.SeedScore{
			"a": {Value: 40, SampleTime: now}, "b": {Value: 40, SampleTime: now}, "total": {Value: 40, SampleTime: now},
		}},
		{"one kept", [][2]score.Input{{good, good}, {stale, good}}, map[string]score.SeedScore{
			"a": {Value: 40, State: score.Kept, SampleTime: now, MissingSince: now}, "b": {Value: 40, SampleTime: later},
			"total": {Value: 40, State: score.Kept, SampleTime: later, MissingSince: later},
		}},
		{"stale", [][2]score.Input{{stale, good}}, map[string]score.SeedScore{
			"a": {Value: -100, State: score.Worst, SampleTime: now, MissingSince: now}, "b": {Value: 40, SampleTime: now},
			"total": {Value: -100, State: score.Worst, SampleTime: now, MissingSince: now},
		}},
		{"one never seen", [][2]score.Input{{absent, good}}, map[string]score.SeedScore{
			"a": {Value: -100, State: score.Worst, SampleTime: now, MissingSince: now}, "b": {Value: 40, SampleTime: now},
			"total": {Value: -100, State: score.Worst, SampleTime: now, MissingSince: now},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := evaluate(t, tc.in...)
			object := written(&Desire(r, true, valid)[0], r.Time.Time())
			at := r.Time.Time()
			if d := cmp.Diff(score.Seed{Cluster: "c1", Stale: tc.name == "stale", Scores: tc.want, Written: at, SeriesWritten: at.Add(-time.Hour)}, newSeed(object)); d != "" {
				t.Error(d)
			}
			// A restart changes nothing that is published.
			if reason := diff(object, &Desire(r, true, valid)[0], r.Time.Time(), valid); reason != "" {
				t.Errorf("the object is written again: %s", reason)
			}
		})
	}
}

// TestNewSeedRecoversOmittedScores: a is omitted. Whether its query has ever matched a cluster
// decides what becomes of the total after a restart.
func TestNewSeedRecoversOmittedScores(t *testing.T) {
	good, absent, failed, unmatched := score.Input{Value: 40}, score.Input{Outcome: score.Absent}, score.Input{Outcome: score.Failed}, score.Input{Outcome: score.Unmatched}
	for _, tc := range []struct {
		name string
		in   []score.Input // of a, 10 minutes apart
		want bool          // Unmatched
	}{
		{"its series are gone", []score.Input{good, absent}, false},
		{"its series are gone, and the source fails", []score.Input{good, absent, failed}, false},
		{"its query never matched a cluster", []score.Input{unmatched}, true},
		{"its query never matched a cluster, and the source fails", []score.Input{unmatched, failed}, true},
		{"its query never had a response", []score.Input{failed}, true},
		{"its query changed and matches no cluster", []score.Input{good, unmatched}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			policy, err := score.Compile(&v1alpha1.ScoringPolicySpec{Scores: []v1alpha1.ScoreSpec{
				{Name: "a", Normalize: v1alpha1.Normalize{Type: v1alpha1.NormalizeIdentity}, Missing: v1alpha1.Missing{Then: v1alpha1.MissingOmit}},
			}})
			if err != nil {
				t.Fatal(err)
			}
			var r *score.Result
			for i, in := range tc.in {
				r = score.Evaluate(policy, score.Samples{Clusters: []string{"c1"}, Scores: [][]score.Input{{in}}}, r, now.Add(time.Duration(i)*10*time.Minute))
			}
			got, ok := newSeed(written(&Desire(r, false, valid)[0], r.Time.Time())).Scores["a"]
			if !ok || got.State != score.Omitted || got.Unmatched != tc.want {
				t.Errorf("the seed is %+v (exists: %t), want Unmatched %t", got, ok, tc.want)
			}
		})
	}
}
