package workload

import (
	"time"

	"plimsoll.dev/plimsoll/operator/internal/gate"
)

// held answer to one question. Apart from its use and its keep it is never changed.
type held struct {
	// asked and answered, or failed.
	asked, answered, used time.Time
	// keep it for so long after its last use.
	keep time.Duration
	// good is when the values were asked for; zero = nobody answered yet.
	good time.Time
	// since then it is asked in vain; zero = it is answered.
	since time.Time
	// values by cluster; bare are those of series that name none we know. Where err says
	// why there is no answer they are those of the last good one, if there was one.
	values map[string]gate.Number
	bare   []float64
	// partial: some have not answered. Which, where that is known.
	partial bool
	lacking map[string]string
	// short is since when they have not, by cluster; "" = it is not known which.
	short map[string]time.Time
	err   error
	// with are the sample times that were known when the values were asked for.
	with *held
}

// serves says whether a decision may rest on the answer: for a period, while it is
// renewed. A failure serves longer: nothing is gained by waiting for the next one.
func (h *held) serves(period time.Duration, now time.Time) bool {
	if h.err != nil {
		period += askTimeout
	}
	return now.Sub(h.answered) < period
}

// newer says whether the answer was asked for no earlier than that, and so were the
// sample times with it. With a failure they are as old as its values.
func (h *held) newer(than time.Time) bool {
	return !h.asked.Before(than) && (h.err != nil || h.with == nil || !h.with.asked.Before(than))
}

// doubtful: the answer may be incomplete or out of date, so that absence says nothing.
func (h *held) doubtful() bool { return h.err != nil || h.partial }

// lacks says that absence from the answer says nothing of a cluster.
func (h *held) lacks(cluster string) bool {
	_, failed := h.lacking[cluster]
	return h.partial && (h.lacking == nil || failed)
}

// odd: a cluster answered twice, or not with a number.
func (h *held) odd() bool {
	for _, n := range h.values {
		if !n.Known {
			return true
		}
	}
	return false
}

// sampled is what sample times say of a cluster; zero = nothing that can be true. No
// sample is newer than the question.
func (h *held) sampled(cluster string) time.Time {
	n := h.values[cluster]
	if !n.Known || n.Value > float64(h.good.Add(maxAhead).Unix()) {
		return time.Time{}
	}
	if at := time.UnixMilli(int64(n.Value * 1000)); at.Before(h.good) {
		return at
	}
	return h.good
}

// look up answers: those that serve, and nil for the others.
func (a *asker) look(questions []asked, serves func(*held) bool) []reply {
	replies := make([]reply, len(questions))
	now := a.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range questions {
		q := &questions[i]
		replies[i] = reply{asked: q, held: q.broken}
		if h, ok := a.held[q.key]; ok && q.broken == nil && serves(h) {
			h.used, h.keep = now, max(h.keep, q.keep)
			replies[i].held = h
		}
	}
	return replies
}

// put an answer, or the failure beside the last good one. Who trusts it longest keeps it.
func (a *asker) put(q *asked, h *held) *held {
	a.mu.Lock()
	defer a.mu.Unlock()
	old, known := a.held[q.key]
	if !known {
		old = &held{}
	}
	if h.err != nil {
		h.values, h.bare, h.with, h.good = old.values, old.bare, old.with, old.good
		h.partial, h.lacking, h.short = old.partial, old.lacking, old.short
		h.since = earliest(h.asked, h.since, old.since)
	} else {
		h.short = h.gaps(old)
	}
	h.answered = a.now()
	h.used, h.keep = h.answered, max(old.keep, q.keep)
	a.held[q.key] = h
	return h
}

// gaps says since when some have not answered: now, before, or when all failed.
func (h *held) gaps(old *held) map[string]time.Time {
	short := map[string]time.Time{}
	if h.partial && h.lacking == nil {
		short[""] = earliest(h.asked, old.short[""], old.since)
	}
	for cluster := range h.lacking {
		short[cluster] = earliest(h.asked, old.short[cluster], old.since)
	}
	return short
}

// earliest of the times that are known.
func earliest(at time.Time, others ...time.Time) time.Time {
	for _, other := range others {
		if !other.IsZero() && other.Before(at) {
			at = other
		}
	}
	return at
}

// tidy forgets what nobody asks any longer, and what the ledger holds of workloads
// that every answer shows which a decision may still rest upon. Of the rest it tells
// what nobody answers.
func (a *asker) tidy() {
	now := a.now()
	a.ledger.Expire(a.forget(now), now)
	a.tell(a.unanswered())
}

// forget what is unused, and say how old the sample times of the rest are.
func (a *asker) forget(now time.Time) map[string]time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, p := range a.plans {
		if now.Sub(p.used) > p.keep {
			delete(a.plans, key)
		}
	}
	oldest := map[string]time.Time{}
	for key, h := range a.held {
		if now.Sub(h.used) > h.keep {
			delete(a.held, key)
			continue
		}
		if h.with == nil {
			continue
		}
		for cluster := range h.with.values {
			at, known := h.with.sampled(cluster), oldest[cluster]
			if !at.IsZero() && (known.IsZero() || at.Before(known)) {
				oldest[cluster] = at
			}
		}
	}
	return oldest
}
