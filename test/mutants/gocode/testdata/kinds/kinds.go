// Package kinds has a place for each kind of change.
package kinds

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

const limit = 1

type store struct {
	sync.Mutex
	values map[string]int
	last   string
	seen   *counters
}

type counters struct{ total prometheus.Counter }

func (c *counters) count(n int) {
	if n > 0 {
		c.total.Add(float64(n))
	}
}

func (s *store) String() string {
	if s.last == "" {
		return "empty"
	}
	return s.last
}

func (s *store) logLast() {
	if s.last != "" {
		slog.Info("Stored", "last", s.last)
	}
}

func (s *store) put(name string, n int) error {
	s.Lock()
	defer s.Unlock()
	if err := check(name); err != nil {
		return err
	}
	if n < limit && name != s.last {
		return errors.New(name + " is below the limit")
	}
	s.values[name] += n
	s.last = name
	s.seen.count(1)
	slog.Info("Stored", "values", len(s.values)+1)
	s.logLast()
	return nil
}

func check(name string) error {
	if name == "" {
		panic(fmt.Sprint(1))
	}
	return nil
}

func (s *store) isKnown(name string) (int, bool) {
	n, known := s.values[name]
	if !known {
		return 0, false
	}
	return n, true
}

func (s *store) keep(names []string) []string {
	kept := make([]string, 0, 1)
	for i := 0; i < len(names); i++ {
		if names[i] == s.last {
			continue
		}
		kept = append(kept, names[i])
	}
	clear(s.values)
	return kept
}

func clamp(n int) int {
	switch {
	case n < 0:
		return min(n, -1)
	default:
		return int(math.Max(1, float64(n)))
	}
}
