package workload

import (
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// history is what the controller remembers of one workload between reconciliations. It is a
// value: account and apply replace it as a whole. A restart loses it; rebuild restores what
// the hub shows.
type history struct {
	// reservedAt is the transition time of QuotaReserved; zero = no quota was seen.
	reservedAt time.Time
	// evictions is the number of the workload's evictions before this quota.
	evictions int
	// quotaSeenAt is when the operator saw the quota, or a second after reservedAt if that is
	// earlier.
	quotaSeenAt time.Time
	// nominatedAt is when the operator nominated the clusters of this quota; zero = it did not, or
	// added clusters later. Unlike the record, no user may write it.
	nominatedAt time.Time
	// admittedPods are the pods that each cluster admits under this quota, of a workload of which
	// Kueue may admit fewer pods. A cluster is missing if its number is not known.
	admittedPods map[string]int64
	// nominatedSeen are the clusters that were seen nominated under this quota.
	nominatedSeen []string
	// running is where the workload was admitted; nil = nowhere.
	running *ledger.Entry
	// copies that the last attempt may have left behind.
	copies possibleCopies
	// lastReason of a decision that was written.
	lastReason string
	// lastWrite is the resourceVersion of the controller's last write. mayBeStored: the write failed, and the
	// API server may have stored it all the same.
	lastWrite struct {
		version     string
		at          time.Time
		mayBeStored bool
	}
	// lastMessage is the kind of the check's last message.
	lastMessage struct {
		kind string
		at   time.Time
	}
	// podsLate is the present admission if its pods were not ready in time; nil = they were.
	podsLate *lateAdmission
	// lateAttempt is the last attempt that no cluster admitted in time.
	lateAttempt int
}

// possibleCopies are the clusters that may hold a copy since the quota was lost.
type possibleCopies struct {
	clusters []string
	// recorded: Kueue had recorded the cluster, and removes the copy itself.
	recorded bool
	lostAt   time.Time
}

// isBehindOwnWrite reports whether an object is older than the controller's last write. A
// decision on it would take back what the ledger holds for the workload. After MaxCacheLag
// another client has overwritten the write.
func (h history) isBehindOwnWrite(seen metav1.Object, now time.Time) bool {
	order, err := resourceversion.CompareResourceVersion(seen.GetResourceVersion(), h.lastWrite.version)
	return err == nil && order < 0 && now.Sub(h.lastWrite.at) < timing.MaxCacheLag
}

// mayWriteMessage reports whether a message of a kind may be written now: at once if the last
// one was of another kind, else after the interval.
func (h history) mayWriteMessage(kind string, interval time.Duration, now time.Time) bool {
	return h.lastMessage.kind != kind || now.Sub(h.lastMessage.at) >= interval
}

// withQuota begins a new reservation of quota.
func (h history) withQuota(wl *kueue.Workload, reservedAt, now time.Time) history {
	h.reservedAt, h.quotaSeenAt, h.evictions = reservedAt, latestPossible(reservedAt, now), kueuestate.CountEvictions(wl)
	h.nominatedAt, h.admittedPods = time.Time{}, nil
	return h
}

// nominated records a nomination by the operator. isFirst: no cluster was nominated before.
func (h history) nominated(isFirst bool, now time.Time) history {
	h.nominatedAt = time.Time{}
	if isFirst {
		h.nominatedAt = now
	}
	return h
}

// withNominations adds clusters that are nominated now.
func (h history) withNominations(nominated []string) history {
	h.nominatedSeen = slices.Clone(h.nominatedSeen)
	for _, c := range nominated {
		if !slices.Contains(h.nominatedSeen, c) {
			h.nominatedSeen = append(h.nominatedSeen, c)
		}
	}
	return h
}

// withoutQuota ends an attempt. endedByWorker: no copy is left, or none that the next attempt
// waits for.
func (h history) withoutQuota(endedByWorker bool, now time.Time) history {
	switch {
	case h.running != nil && endedByWorker:
		h.copies.clusters = nil
	case h.running != nil:
		h.copies = possibleCopies{clusters: []string{h.running.Cluster}, recorded: true, lostAt: now}
	case len(h.nominatedSeen) > 0:
		h.copies = possibleCopies{clusters: h.nominatedSeen, lostAt: now}
	}
	h.running, h.nominatedSeen, h.podsLate = nil, nil, nil
	return h
}

// latestPossible is the latest time of an event with the API's resolution of one second that
// was seen at a given time.
func latestPossible(recorded, seen time.Time) time.Time {
	if last := recorded.Add(time.Second); last.Before(seen) {
		return last
	}
	return seen
}

// histories of the workloads that hold, or held, quota. It is safe for concurrent use; the
// work queue ensures that one worker at a time handles a workload.
type histories struct {
	mu    sync.Mutex
	uids  map[types.NamespacedName]types.UID
	byUID map[types.UID]history
}

func newHistories() *histories {
	return &histories{uids: map[types.NamespacedName]types.UID{}, byUID: map[types.UID]history{}}
}

// count returns the number of workloads and names that are remembered.
func (h *histories) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(len(h.byUID), len(h.uids))
}

// get returns a workload's history; unknown = the zero history.
func (h *histories) get(uid types.UID) history {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.byUID[uid]
}

func (h *histories) put(uid types.UID, value history) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.byUID[uid] = value
}

// rename records the UID behind a name, and returns the UID of a former workload of that
// name; empty = none.
func (h *histories) rename(key types.NamespacedName, uid types.UID) types.UID {
	h.mu.Lock()
	defer h.mu.Unlock()
	former := h.uids[key]
	h.uids[key] = uid
	if former == uid {
		return ""
	}
	return former
}

// remove forgets the name of a deleted workload and returns its UID; empty = unknown.
func (h *histories) remove(key types.NamespacedName) types.UID {
	h.mu.Lock()
	defer h.mu.Unlock()
	uid := h.uids[key]
	delete(h.uids, key)
	return uid
}

// drop forgets a workload.
func (h *histories) drop(uid types.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.byUID, uid)
}
