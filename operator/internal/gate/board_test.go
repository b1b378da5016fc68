package gate

import (
	"testing"
	"time"
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
