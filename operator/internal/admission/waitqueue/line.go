package waitqueue

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// Entry is a workload that waits for a gate.
type Entry struct {
	Workload types.NamespacedName
	// Key of the workload's queries.
	Key gatestate.QueryKey
	// Limits on where the workload may go, as text. Workloads with one key and the same limits form a line.
	Limits string
	// Rank in the gate's order.
	Rank ledger.Rank
	// Aging of the gate. See ledger.Rank.
	Aging time.Duration
	// PodSets request the devices that the workload competes for.
	PodSets []shape.PodSet
	// Parked is true if the workload waits for a cluster that could start it. It looks only in the wake-ups of all
	// lines, and delays no other one.
	Parked bool
	// HasRoom is true if a cluster has room and the workload waits for its turn.
	HasRoom bool
}

func (e Entry) line() lineKey { return lineKey{e.Key, e.Limits, e.Parked} }

// lineKey identifies the workloads of a line.
type lineKey struct {
	gatestate.QueryKey
	limits string
	parked bool
}

// line holds the workloads of one lineKey. What one of them gets depends on its rank alone, so
// each wake-up decides only the first ones: while the first fits nowhere, neither do the others.
type line struct {
	key     lineKey
	podSets []shape.PodSet
	aging   time.Duration
	// byPriority and bySince hold the same entries in the two orders of ledger.Rank.
	byPriority, bySince []*Entry
	// wakeFrom and wakeBefore state which results wake the line. See the package documentation.
	wakeFrom, wakeBefore time.Time
	// resultsFrom is the age of the line's latest results: none is older. servedFrom is the age of those with which the
	// line was decided last.
	resultsFrom, servedFrom time.Time
	// requestedSince and requestedFrom are the times of the first and of the latest request for
	// results while the line waits for a place; zero = none. A line that is due has no request.
	requestedSince, requestedFrom time.Time
	// batch in which the line became due.
	batch int
	// outcome of the line's last decision.
	outcome string
	// head is the workload that was first when the queue last looked.
	head types.NamespacedName
}

func (l *line) isDue() bool       { return !l.wakeBefore.IsZero() }
func (l *line) isRequested() bool { return !l.requestedSince.IsZero() }

// markDue makes the line due for results of this time.
func (l *line) markDue(now time.Time) {
	if !l.isDue() {
		l.wakeFrom = now
	}
	l.wakeBefore = now
}

// hasResults reports whether the line's results are new enough for a decision.
func (l *line) hasResults() bool { return !l.resultsFrom.Before(l.wakeFrom) }

// markServed records that the line was decided with its latest results. If a later wake-up has
// started since these were queried, the line stays due for the results of that wake-up.
func (l *line) markServed() {
	l.servedFrom = l.resultsFrom
	if l.resultsFrom.Before(l.wakeBefore) {
		l.wakeFrom = l.wakeBefore
		return
	}
	l.wakeFrom, l.wakeBefore = time.Time{}, time.Time{}
}

// first returns the entry that is decided first.
func (l *line) first(now time.Time) *Entry {
	if oldest := l.bySince[0]; oldest.Rank.IsAged(l.aging, now) {
		return oldest
	}
	return l.byPriority[0]
}

// firstExcept returns the entry that is decided first apart from one workload; nil = there is none.
func (l *line) firstExcept(workload types.NamespacedName, now time.Time) *Entry {
	isOther := func(e *Entry) bool { return e.Workload != workload }
	if i := slices.IndexFunc(l.bySince, isOther); i >= 0 && l.bySince[i].Rank.IsAged(l.aging, now) {
		return l.bySince[i]
	}
	if i := slices.IndexFunc(l.byPriority, isOther); i >= 0 {
		return l.byPriority[i]
	}
	return nil
}

func (l *line) competesWith(podSets []shape.PodSet) bool {
	return !l.key.parked && ledger.ShareDevices(l.podSets, podSets)
}

func comparePriority(a, b *Entry) int { return a.Rank.ComparePriority(b.Rank) }
func compareSince(a, b *Entry) int    { return a.Rank.CompareSince(b.Rank) }

func (l *line) insert(e *Entry) {
	l.podSets, l.aging = e.PodSets, e.Aging
	i, _ := slices.BinarySearchFunc(l.byPriority, e, comparePriority)
	l.byPriority = slices.Insert(l.byPriority, i, e)
	i, _ = slices.BinarySearchFunc(l.bySince, e, compareSince)
	l.bySince = slices.Insert(l.bySince, i, e)
}

func (l *line) remove(e *Entry) {
	if i, found := slices.BinarySearchFunc(l.byPriority, e, comparePriority); found {
		l.byPriority = slices.Delete(l.byPriority, i, i+1)
	}
	if i, found := slices.BinarySearchFunc(l.bySince, e, compareSince); found {
		l.bySince = slices.Delete(l.bySince, i, i+1)
	}
}
