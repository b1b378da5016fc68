package ui

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// readTimeout limits one read of a snapshot: a list of the hub, or the queries of a page.
const readTimeout = 30 * time.Second

// maxAge limits the age of a snapshot that slow reads keep, and with --token-passthrough that of every snapshot: what a
// revoked token has read is shown no longer.
const maxAge = 4 * readTimeout

// maxSnapshots is the number of users whose snapshots are kept at the same time.
const maxSnapshots = 64

// snapshots has one snapshot for each user who has asked within the refresh time. It keeps no token.
type snapshots struct {
	refresh time.Duration
	now     func() time.Time
	streams *streams
	mu      sync.Mutex
	byUser  map[user]*snapshot
}

// snapshot is what a user sees of the hub and of Prometheus at one time. All pages and streams of the user share it, and
// nobody else does.
type snapshot struct {
	// born is when the snapshot began: nothing in it is older.
	born    time.Time
	now     func() time.Time
	mu      sync.Mutex
	results map[string]*result
	drop    *time.Timer
	until   time.Time
	// reading is the number of reads that have not ended.
	reading int
	// unauthorized is set if the hub does not accept the user's credentials.
	unauthorized atomic.Bool
}

// errUnread is the result of a read that panicked. net/http recovers from panics.
var errUnread = errors.New("the read did not end")

type result struct {
	once  sync.Once
	value any
	err   error
}

// of returns the present snapshot of a user. If too many others have one, the oldest of a user without a stream makes room.
// It returns false if all have streams.
func (s *snapshots) of(u user) (*snapshot, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.byUser[u]; found != nil {
		return found, true
	}
	if len(s.byUser) >= maxSnapshots && !s.evict() {
		return nil, false
	}
	born := s.now()
	fresh := &snapshot{born: born, now: s.now, results: map[string]*result{}, until: born.Add(s.refresh)}
	fresh.drop = time.AfterFunc(s.refresh, func() {
		if !fresh.waitForReads(s.refresh) {
			s.drop(u, fresh)
		}
	})
	s.byUser[u] = fresh
	return fresh, true
}

// evict drops the oldest snapshot of a user without a stream, and returns false if there is none. s.mu is locked.
func (s *snapshots) evict() bool {
	var oldest *snapshot
	var of user
	for u, candidate := range s.byUser {
		if (oldest == nil || candidate.born.Before(oldest.born)) && !s.streams.has(u) {
			oldest, of = candidate, u
		}
	}
	if oldest != nil {
		oldest.drop.Stop()
		delete(s.byUser, of)
	}
	return oldest != nil
}

// drop forgets a snapshot: the user's next request begins another one.
func (s *snapshots) drop(u user, old *snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byUser[u] == old {
		old.drop.Stop()
		delete(s.byUser, u)
	}
}

// keep makes the snapshot live to the age d at least, up to maxAge, so that slow reads do not occupy the hub all the time.
func (s *snapshot) keep(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if until := s.born.Add(min(d, maxAge)); until.After(s.until) && s.drop.Reset(until.Sub(s.now())) {
		s.until = until
	}
}

// waitForReads tries again later while the snapshot is read: another one would read the same beside it.
func (s *snapshot) waitForReads(later time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reading > 0 {
		s.drop.Reset(later)
	}
	return s.reading > 0
}

// endRead counts a read that has ended.
func (s *snapshot) endRead() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reading--
}

// remember returns the result of read. Each key is read once for a snapshot. A read goes on if the request that began it
// ends, because others wait for its result.
func remember[T any](ctx context.Context, s *snapshot, key string, read func(context.Context) (T, error)) (T, error) {
	s.mu.Lock()
	r := s.results[key]
	if r == nil {
		r = &result{}
		s.results[key] = r
		s.reading++
	}
	s.mu.Unlock()
	r.once.Do(func() {
		defer s.endRead()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
		defer cancel()
		began := time.Now()
		r.err = errUnread
		r.value, r.err = read(ctx)
		s.keep(4 * time.Since(began))
	})
	value, _ := r.value.(T) // there is none with errUnread
	return value, r.err
}
