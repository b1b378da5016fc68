package engine

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
)

// countLateAdmissions counts the late admissions of all workloads.
func (h *histories) countLateAdmissions() map[lifecycle.LateAdmission]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	counts := map[lifecycle.LateAdmission]int{}
	for _, one := range h.byUID {
		if one.PodsLate != nil {
			counts[*one.PodsLate]++
		}
	}
	return counts
}

// histories of the workloads that hold, or held, quota. It is safe for concurrent use; the
// work queue ensures that one worker at a time handles a workload.
type histories struct {
	mu    sync.Mutex
	uids  map[types.NamespacedName]types.UID
	byUID map[types.UID]lifecycle.History
}

func newHistories() *histories {
	return &histories{uids: map[types.NamespacedName]types.UID{}, byUID: map[types.UID]lifecycle.History{}}
}

// count returns the number of workloads and names that are remembered.
func (h *histories) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(len(h.byUID), len(h.uids))
}

// get returns a workload's history; unknown = the zero history.
func (h *histories) get(uid types.UID) lifecycle.History {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.byUID[uid]
}

func (h *histories) put(uid types.UID, value lifecycle.History) {
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
