package query

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrNoSource means that no such source exists.
var ErrNoSource = errors.New("not found")

// SourceInfo describes how to interpret the results of a source.
type SourceInfo struct {
	Name string
	// Settings is a hash of the settings that change responses, such as the URL and the tenant,
	// and of the mapping to clusters.
	Settings string
	// ClusterLabel is the label that identifies the cluster of a series.
	ClusterLabel string
	// Match says which property of a ManagedCluster the label holds: Name, Label or
	// ClusterClaim. Key is the key of that Label or ClusterClaim.
	Match, Key string
	// Partial is true if the source can return results of only some of its stores on request.
	Partial bool
	// Timeout of one query.
	Timeout time.Duration
}

// Identity names the source and its settings. What was learned from a source with another
// identity says nothing about this one. It is empty if the source is unknown.
func (i SourceInfo) Identity() string {
	if i.Name == "" {
		return ""
	}
	return i.Name + "/" + i.Settings
}

// Sources is the registry of the configured sources. The zero value is empty and ready
// to use.
type Sources struct {
	mu      sync.RWMutex
	entries map[string]sourceEntry
}

// sourceEntry holds a source. err is the reason why the source can't be used, or nil.
type sourceEntry struct {
	querier Querier
	info    SourceInfo
	err     error
}

// For returns the named source. The error wraps ErrNoSource if the source does not exist,
// and otherwise says why it can't be used. The text is meant for a condition. A source that
// can't be used has its SourceInfo all the same.
func (s *Sources) For(name string) (Querier, SourceInfo, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e, ok := s.entries[name]
	switch {
	case !ok:
		return nil, SourceInfo{}, fmt.Errorf("MetricsSource %q: %w", name, ErrNoSource)
	case e.err != nil:
		return nil, e.info, fmt.Errorf("MetricsSource %q can't be used: %w", name, e.err)
	}
	return e.querier, e.info, nil
}

// Set registers a source under info.Name and closes the replaced client.
func (s *Sources) Set(info SourceInfo, q Querier) {
	s.replace(info.Name, sourceEntry{querier: q, info: info})
}

// SetUnusable registers a source that can't be used because of err.
func (s *Sources) SetUnusable(info SourceInfo, err error) {
	s.replace(info.Name, sourceEntry{info: info, err: err})
}

// Delete removes a source and closes its client.
func (s *Sources) Delete(name string) {
	s.mu.Lock()
	old := s.entries[name]
	delete(s.entries, name)
	s.mu.Unlock()
	old.closeUnless(nil)
}

func (s *Sources) replace(name string, e sourceEntry) {
	s.mu.Lock()
	if s.entries == nil {
		s.entries = map[string]sourceEntry{}
	}
	old := s.entries[name]
	s.entries[name] = e
	s.mu.Unlock()
	old.closeUnless(e.querier)
}

// closeUnless closes the client of the entry, unless current is the same client.
func (e sourceEntry) closeUnless(current Querier) {
	c, ok := e.querier.(*Client)
	if inUse, _ := current.(*Client); ok && c != inUse {
		c.Close()
	}
}
