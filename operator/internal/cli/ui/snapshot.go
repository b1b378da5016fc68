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

// maxSnapshots is the number of users whose snapshots are kept at the same time.
const maxSnapshots = 64

// snapshots has one snapshot for each user who has asked within the refresh time. It keeps no token.
type snapshots struct {
	refresh time.Duration
	mu      sync.Mutex
	byUser  map[user]*snapshot
}

// snapshot is what a user sees of the hub and of Prometheus at one time. All pages and streams of the user share it, and
// nobody else does.
type snapshot struct {
	mu      sync.Mutex
	results map[string]*result
	drop    *time.Timer
	until   time.Time
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

// of returns the present snapshot of a user. It returns false if too many others have one.
func (s *snapshots) of(u user) (*snapshot, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.byUser[u]; found != nil {
		return found, true
	}
	if len(s.byUser) >= maxSnapshots {
		return nil, false
	}
	fresh := &snapshot{results: map[string]*result{}, until: time.Now().Add(s.refresh)}
	fresh.drop = time.AfterFunc(s.refresh, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.byUser[u] == fresh {
			delete(s.byUser, u)
		}
	})
	s.byUser[u] = fresh
	return fresh, true
}

// keep makes the snapshot live for another d at least, so that slow reads do not occupy the hub all the time.
func (s *snapshot) keep(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if until := time.Now().Add(d); until.After(s.until) && s.drop.Reset(d) {
		s.until = until
	}
}

// remember returns the result of read. Each key is read once for a snapshot. A read goes on if the request that began it
// ends, because others wait for its result.
func remember[T any](ctx context.Context, s *snapshot, key string, read func(context.Context) (T, error)) (T, error) {
	s.mu.Lock()
	r := s.results[key]
	if r == nil {
		r = &result{}
		s.results[key] = r
	}
	s.mu.Unlock()
	r.once.Do(func() {
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
