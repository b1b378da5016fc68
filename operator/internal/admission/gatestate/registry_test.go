package gatestate

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

func TestConflictReturnsTheLatestEvidenceUntilItExpires(t *testing.T) {
	r := New()
	r.ReportConflict("gpu", "just now", noon)
	r.ReportConflict("gpu", "an hour ago", noon.Add(-time.Hour))
	for _, tc := range []struct {
		name  string
		after time.Duration
		want  string
	}{
		{"at once", 0, "just now"},
		{"at the end of the TTL", timing.ConflictTTL, "just now"},
		{"after the TTL", timing.ConflictTTL + time.Second, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := r.Conflict("gpu", noon.Add(tc.after)); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	if got := r.Conflict("other", noon); got != "" {
		t.Errorf("another gate has the evidence %q", got)
	}
}

// Workloads count even if their gate does not exist.
func TestWaitSummariesIncludeGatesThatDoNotExist(t *testing.T) {
	r := New()
	for _, name := range []string{"deleted", "idle"} {
		r.Put(Gate{Name: name})
	}
	summary := WaitSummary{Workloads: 2, Since: noon}
	for _, name := range []string{"deleted", "never-existed", "empty"} {
		r.SetWaiting(name, summary)
	}
	r.SetWaiting("empty", WaitSummary{})
	r.Delete("deleted")
	want := map[string]WaitSummary{"deleted": summary, "never-existed": summary, "idle": {}}
	if diff := cmp.Diff(want, r.WaitSummaries()); diff != "" {
		t.Errorf("summaries (-want +got):\n%s", diff)
	}
	if got := r.TotalWaiting(); got != 4 {
		t.Errorf("%d waiting workloads in total, want 4", got)
	}
}

func TestPutNotifiesOnlyOfChanges(t *testing.T) {
	gateWith := func(generation int64, score int32, expires time.Time) Gate {
		return Gate{
			Name: "gpu", Generation: generation, Spec: v1alpha1.PlacementGateSpec{PeriodSeconds: 15},
			Clusters: []Cluster{{Name: "cluster1", Scores: map[string]gate.Score{"power": {Value: score, ValidUntil: expires}}}},
		}
	}
	r := New()
	r.Put(gateWith(1, 10, noon))
	var changed []string
	r.OnChange(func(name string) { changed = append(changed, name) })
	for _, tc := range []struct {
		name   string
		change func()
		want   []string
	}{
		{"the same gate", func() { r.Put(gateWith(1, 10, noon)) }, nil},
		{"a renewed score", func() { r.Put(gateWith(1, 10, noon.Add(time.Minute))) }, nil},
		{"another score", func() { r.Put(gateWith(1, 20, noon.Add(time.Minute))) }, []string{"gpu"}},
		{"another generation", func() { r.Put(gateWith(2, 20, noon.Add(time.Minute))) }, []string{"gpu"}},
		{"a new gate", func() { r.Put(Gate{Name: "tpu"}) }, []string{"tpu"}},
		{"a deleted gate", func() { r.Delete("tpu") }, []string{"tpu"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			changed = nil
			tc.change()
			if diff := cmp.Diff(tc.want, changed); diff != "" {
				t.Errorf("notifications (-want +got):\n%s", diff)
			}
		})
	}
}

func TestGatesOfClusters(t *testing.T) {
	r := New()
	r.Put(Gate{Name: "gpu", Clusters: []Cluster{{Name: "cluster1"}, {Name: "cluster2"}}})
	r.Put(Gate{Name: "tpu", Clusters: []Cluster{{Name: "cluster2"}}})
	r.Put(Gate{Name: "idle"})
	for cluster, want := range map[string]string{"cluster1": "gpu", "cluster2": "gpu tpu", "cluster3": ""} {
		if got := strings.Join(r.GatesOf(cluster), " "); got != want {
			t.Errorf("gates of %s: %q, want %q", cluster, got, want)
		}
	}
	if got := r.GatesOf(); got != nil {
		t.Errorf("no cluster concerns %v", got)
	}
}
