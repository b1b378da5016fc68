package gate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTheLatestRivalCountsForAWhile(t *testing.T) {
	b := NewBoard()
	b.SetRival("gpu", "just now", t0)
	b.SetRival("gpu", "an hour ago", t0.Add(-time.Hour))
	for _, tc := range []struct {
		after time.Duration
		want  string
	}{{0, "just now"}, {rivalFor, "just now"}, {rivalFor + time.Second, ""}} {
		if got := b.Rival("gpu", t0.Add(tc.after)); got != tc.want {
			t.Errorf("after %s: got %q, want %q", tc.after, got, tc.want)
		}
	}
}

// Whoever waits is counted, also at a gate that does not exist (any longer).
func TestQueuesOfAbsentGates(t *testing.T) {
	b := NewBoard()
	for _, name := range []string{"gpu", "idle"} {
		b.Put(Gate{Name: name})
	}
	waits := Queue{Workloads: 2, Since: t0}
	for _, name := range []string{"gpu", "mistyped", "left"} {
		b.SetWaiting(name, waits)
	}
	b.SetWaiting("left", Queue{})
	b.Delete("gpu")
	if diff := cmp.Diff(map[string]Queue{"gpu": waits, "mistyped": waits, "idle": {}}, b.Queues()); diff != "" {
		t.Errorf("queues (-want +got):\n%s", diff)
	}
}
