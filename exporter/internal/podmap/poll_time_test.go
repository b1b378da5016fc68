package podmap

import (
	"testing"
	"time"
)

// What happens while the kubelet responds may be missing in the map, so the map is of before.
func TestPollTimeIsBeforeList(t *testing.T) {
	k, p, socket := setup(t)
	defer k.start(t, socket).Stop()
	start := time.Unix(1000, 0)
	now := start
	p.now = func() time.Time { return now }
	k.onList = func() { now = now.Add(time.Second) }
	if m := poll(t, p); !m.At.Equal(start) {
		t.Errorf("the map is of %s, %s after the query started", m.At, m.At.Sub(start))
	}
}
