package query

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestSourcesFor(t *testing.T) {
	var s Sources
	if _, _, err := s.For("a"); !errors.Is(err, ErrNoSource) {
		t.Error(err)
	}
	s.SetUnusable(SourceInfo{Name: "a", ClusterLabel: "site"}, errors.New("secret x not found"))
	if _, info, err := s.For("a"); err == nil || err.Error() != `MetricsSource "a" can't be used: secret x not found` || info.ClusterLabel != "site" {
		t.Error(info, err)
	}
	s.Set(SourceInfo{Name: "a", ClusterLabel: "cluster"}, QuerierFunc(func(context.Context, string, time.Time) (Result, error) { return Result{}, nil }))
	if q, info, err := s.For("a"); q == nil || info.ClusterLabel != "cluster" || err != nil {
		t.Error(q, info, err)
	}
	s.Delete("a")
	if _, _, err := s.For("a"); !errors.Is(err, ErrNoSource) {
		t.Error(err)
	}
}
