// Package ledger records in-flight reservations: devices of workloads that were sent to a
// cluster and that the cluster's metrics do not show yet. Without the ledger every decision
// within one scrape interval would see the same free devices and pick the same cluster.
//
// Decisions are optimistic transactions. View returns an immutable copy, the caller decides
// without a lock, and Commit writes the reservation only if the ledger has not changed since.
// If Commit returns false, the caller takes a new View and decides again.
package ledger

import (
	"iter"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// Ledger holds reservations and credits in memory. It is safe for concurrent use. After a
// restart the controller rebuilds the ledger with Debit.
type Ledger struct {
	// Settle is the delay after a remote admission from which samples show the workload's
	// pods. If Kueue on the worker reports PodsReady, the ledger waits
	// timing.AdmissionSettlePeriods times as long, or until PodsReady.
	Settle time.Duration
	// TTL is the age at which the ledger drops an entry that nothing else released.
	TTL time.Duration

	mu sync.Mutex
	// generation increases with every change. Commit compares it with the view's.
	generation uint64
	// entries by workload UID and cluster, and onCluster by cluster and UID. They are replaced, never changed: views share
	// them. followers is the number of entries that rest on the
	// decision of another workload, shadows that of entries of gates in mode Shadow.
	entries, onCluster map[string]map[string]*Entry
	followers, shadows int
	credits            []Credit
	// running workloads by UID, and by cluster. The map by cluster and its lists are replaced, never changed.
	running          map[string]*Running
	runningByCluster map[string][]*Running
	// starts by cluster. The map is replaced, never changed.
	starts map[string]*starts
	// holds by cluster. The slice is replaced, never changed.
	holds []Hold
	// view is the copy of the current generation; nil after a change. last is the copy before it, and changed are
	// the clusters whose entries or credits differ from it: most changes concern one cluster of many.
	view    *View
	last    View
	changed map[string]bool
}

// put adds or replaces an entry.
func (l *Ledger) put(e Entry) {
	if l.entries[e.UID] == nil {
		l.entries[e.UID] = map[string]*Entry{}
	}
	if l.onCluster[e.Cluster] == nil {
		l.onCluster[e.Cluster] = map[string]*Entry{}
	}
	l.count(l.entries[e.UID][e.Cluster], -1)
	l.entries[e.UID][e.Cluster], l.onCluster[e.Cluster][e.UID] = &e, &e
	l.count(&e, 1)
	l.invalidate(e.Cluster)
}

func (l *Ledger) remove(e *Entry) {
	l.count(l.entries[e.UID][e.Cluster], -1)
	delete(l.onCluster[e.Cluster], e.UID)
	delete(l.entries[e.UID], e.Cluster)
	if len(l.entries[e.UID]) == 0 {
		delete(l.entries, e.UID)
	}
	l.invalidate(e.Cluster)
}

func (l *Ledger) count(e *Entry, n int) {
	if e == nil {
		return
	}
	if e.DecidedBy != "" {
		l.followers += n
	}
	if e.Shadow {
		l.shadows += n
	}
}

// all returns the entries. The loop may remove or replace the current one.
func (l *Ledger) all() iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		for _, byCluster := range l.entries {
			for _, e := range byCluster {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// current returns the entry of a workload's current attempt on a cluster; false if there is none.
func (l *Ledger) current(uid, cluster string) (Entry, bool) {
	if e := l.entries[uid][cluster]; e != nil && e.isCurrent() {
		return *e, true
	}
	return Entry{}, false
}

// currentOf returns the entries of a workload's current attempt.
func (l *Ledger) currentOf(uid string) []*Entry {
	return slices.DeleteFunc(slices.Collect(maps.Values(l.entries[uid])), func(e *Entry) bool { return !e.isCurrent() })
}

// New returns an empty ledger. See the fields Settle and TTL.
func New(settle, ttl time.Duration) *Ledger {
	return &Ledger{Settle: settle, TTL: ttl, entries: map[string]map[string]*Entry{}, onCluster: map[string]map[string]*Entry{}, running: map[string]*Running{}, changed: map[string]bool{}}
}

// View returns an immutable copy of the ledger.
func (l *Ledger) View() View {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.view == nil {
		v := View{generation: l.generation, settle: l.Settle, byCluster: unchangedOf(l, l.last.byCluster),
			credits: unchangedOf(l, l.last.credits), running: l.runningByCluster, starts: l.starts, holds: l.holds, hasShadows: l.shadows > 0}
		for cluster := range l.changed {
			if entries := l.onCluster[cluster]; len(entries) > 0 {
				v.byCluster[cluster] = slices.AppendSeq(make([]*Entry, 0, len(entries)), maps.Values(entries))
			}
		}
		for _, c := range l.credits {
			if l.changed[c.Cluster] {
				v.credits[c.Cluster] = append(v.credits[c.Cluster], c)
			}
		}
		l.view, l.last = &v, v
		clear(l.changed)
	}
	return *l.view
}

// unchangedOf returns what the last view has of the clusters that have not changed.
func unchangedOf[T any](l *Ledger, last map[string][]T) map[string][]T {
	kept := make(map[string][]T, len(last))
	for cluster, list := range last {
		if !l.changed[cluster] {
			kept[cluster] = list
		}
	}
	return kept
}

// DevicesByCluster returns the number of reserved devices per cluster, including entries
// that samples already show.
func (l *Ledger) DevicesByCluster() map[string]int64 {
	devices := map[string]int64{}
	for cluster, entries := range l.View().byCluster {
		for _, e := range entries {
			if !e.QuotaOnly && !e.Shadow {
				devices[cluster] += e.Devices()
			}
		}
	}
	return devices
}

// Reserved returns the clusters on which a workload has current reservations, and its pod sets.
func (l *Ledger) Reserved(uid string) ([]string, []shape.PodSet) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var clusters []string
	var podSets []shape.PodSet
	for _, e := range l.currentOf(uid) {
		clusters, podSets = append(clusters, e.Cluster), e.PodSets
	}
	slices.Sort(clusters)
	return clusters, podSets
}

// OldestByCluster returns the time of the oldest reservation per cluster. Reservations of components that
// were not sent there yet do not count: samples can't show them.
func (l *Ledger) OldestByCluster() map[string]time.Time {
	oldest := map[string]time.Time{}
	for cluster, entries := range l.View().byCluster {
		for _, e := range entries {
			if at, ok := oldest[cluster]; !e.QuotaOnly && e.DecidedBy == "" && (!ok || e.DebitedAt.Before(at)) {
				oldest[cluster] = e.DebitedAt
			}
		}
	}
	return oldest
}

// Commit replaces a workload's hold with hold, and its reservations with entries: its own, and those
// of other components of its job that it decides for (DecidedBy). It returns false and changes
// nothing if the ledger has changed since v was taken.
//
// Existing entries of the kept clusters stay: the workload is nominated there already. If entries has
// a cluster, the existing entry there keeps its times and gets the new pods.
// Existing entries of other clusters are dropped, because their nomination was not written.
// If an ended entry exists for the workload on a cluster in entries, the new entry replaces it:
// the new nomination adopts the copy that still exists there.
//
// hold also replaces a hold of another workload for the same gate and devices. nil = none.
func (l *Ledger) Commit(v View, uid string, kept []string, entries []Entry, hold *Hold) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if v.generation != l.generation {
		return false
	}
	l.drop(uid, func(e *Entry) bool {
		isReserved := slices.ContainsFunc(entries, func(n Entry) bool { return n.UID == e.UID && n.Cluster == e.Cluster })
		return !isReserved && !slices.Contains(kept, e.Cluster)
	})
	for _, e := range entries {
		l.resize(e)
		l.debit(e)
	}
	l.setHold(uid, hold)
	return true
}

// resize gives an existing entry the pods of a later decision, which may have seen other quota on the
// cluster. What the cluster has admitted does not change any more.
func (l *Ledger) resize(e Entry) {
	old, isCurrent := l.current(e.UID, e.Cluster)
	if !isCurrent || !old.AdmittedAt.IsZero() || old.DecidedBy != e.DecidedBy || len(e.PodSets) == 0 || reflect.DeepEqual(old.PodSets, e.PodSets) {
		return
	}
	old.PodSets = e.PodSets
	l.put(old)
}

// drop removes the current entries of a workload, and those that rest on its decision, which isDropped selects.
func (l *Ledger) drop(uid string, isDropped func(*Entry) bool) {
	for _, e := range l.currentOf(uid) {
		if isDropped(e) {
			l.remove(e)
		}
	}
	if l.followers == 0 {
		return
	}
	for e := range l.all() {
		if e.isDecidedBy(uid) && e.isCurrent() && isDropped(e) {
			l.remove(e)
		}
	}
}

// Debit adds an entry. If the workload already has an entry on the cluster, that entry
// stays unchanged, unless it rests on the decision of another component or of mode Shadow and e does not.
func (l *Ledger) Debit(e Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.debit(e)
}

func (l *Ledger) debit(e Entry) {
	old, isCurrent := l.current(e.UID, e.Cluster)
	if isOwn := e.DecidedBy == "" && old.DecidedBy != "" || old.Shadow && !e.Shadow; isCurrent && !isOwn || len(e.PodSets) == 0 {
		return
	}
	l.put(e)
}

// invalidate must follow every change. clusters are those whose entries or credits changed.
func (l *Ledger) invalidate(clusters ...string) {
	l.generation++
	l.view = nil
	for _, c := range clusters {
		l.changed[c] = true
	}
}

// MarkAdmitted records that the cluster admitted the workload, and drops the workload's
// entries on other clusters, and those of components that the workload decides for.
// reportsPodsReady states whether Kueue on the worker sets PodsReady. It returns false if
// the admission was recorded before or the workload has no entry there.
func (l *Ledger) MarkAdmitted(uid, cluster string, at time.Time, reportsPodsReady bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, isCurrent := l.current(uid, cluster)
	if !isCurrent || !e.AdmittedAt.IsZero() {
		return false
	}
	e.AdmittedAt, e.ReportsPodsReady = at, reportsPodsReady
	e.DecidedBy = "" // the worker has the workload, whatever becomes of the primary component
	l.put(e)
	l.drop(uid, func(other *Entry) bool { return other.Cluster != cluster })
	return true
}

// MarkPodsReady records since when all pods of an admitted workload are ready. It returns
// false if that was recorded before or the workload has no admitted entry.
func (l *Ledger) MarkPodsReady(uid string, since time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.currentOf(uid) {
		if !e.AdmittedAt.IsZero() && e.PodsReadyAt.IsZero() {
			ready := *e
			ready.PodsReadyAt = since
			l.put(ready)
			return true
		}
	}
	return false
}

// MarkEnded records that a workload lost its quota or was deleted. Its entries stay until
// samples taken a settling time after now show the devices as free, because workers remove
// copies with a delay. Entries that rest on its decision are dropped: these components have no
// copies. It returns false if the workload has no current entries.
func (l *Ledger) MarkEnded(uid string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.release(uid)
	entries := l.currentOf(uid)
	for _, e := range entries {
		ended := *e
		ended.EndedAt = now
		l.put(ended)
	}
	return len(entries) > 0
}

// Release drops the current entries of a workload whose pods have finished. It returns
// false if there were none.
func (l *Ledger) Release(uid string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.running[uid]; r != nil {
		l.start(r, r.Since) // its pods may have been ready too briefly to be seen
	}
	return l.dropCurrent(uid)
}

// HandOver drops the current entries of a workload whose pods belong to another one now. It returns false if there
// were none.
func (l *Ledger) HandOver(uid string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dropCurrent(uid)
}

func (l *Ledger) dropCurrent(uid string) bool {
	l.release(uid)
	entries := l.currentOf(uid)
	for _, e := range l.entries[uid] {
		if e.EndedAt.IsZero() || e.QuotaOnly {
			l.remove(e)
		}
	}
	return len(entries) > 0
}

func (l *Ledger) release(uid string) {
	l.setHold(uid, nil)
	l.removeRunning(uid)
	l.drop(uid, func(e *Entry) bool { return e.isDecidedBy(uid) })
}

// Credit adds the devices of a finished workload. They count in ranking only.
func (l *Ledger) Credit(c Credit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.credits = append(l.credits, c)
	l.invalidate(c.Cluster)
}
