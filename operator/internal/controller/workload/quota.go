package workload

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"plimsoll.dev/plimsoll/operator/internal/ledger"
)

// see the nominated clusters, and return all that were seen under the same quota.
func (t *tracks) see(uid types.UID, nominated []string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.past(uid)
	for _, c := range nominated {
		if !slices.Contains(p.seen, c) {
			p.seen = append(p.seen, c)
		}
	}
	return slices.Clone(p.seen)
}

// holds records since when a workload holds its quota, and says whether it lost
// another since it was looked at last.
func (t *tracks) holds(uid types.UID, reserved, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.past(uid)
	if p.reserved.Equal(reserved) {
		return false
	}
	lost := !p.reserved.IsZero()
	p.reserved, p.held = reserved, happened(reserved, now)
	return lost
}

// heldFor is how long a workload had held its quota by then.
func (t *tracks) heldFor(uid types.UID, then time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(0, then.Sub(t.past(uid).held))
}

// happened is when what the hub tells in whole seconds, and was seen then, happened at
// the latest.
func happened(told, seen time.Time) time.Time {
	if last := told.Add(time.Second); last.Before(seen) {
		return last
	}
	return seen
}

// meet a workload, and return the uid of another that had its name; empty = none.
func (t *tracks) meet(key types.NamespacedName, uid types.UID) types.UID {
	t.mu.Lock()
	defer t.mu.Unlock()
	former := t.uids[key]
	t.uids[key] = uid
	if former == uid {
		return ""
	}
	return former
}

// leave a workload that is gone, and return its uid.
func (t *tracks) leave(key types.NamespacedName) types.UID {
	t.mu.Lock()
	defer t.mu.Unlock()
	uid := t.uids[key]
	delete(t.uids, key)
	return uid
}

// run records that a workload is on a cluster, and says whether that is news.
func (t *tracks) run(uid types.UID, e ledger.Entry) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.past(uid)
	news := p.running == nil || p.running.Cluster != e.Cluster
	p.running = &e
	return news
}

// stop forgets what a workload did with its quota, and returns where it ran; nil = nowhere.
// there says that it was the worker that ended it.
func (t *tracks) stop(uid types.UID, there bool, now time.Time) *ledger.Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.of[uid]
	if p == nil {
		return nil
	}
	ran := p.running
	switch {
	case ran != nil && there:
		p.left = nil
	case ran != nil:
		p.left, p.recorded, p.lost = []string{ran.Cluster}, true, now
	case len(p.seen) > 0:
		p.left, p.recorded, p.lost = p.seen, false, now
	}
	p.running, p.seen = nil, nil
	return ran
}

// left are the clusters that may hold a copy of the last attempt: that which Kueue had
// recorded, or else those it was nominated to; and when it lost its quota.
func (t *tracks) left(uid types.UID) (clusters []string, recorded bool, lost time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.of[uid]
	if p == nil {
		return nil, false, time.Time{}
	}
	return slices.Clone(p.left), p.recorded, p.lost
}

// drop what is remembered of a workload.
func (t *tracks) drop(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.of, uid)
}
