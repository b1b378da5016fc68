package ledger

import (
	"slices"
	"sync"
	"time"
)

// Ledger remembers what was sent somewhere and is not yet visible in metrics.
// It is safe for concurrent use. A restarted process rebuilds it with Debit.
type Ledger struct {
	// Settle is how long after a remote admission a sample must be taken to show it,
	// where nobody tells that the pods run; where somebody does, four times as long.
	Settle time.Duration
	// TTL after which an entry that nothing released is dropped.
	TTL time.Duration

	mu      sync.Mutex
	entries map[string]map[string]Entry
	credits []Credit
	view    *View
}

// NewLedger with the given settling time and time to live.
func New(settle, ttl time.Duration) *Ledger {
	return &Ledger{Settle: settle, TTL: ttl, entries: map[string]map[string]Entry{}}
}

// Reserve lets decide look at the ledger and debits what it returns before anybody
// else may look. Of the workload's other entries those of the kept clusters stay,
// to which it is sent already; the rest came to nothing.
func (l *Ledger) Reserve(uid string, kept []string, decide func(View) []Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := decide(l.snapshot())
	for cluster := range l.entries[uid] {
		if !slices.Contains(kept, cluster) && !slices.ContainsFunc(next, func(e Entry) bool { return e.Cluster == cluster }) {
			l.drop(uid, cluster)
		}
	}
	for _, e := range next {
		l.debit(e)
	}
}

// Debit adds an entry; one of the same workload and cluster is kept as it is.
func (l *Ledger) Debit(e Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.debit(e)
}

func (l *Ledger) debit(e Entry) {
	if len(e.PodSets) == 0 {
		return
	}
	byCluster := l.entries[e.UID]
	if byCluster == nil {
		byCluster = map[string]Entry{}
		l.entries[e.UID] = byCluster
	}
	if _, ok := byCluster[e.Cluster]; ok {
		return
	}
	byCluster[e.Cluster] = e
	l.drop(endedKey(e.UID), e.Cluster) // a copy that is left there is adopted
}

func (l *Ledger) drop(uid, cluster string) {
	delete(l.entries[uid], cluster)
	if len(l.entries[uid]) == 0 {
		delete(l.entries, uid)
	}
	l.view = nil
}

// Admitted keeps only the entry of the cluster that admitted the workload, and
// says whether that was new. told says that somebody will tell when its pods are ready.
func (l *Ledger) MarkAdmitted(uid, cluster string, at time.Time, told bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.entries[uid][cluster]
	if !ok || !e.AdmittedAt.IsZero() {
		return false
	}
	e.AdmittedAt, e.ReportsPodsReady = at, told
	l.entries[uid] = map[string]Entry{cluster: e}
	l.view = nil
	return true
}

// Running says since when the pods of an admitted workload are all ready, and
// whether that was new.
func (l *Ledger) MarkPodsReady(uid string, since time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for cluster, e := range l.entries[uid] {
		if !e.AdmittedAt.IsZero() && e.PodsReadyAt.IsZero() {
			e.PodsReadyAt = since
			l.entries[uid][cluster] = e
			l.view = nil
			return true
		}
	}
	return false
}

// ended is the key of what a workload held before it ended: a new attempt of its
// does not touch that.
func endedKey(uid string) string { return uid + "/ended" }

// Release drops every entry of a workload whose pods are done, and says whether
// there was one.
func (l *Ledger) Release(uid string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.release(uid) != nil
}

// End says that a workload lost its quota, or is gone, and whether it had entries.
// They stay until samples of a settling time later: copies outlive that for a moment.
func (l *Ledger) MarkEnded(uid string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := l.release(uid)
	for cluster, e := range held {
		e.EndedAt = now
		if l.entries[endedKey(uid)] == nil {
			l.entries[endedKey(uid)] = map[string]Entry{}
		}
		l.entries[endedKey(uid)][cluster] = e
	}
	return held != nil
}

func (l *Ledger) release(uid string) map[string]Entry {
	held := l.entries[uid]
	if held != nil {
		delete(l.entries, uid)
		l.view = nil
	}
	return held
}

// Credit a finished workload's devices, in ranking only.
func (l *Ledger) Credit(c Credit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.credits = append(l.credits, c)
	l.view = nil
}

// Expire drops admitted entries that the oldest sample of their cluster that a
// decision may still rest upon shows, and whatever is older than the TTL. It says
// how many went.
func (l *Ledger) Expire(sampled map[string]time.Time, now time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	gone := 0
	for uid, byCluster := range l.entries {
		for cluster, e := range byCluster {
			if e.isMeasured(sampled[cluster], l.Settle) || now.Sub(e.DebitedAt) > l.TTL {
				l.drop(uid, cluster)
				gone++
			}
		}
	}
	kept := l.credits[:0:0]
	for _, c := range l.credits {
		if now.Sub(c.FinishedAt) <= l.TTL && !sampled[c.Cluster].After(c.FinishedAt.Add(l.Settle)) {
			kept = append(kept, c)
		}
	}
	if gone > 0 || len(kept) != len(l.credits) {
		l.credits, l.view = kept, nil
	}
	return gone
}

// View of the ledger now.
func (l *Ledger) View() View {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.snapshot()
}

func (l *Ledger) snapshot() View {
	if l.view == nil {
		v := View{settle: l.Settle, byCluster: map[string][]Entry{}, credits: map[string][]Credit{}}
		for _, byCluster := range l.entries {
			for cluster, e := range byCluster {
				v.byCluster[cluster] = append(v.byCluster[cluster], e)
			}
		}
		for _, c := range l.credits {
			v.credits[c.Cluster] = append(v.credits[c.Cluster], c)
		}
		l.view = &v
	}
	return *l.view
}

// Size is the devices held per cluster.
func (l *Ledger) DevicesByCluster() map[string]int64 {
	sizes := map[string]int64{}
	for cluster, entries := range l.View().byCluster {
		for _, e := range entries {
			sizes[cluster] += e.Devices()
		}
	}
	return sizes
}
