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
	// current holds the reservations of each workload's current attempt.
	current entrySet
	// ended holds reservations of attempts that ended before samples showed them. The
	// workload's next attempt does not replace these.
	ended entrySet
	// shown holds entries that left current because samples show their devices, until samples show
	// their quota as well. They count against the quota of their ClusterQueue only.
	shown   entrySet
	credits []Credit
	// running workloads by UID, and by cluster; the latter is nil after a change.
	running          map[string]Running
	runningByCluster map[string][]Running
	// holds by cluster. The slice is replaced, never changed.
	holds []Hold
	// view is the copy of the current generation; nil after a change.
	view *View
}

// entrySet holds entries by workload UID and cluster.
type entrySet map[string]map[string]Entry

func (s entrySet) put(e Entry) {
	if s[e.UID] == nil {
		s[e.UID] = map[string]Entry{}
	}
	s[e.UID][e.Cluster] = e
}

func (s entrySet) remove(uid, cluster string) {
	delete(s[uid], cluster)
	if len(s[uid]) == 0 {
		delete(s, uid)
	}
}

// all returns the entries. The loop may remove the current one.
func (s entrySet) all() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for _, byCluster := range s {
			for _, e := range byCluster {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// addTo adds the entries by cluster.
func (s entrySet) addTo(entries map[string][]Entry) {
	for _, byCluster := range s {
		for cluster, e := range byCluster {
			entries[cluster] = append(entries[cluster], e)
		}
	}
}

// New returns an empty ledger. See the fields Settle and TTL.
func New(settle, ttl time.Duration) *Ledger {
	return &Ledger{Settle: settle, TTL: ttl, current: entrySet{}, ended: entrySet{}, shown: entrySet{}, running: map[string]Running{}}
}

// View returns an immutable copy of the ledger.
func (l *Ledger) View() View {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.view == nil {
		v := View{generation: l.generation, settle: l.Settle, byCluster: map[string][]Entry{}, shown: map[string][]Entry{},
			credits: map[string][]Credit{}, running: l.groupRunning(), holds: l.holds}
		l.current.addTo(v.byCluster)
		l.ended.addTo(v.byCluster)
		l.shown.addTo(v.shown)
		for _, c := range l.credits {
			v.credits[c.Cluster] = append(v.credits[c.Cluster], c)
		}
		l.view = &v
	}
	return *l.view
}

// DevicesByCluster returns the number of reserved devices per cluster, including entries
// that samples already show.
func (l *Ledger) DevicesByCluster() map[string]int64 {
	devices := map[string]int64{}
	for cluster, entries := range l.View().byCluster {
		for _, e := range entries {
			devices[cluster] += e.Devices()
		}
	}
	return devices
}

// Reserved returns the clusters on which a workload has current reservations, and its pod sets.
func (l *Ledger) Reserved(uid string) ([]string, []shape.PodSet) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var podSets []shape.PodSet
	for _, e := range l.current[uid] {
		podSets = e.PodSets
	}
	return slices.Sorted(maps.Keys(l.current[uid])), podSets
}

// OldestByCluster returns the time of the oldest reservation per cluster. Reservations of components that
// were not sent there yet do not count: samples can't show them.
func (l *Ledger) OldestByCluster() map[string]time.Time {
	oldest := map[string]time.Time{}
	for cluster, entries := range l.View().byCluster {
		for _, e := range entries {
			if at, ok := oldest[cluster]; e.DecidedBy == "" && (!ok || e.DebitedAt.Before(at)) {
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
	l.drop(func(e Entry) bool {
		isReserved := slices.ContainsFunc(entries, func(n Entry) bool { return n.UID == e.UID && n.Cluster == e.Cluster })
		return (e.UID == uid || e.isDecidedBy(uid)) && !isReserved && !slices.Contains(kept, e.Cluster)
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
	old, exists := l.current[e.UID][e.Cluster]
	if !exists || !old.AdmittedAt.IsZero() || old.DecidedBy != e.DecidedBy || len(e.PodSets) == 0 || reflect.DeepEqual(old.PodSets, e.PodSets) {
		return
	}
	old.PodSets = e.PodSets
	l.current.put(old)
	l.invalidate()
}

// drop removes the current entries that isDropped selects.
func (l *Ledger) drop(isDropped func(Entry) bool) {
	for uid, byCluster := range l.current {
		for cluster, e := range byCluster {
			if isDropped(e) {
				l.current.remove(uid, cluster)
				l.invalidate()
			}
		}
	}
}

// Debit adds an entry. If the workload already has an entry on the cluster, that entry
// stays unchanged, unless it rests on the decision of another component and e does not.
func (l *Ledger) Debit(e Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.debit(e)
}

func (l *Ledger) debit(e Entry) {
	old, exists := l.current[e.UID][e.Cluster]
	if isOwn := e.DecidedBy == "" && old.DecidedBy != ""; exists && !isOwn || len(e.PodSets) == 0 {
		return
	}
	l.current.put(e)
	l.ended.remove(e.UID, e.Cluster)
	l.shown.remove(e.UID, e.Cluster)
	l.invalidate()
}

// invalidate must follow every change of entries or credits.
func (l *Ledger) invalidate() {
	l.generation++
	l.view = nil
}

// MarkAdmitted records that the cluster admitted the workload, and drops the workload's
// entries on other clusters, and those of components that the workload decides for.
// reportsPodsReady states whether Kueue on the worker sets PodsReady. It returns false if
// the admission was recorded before or the workload has no entry there.
func (l *Ledger) MarkAdmitted(uid, cluster string, at time.Time, reportsPodsReady bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.current[uid][cluster]
	if !ok || !e.AdmittedAt.IsZero() {
		return false
	}
	e.AdmittedAt, e.ReportsPodsReady = at, reportsPodsReady
	e.DecidedBy = "" // the worker has the workload, whatever becomes of the primary component
	l.current[uid] = map[string]Entry{cluster: e}
	l.drop(func(other Entry) bool { return other.isDecidedBy(uid) && other.Cluster != cluster })
	l.invalidate()
	return true
}

// MarkPodsReady records since when all pods of an admitted workload are ready. It returns
// false if that was recorded before or the workload has no admitted entry.
func (l *Ledger) MarkPodsReady(uid string, since time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for cluster, e := range l.current[uid] {
		if !e.AdmittedAt.IsZero() && e.PodsReadyAt.IsZero() {
			e.PodsReadyAt = since
			l.current[uid][cluster] = e
			l.invalidate()
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
	entries := l.release(uid)
	for _, e := range entries {
		e.EndedAt = now
		l.ended.put(e)
	}
	return len(entries) > 0
}

// Release drops the current entries of a workload whose pods have finished. It returns
// false if there were none.
func (l *Ledger) Release(uid string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.shown[uid]) > 0 {
		delete(l.shown, uid)
		l.invalidate()
	}
	return len(l.release(uid)) > 0
}

func (l *Ledger) release(uid string) map[string]Entry {
	l.setHold(uid, nil)
	l.removeRunning(uid)
	l.drop(func(e Entry) bool { return e.isDecidedBy(uid) })
	entries := l.current[uid]
	if len(entries) > 0 {
		delete(l.current, uid)
		l.invalidate()
	}
	return entries
}

// Credit adds the devices of a finished workload. They count in ranking only.
func (l *Ledger) Credit(c Credit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.credits = append(l.credits, c)
	l.invalidate()
}

// followsRunning reports whether the entry is of a component that waits while its cluster runs the
// primary component of its job. The entry ends with that component or with the workload's attempt.
func (l *Ledger) followsRunning(e Entry) bool {
	primary, isRunning := l.running[e.DecidedBy]
	return isRunning && primary.Cluster == e.Cluster && e.EndedAt.IsZero()
}

// Expire drops entries and credits that samples show or that are older than TTL, but for those of
// components that follow a running one. times are, per cluster,
// those of the oldest samples that a decision may still use. A time of quota does not speak for
// decisions that have none. Expire returns the number of entries that reserve no devices any more.
func (l *Ledger) Expire(times map[string]SampleTimes, now time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	dropped, changed := 0, false
	isQuotaMeasured := func(e Entry) bool {
		at := times[e.Cluster]
		return e.isQuotaMeasured(at, l.Settle) && e.isQuotaMeasured(SampleTimes{Devices: at.Devices}, l.Settle)
	}
	for e := range l.shown.all() {
		if isQuotaMeasured(e) || now.Sub(e.DebitedAt) > l.TTL {
			l.shown.remove(e.UID, e.Cluster)
			changed = true
		}
	}
	for _, set := range []entrySet{l.current, l.ended} {
		for e := range set.all() {
			isExpired := now.Sub(e.DebitedAt) > l.TTL && !l.followsRunning(e)
			if !isExpired && !e.isMeasured(times[e.Cluster].Devices, l.Settle) {
				continue
			}
			set.remove(e.UID, e.Cluster)
			dropped++
			if !isExpired && !isQuotaMeasured(e) {
				l.shown.put(e)
			}
		}
	}
	credits := slices.DeleteFunc(slices.Clone(l.credits), func(c Credit) bool {
		return now.Sub(c.FinishedAt) > l.TTL || times[c.Cluster].Devices.After(c.FinishedAt.Add(l.Settle))
	})
	if changed || dropped > 0 || len(credits) != len(l.credits) {
		l.credits = credits
		l.invalidate()
	}
	return dropped
}
