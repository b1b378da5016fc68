package workload

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"plimsoll.dev/plimsoll/operator/internal/gate"
)

// past of one workload: what is remembered of it between reconciliations.
type past struct {
	// reserved is when it got the quota that it holds.
	reserved time.Time
	// seen nominated since then.
	seen []string
	// running somewhere; nil = not.
	running *gate.Entry
	// reason of the last decision.
	reason string
	// late is the last attempt that was not admitted in time.
	late int
}

// tracks are the workloads that hold, or held, quota.
type tracks struct {
	mu   sync.Mutex
	uids map[types.NamespacedName]types.UID
	of   map[types.UID]*past
}

func newTracks() *tracks {
	return &tracks{uids: map[types.NamespacedName]types.UID{}, of: map[types.UID]*past{}}
}

func (t *tracks) past(uid types.UID) *past {
	p := t.of[uid]
	if p == nil {
		p = &past{}
		t.of[uid] = p
	}
	return p
}

// late records that an attempt was not admitted in time, and says whether that is news.
func (t *tracks) late(uid types.UID, attempt int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.past(uid)
	if p.late >= attempt {
		return false
	}
	p.late = attempt
	return true
}

func (t *tracks) reason(uid types.UID) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.past(uid).reason
}

func (t *tracks) setReason(uid types.UID, reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.past(uid).reason = reason
}

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
func (t *tracks) holds(key types.NamespacedName, uid types.UID, reserved time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.uids[key] = uid
	p := t.past(uid)
	lost := !p.reserved.IsZero() && !p.reserved.Equal(reserved)
	p.reserved = reserved
	return lost
}

func (t *tracks) uid(key types.NamespacedName) types.UID {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.uids[key]
}

// run records that a workload is on a cluster, and says whether that is news.
func (t *tracks) run(uid types.UID, e gate.Entry) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.past(uid)
	news := p.running == nil || p.running.Cluster != e.Cluster
	p.running = &e
	return news
}

// stop forgets what a workload did with its quota, and returns where it ran; nil = nowhere.
func (t *tracks) stop(uid types.UID) *gate.Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.of[uid]
	if p == nil {
		return nil
	}
	ran := p.running
	p.running, p.seen = nil, nil
	return ran
}

func (t *tracks) forget(key types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.of, t.uids[key])
	delete(t.uids, key)
}
