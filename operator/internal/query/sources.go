package query

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// SourceInfo is what a caller must know of a source to read its answers.
type SourceInfo struct {
	Name string
	// ClusterLabel of a series names its cluster.
	ClusterLabel string
	// Match says what that label holds: Name (of the ManagedCluster), Label or
	// ClusterClaim, the last two under Key.
	Match, Key string
	// Partial says that the source may answer for some of its stores only.
	Partial bool
	// Timeout of one question.
	Timeout time.Duration
}

// Sources is the registry of the sources that can be asked. The zero value is
// ready and empty.
type Sources struct {
	mu      sync.RWMutex
	entries map[string]entry
}

type entry struct {
	querier Querier
	info    SourceInfo
	err     error
}

// For returns the source of that name. An error says why it can't be asked, in
// words for a condition.
func (s *Sources) For(name string) (Querier, SourceInfo, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e, ok := s.entries[name]
	switch {
	case !ok:
		return nil, SourceInfo{}, fmt.Errorf("MetricsSource %q: %w", name, ErrNoSource)
	case e.err != nil:
		return nil, SourceInfo{}, fmt.Errorf("MetricsSource %q can't be used: %w", name, e.err)
	}
	return e.querier, e.info, nil
}

// ErrNoSource is returned for a source that does not exist.
var ErrNoSource = fmt.Errorf("not found")

// Set makes a source askable under info.Name, and closes the one before.
func (s *Sources) Set(info SourceInfo, q Querier) { s.put(info.Name, entry{querier: q, info: info}) }

// Refuse keeps a source that exists and can't be used, with the reason.
func (s *Sources) Refuse(name string, err error) { s.put(name, entry{err: err}) }

// Delete forgets a source.
func (s *Sources) Delete(name string) {
	s.mu.Lock()
	old := s.entries[name]
	delete(s.entries, name)
	s.mu.Unlock()
	old.close(nil)
}

// Names of all sources, sorted.
func (s *Sources) Names() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Sorted(maps.Keys(s.entries))
}

func (s *Sources) put(name string, e entry) {
	s.mu.Lock()
	if s.entries == nil {
		s.entries = map[string]entry{}
	}
	old := s.entries[name]
	s.entries[name] = e
	s.mu.Unlock()
	old.close(e.querier)
}

// close frees a client that is not the one in use now.
func (e entry) close(now Querier) {
	c, ok := e.querier.(*Client)
	if current, _ := now.(*Client); ok && c != current {
		c.Close()
	}
}
