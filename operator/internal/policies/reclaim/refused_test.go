package reclaim

import (
	"fmt"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// Refused workloads come after all others, and of these the one that was refused longest ago comes
// first, so that many of them do not keep the others from being reclaimed.
func TestRefusedWorkloadsComeLast(t *testing.T) {
	refused := func(ago time.Duration) func(*Candidate) {
		return func(c *Candidate) { c.RefusedAt = noon.Add(-ago) }
	}
	decisions := Decide(enforce, []*Candidate{idleJob("now", refused(time.Minute)), idleJob("early", refused(3*time.Hour)), idleJob("late", refused(2*time.Hour)), idleJob("never", priority(5))}, nil, noon)
	var got []string
	for _, d := range decisions {
		got = append(got, fmt.Sprintf("%s %s", d.Name, d.State))
	}
	if fmt.Sprint(got) != "[never Selected early Limited late Limited now Limited]" {
		t.Errorf("got %v", got)
	}
	if d := Decide(enforce, []*Candidate{idleJob("now", refused(time.Minute)), idleJob("early", refused(3*time.Hour))}, nil, noon); d[0].State != v1alpha1.IdleSelected || d[0].Name != "early" || d[1].State != v1alpha1.IdleLimited {
		t.Errorf("got %+v", d)
	}
}

func TestAppendRefusedIsBounded(t *testing.T) {
	var refused []v1alpha1.RefusedWrite
	for i := range maxRefused + 5 {
		refused = AppendRefused(refused, &Candidate{UID: fmt.Sprint(i)}, noon)
	}
	refused = AppendRefused(refused, &Candidate{UID: "50"}, noon.Add(time.Minute))
	if len(refused) != maxRefused || refused[0].UID != "5" || refused[maxRefused-1].UID != "50" || refused[maxRefused-2].UID != "104" {
		t.Errorf("%d refused writes, first %+v, last %+v", len(refused), refused[0], refused[len(refused)-1])
	}
}
