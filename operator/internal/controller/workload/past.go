package workload

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"plimsoll.dev/plimsoll/operator/internal/ledger"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// past of one workload: what is remembered of it between reconciliations.
type past struct {
	// reserved is when it got the quota that it holds, as the hub tells, and held since
	// when it did at the latest.
	reserved, held time.Time
	// seen nominated since then.
	seen []string
	// running somewhere; nil = not.
	running *ledger.Entry
	// left are the clusters where a copy may be since quota was lost: the one that Kueue
	// had recorded, or else all that were nominated.
	left     []string
	recorded bool
	lost     time.Time
	// reason of the last decision.
	reason string
	// version that was written last, and when.
	version string
	wrote   time.Time
	// said is when the check's message was written last, and its sort.
	said time.Time
	sort string
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
	return err == nil && older < 0 && now.Sub(p.wrote) < timing.MaxCacheLag
}

// says a message of a sort now, unless its last was one, less than that ago.
func (t *tracks) says(uid types.UID, sort string, every time.Duration, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.past(uid)
	if p.sort == sort && now.Sub(p.said) < every {
		return false
	}
	p.said, p.sort = now, sort
	return true
}
