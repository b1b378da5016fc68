package lifecycle

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// History is what the controller remembers of one workload between reconciliations. It is a
// value that package engine replaces as a whole. A restart loses it; Restore brings back what the hub shows.
type History struct {
	// ReservedAt is the transition time of QuotaReserved; zero = no quota was seen.
	ReservedAt time.Time
	// evictions is the number of the workload's evictions before this quota, and failedStarts are some of them.
	evictions    int
	failedStarts kueuestate.FailedStarts
	// QuotaSeenAt is when the operator saw the quota, or a second after reservedAt if that is
	// earlier.
	QuotaSeenAt time.Time
	// NominatedAt is when the operator nominated the clusters of this quota; zero = it did not, or
	// added clusters later. Unlike the record, no user may write it.
	NominatedAt time.Time
	// AdmittedPods are the pods that each cluster admits under this quota, of a workload of which
	// Kueue may admit fewer pods. A cluster is missing if its number is not known.
	admittedPods map[string]int64
	// NominatedSeen are the clusters that were seen nominated under this quota.
	NominatedSeen []string
	// Running is where the workload was admitted; nil = nowhere.
	Running *ledger.Entry
	// StartedAt is when its pods were first ready there; zero = not yet.
	StartedAt time.Time
	// FailedStart that the record does not have yet; nil = none.
	FailedStart *FailedStart
	// Copies that the last attempt may have left behind.
	Copies possibleCopies
	// ReleasedAt is when the operator last activated the workload; zero = never.
	ReleasedAt time.Time
	// LastReason of a decision that was written.
	LastReason string
	// LastWrite is the resourceVersion of the controller's last write. mayBeStored: the write failed, and the
	// API server may have stored it all the same.
	LastWrite struct {
		Version     string
		At          time.Time
		MayBeStored bool
	}
	// LastMessage is the kind of the check's last message.
	LastMessage struct {
		Kind string
		At   time.Time
	}
	// Refusal is the last write that the API server refused; nil = it accepted all writes of a step since.
	Refusal *Refusal
	// PodsLate is the present admission if its pods were not ready in time; nil = they were.
	PodsLate *LateAdmission
	// LateAttempt is the last attempt that no cluster admitted in time.
	LateAttempt int
	// NeverSince is since when all decisions prove that no cluster could start the workload; zero = the last one does not.
	NeverSince time.Time
}

// possibleCopies are the clusters that may hold a copy since the quota was lost.
type possibleCopies struct {
	Clusters []string
	// Recorded: Kueue had recorded the cluster, and removes the copy itself.
	Recorded bool
	LostAt   time.Time
}

// IsBehindOwnWrite reports whether an object is older than the controller's last write. A
// decision on it would take back what the ledger holds for the workload. After MaxCacheLag
// another client has overwritten the write.
func (h History) IsBehindOwnWrite(seen metav1.Object, now time.Time) bool {
	order, err := resourceversion.CompareResourceVersion(seen.GetResourceVersion(), h.LastWrite.Version)
	return err == nil && order < 0 && now.Sub(h.LastWrite.At) < timing.MaxCacheLag
}

// IsNewQuota reports whether the quota was reserved since the last look. If it was released and
// reserved within one second, only the number of evictions has changed.
func (h History) IsNewQuota(wl *kueue.Workload) bool {
	hasEnded := !kueuestate.IsEvicted(wl) && h.evictions != kueuestate.CountEvictions(wl)
	return !h.ReservedAt.Equal(kueuestate.QuotaReservedAt(wl)) || hasEnded
}

// messageDelay is the time until a message of a kind may be written: none if the last one was of another kind,
// else the rest of the interval.
func (h History) messageDelay(kind string, interval time.Duration, now time.Time) time.Duration {
	if h.LastMessage.Kind != kind {
		return 0
	}
	return max(0, interval-now.Sub(h.LastMessage.At))
}

// WithQuota begins a new reservation of quota.
func (h History) WithQuota(wl *kueue.Workload, reservedAt, now time.Time) History {
	h.ReservedAt, h.QuotaSeenAt, h.evictions = reservedAt, LatestPossible(reservedAt, now), kueuestate.CountEvictions(wl)
	h.NominatedAt, h.admittedPods, h.failedStarts = time.Time{}, nil, kueuestate.FailedStartsOf(wl)
	return h
}

// Nominated records a nomination by the operator. isFirst: no cluster was nominated before.
func (h History) Nominated(isFirst bool, now time.Time) History {
	h.NominatedAt = time.Time{}
	if isFirst {
		h.NominatedAt = now
	}
	return h
}

// WithNominations adds clusters that are nominated now.
func (h History) WithNominations(nominated []string) History {
	for _, c := range nominated {
		if !slices.Contains(h.NominatedSeen, c) {
			h.NominatedSeen = append(slices.Clip(h.NominatedSeen), c) // former histories share the list
		}
	}
	return h
}

// WithRunning records the admission by a cluster.
func (h History) WithRunning(e ledger.Entry) History {
	if h.Running == nil || h.Running.Cluster != e.Cluster {
		h.StartedAt = time.Time{}
	}
	h.Running = &e
	return h
}

// WithStart records that the pods of the present admission are ready.
func (h History) WithStart(since time.Time) History {
	if h.StartedAt.IsZero() {
		h.StartedAt = since
	}
	return h
}

// WithPodsLate records that the pods of the present admission are late; nil = they are not.
func (h History) WithPodsLate(late *LateAdmission) History {
	h.PodsLate = late
	return h
}

// WithoutQuota ends an attempt. endedByWorker: no copy is left, or none that the next attempt
// waits for.
func (h History) WithoutQuota(endedByWorker bool, now time.Time) History {
	switch {
	case h.Running != nil && endedByWorker:
		h.Copies.Clusters = nil
	case h.Running != nil:
		h.Copies = possibleCopies{Clusters: []string{h.Running.Cluster}, Recorded: true, LostAt: now}
	case len(h.NominatedSeen) > 0:
		h.Copies = possibleCopies{Clusters: h.NominatedSeen, LostAt: now}
	}
	h.Running, h.NominatedSeen, h.PodsLate, h.StartedAt = nil, nil, nil, time.Time{}
	return h
}

// After is the history once the decision of a step is known.
func (h History) After(next Step) History {
	if next.PodsLate != nil {
		h.PodsLate = next.PodsLate
	}
	if next.Decision != nil {
		h.NeverSince = next.NeverSince
	}
	if next.LateAttempt > 0 {
		h.LateAttempt = next.LateAttempt
	}
	if next.Reservation != nil {
		h = h.withAdmittedPods(next.Reservation.AdmittedPods)
	}
	return h
}

// AfterWrite is the history once a request has succeeded.
func (h History) AfterWrite(w Write, now time.Time) History {
	if w.Record != nil {
		h.FailedStart = nil
		if active := w.Record.Active; active != nil && *active {
			h.ReleasedAt = now
		}
	}
	switch {
	case w.Record != nil && w.Record.Reason != "":
		h.LastReason = w.Record.Reason
	case w.Check != nil && w.Check.RememberReason:
		h.LastReason = w.Check.Decision.Reason
	}
	if w.Check != nil && w.Check.MessageKind != "" {
		h.LastMessage.Kind, h.LastMessage.At = w.Check.MessageKind, now
	}
	return h
}

// LatestPossible is the latest time of an event with the API's resolution of one second that
// was seen at a given time.
func LatestPossible(recorded, seen time.Time) time.Time {
	if last := recorded.Add(time.Second); last.Before(seen) {
		return last
	}
	return seen
}
