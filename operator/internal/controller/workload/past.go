package workload

import (
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"plimsoll.dev/plimsoll/operator/internal/gate"
)

// lagAtMost is how long what is read may lack what was written. After that somebody
// else took it back.
const lagAtMost = 5 * time.Second

// past of one workload: what is remembered of it between reconciliations.
type past struct {
	// reserved is when it got the quota that it holds.
	reserved time.Time
	// seen nominated since then.
	seen []string
	// running somewhere; nil = not.
	running *gate.Entry
	// left are the clusters that were nominated when quota was lost, before Kueue had
	// recorded that one had admitted the workload.
	left []string
	lost time.Time
	// reason of the last decision.
	reason string
	// version that was written last, and when.
	version string
	wrote   time.Time
	// said is when the check's message was written last.
	said time.Time
	// late is the last attempt that was not admitted in time.
	late int
}

// tracks are the workloads there are, and what is remembered of those that hold, or
// held, quota.
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

// writes a version of a workload.
func (t *tracks) writes(uid types.UID, version string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.past(uid)
	p.version, p.wrote = version, now
}

// behind says whether what is seen of a workload lacks what was written just now. To
// decide on that would take back what the ledger holds for it.
func (t *tracks) behind(seen metav1.Object, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.of[seen.GetUID()]
	if p == nil {
		return false
	}
	older, err := resourceversion.CompareResourceVersion(seen.GetResourceVersion(), p.version)
	return err == nil && older < 0 && now.Sub(p.wrote) < lagAtMost
}

// says a message for a reason now, unless it did so less than that ago.
func (t *tracks) says(uid types.UID, reason string, every time.Duration, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.past(uid)
	if p.reason == reason && now.Sub(p.said) < every {
		return false
	}
	p.said = now
	return true
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
func (t *tracks) holds(uid types.UID, reserved time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.past(uid)
	lost := !p.reserved.IsZero() && !p.reserved.Equal(reserved)
	p.reserved = reserved
	return lost
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
func (t *tracks) run(uid types.UID, e gate.Entry) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.past(uid)
	news := p.running == nil || p.running.Cluster != e.Cluster
	p.running = &e
	return news
}

// stop forgets what a workload did with its quota, and returns where it ran; nil = nowhere.
func (t *tracks) stop(uid types.UID, now time.Time) *gate.Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.of[uid]
	if p == nil {
		return nil
	}
	ran := p.running
	if ran != nil || len(p.seen) > 0 {
		p.left, p.lost = nil, now
	}
	if ran == nil && len(p.seen) > 0 {
		p.left = p.seen
	}
	p.running, p.seen = nil, nil
	return ran
}

// copyStays is how long a workload may be without quota before Kueue has surely
// looked at it and removed its copies.
const copyStays = 10 * time.Second

// left are the clusters where a copy of the last attempt may be, unknown to the hub,
// because the quota was reserved anew at once. One that runs is adopted if it is
// nominated again; otherwise Kueue can neither record nor remove it.
func (t *tracks) left(uid types.UID, reserved time.Time) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.of[uid]
	if p == nil || reserved.Sub(p.lost) > copyStays {
		return nil
	}
	return slices.Clone(p.left)
}

// drop what is remembered of a workload.
func (t *tracks) drop(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.of, uid)
}
