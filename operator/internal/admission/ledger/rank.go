package ledger

import (
	"cmp"
	"time"
)

// Rank is a workload's place in the order in which a gate decides.
type Rank struct {
	// Priority of the workload in Kueue.
	Priority int32 `json:"priority"`
	// Since is when the workload began to wait: its first quota reservation since it was last
	// sent to a cluster.
	Since time.Time `json:"since"`
	// Name breaks ties.
	Name string `json:"name"`
}

// IsAged reports whether the workload has waited for the aging time. Zero means no aging.
func (r Rank) IsAged(aging time.Duration, now time.Time) bool {
	return aging > 0 && now.Sub(r.Since) >= aging
}

// Before reports whether r is decided before other:
//  1. Aged workloads come first, the longest waiting first, whatever their priority.
//  2. The others follow by priority, then by waiting time.
//
// A workload that has aged is therefore preceded only by workloads that began to wait
// earlier, and their number does not grow.
func (r Rank) Before(other Rank, aging time.Duration, now time.Time) bool {
	switch mine, its := r.IsAged(aging, now), other.IsAged(aging, now); {
	case mine != its:
		return mine
	case mine:
		return r.CompareSince(other) < 0
	}
	return r.ComparePriority(other) < 0
}

// ComparePriority orders by priority, then by waiting time.
func (r Rank) ComparePriority(other Rank) int {
	return cmp.Or(cmp.Compare(other.Priority, r.Priority), r.CompareSince(other))
}

// CompareSince orders by waiting time.
func (r Rank) CompareSince(other Rank) int {
	return cmp.Or(r.Since.Compare(other.Since), cmp.Compare(r.Name, other.Name))
}
