package registry

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/operator/internal/timing"
)

func TestTheLatestRivalCountsForAWhile(t *testing.T) {
	b := New()
	b.ReportConflict("gpu", "just now", noon)
	b.ReportConflict("gpu", "an hour ago", noon.Add(-time.Hour))
	for _, tc := range []struct {
		after time.Duration
		want  string
	}{{0, "just now"}, {timing.ConflictTTL, "just now"}, {timing.ConflictTTL + time.Second, ""}} {
		if got := b.Conflict("gpu", noon.Add(tc.after)); got != tc.want {
			t.Errorf("after %s: got %q, want %q", tc.after, got, tc.want)
		}
	}
}

// Whoever waits is counted, also at a gate that does not exist (any longer).
func TestQueuesOfAbsentGates(t *testing.T) {
	b := New()
	for _, name := range []string{"gpu", "idle"} {
		b.Put(Gate{Name: name})
	}
	waits := WaitSummary{Workloads: 2, Since: noon}
	for _, name := range []string{"gpu", "mistyped", "left"} {
		b.SetWaiting(name, waits)
	}
	b.SetWaiting("left", WaitSummary{})
	b.Delete("gpu")
	if diff := cmp.Diff(map[string]WaitSummary{"gpu": waits, "mistyped": waits, "idle": {}}, b.WaitSummaries()); diff != "" {
		t.Errorf("queues (-want +got):\n%s", diff)
	}
}
