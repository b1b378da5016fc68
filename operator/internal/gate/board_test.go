package gate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What one workload shows stands for the others, for its words are in a status that
// is written whenever they change; it counts for as long as somebody shows the like.
func TestOneRivalStandsForAll(t *testing.T) {
	b := NewBoard()
	b.SetRival("gpu", "a's", t0)
	b.SetRival("gpu", "an hour old", t0.Add(-time.Hour))
	b.SetRival("gpu", "b's", t0.Add(9*time.Second))
	for _, tc := range []struct {
		after time.Duration
		want  string
	}{{9 * time.Second, "a's"}, {rivalFor + 9*time.Second, "a's"}, {rivalFor + 10*time.Second, ""}} {
		if got := b.Rival("gpu", t0.Add(tc.after)); got != tc.want {
			t.Errorf("after %s: got %q, want %q", tc.after, got, tc.want)
		}
	}
	b.SetRival("gpu", "c's", t0.Add(rivalNews))
	if got := b.Rival("gpu", t0.Add(rivalNews)); got != "c's" {
		t.Errorf("after %s it is said anew: got %q", rivalNews, got)
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
