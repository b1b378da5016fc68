package metrics_test

import (
	"fmt"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/world/metrics"
)

// benchSnapshot is a cluster of ten nodes with pods on most devices.
func benchSnapshot(cluster string, round int) metrics.Snapshot {
	s := metrics.Snapshot{Cluster: cluster}
	for i := range 10 {
		n := metrics.Node{Name: fmt.Sprintf("n%d", i), Model: h100, Resource: gpu, Devices: 8, Ready: true, CPU: 96_000, Memory: 1 << 20}
		// The jobs of every third node change every minute.
		for j := range (i + round/4*(1-min(1, i%3))) % 4 {
			s.Pods = append(s.Pods, metrics.Pod{Namespace: "team-a", Name: fmt.Sprintf("job-%d-%d-%d", i, j, round/4), Node: n.Name, Resource: gpu, Model: h100, Devices: 2,
				CPU: 4000, Memory: 1 << 14, OwnerKind: "Job", OwnerName: fmt.Sprintf("job-%d", i), Utilization: 0.9})
			n.Allocated += 2
		}
		s.Nodes = append(s.Nodes, n)
	}
	for i := range 3 {
		s.Queues = append(s.Queues, metrics.Queue{Name: fmt.Sprintf("q%d", i), Cohort: "a", Flavor: "h100", Resource: gpu, Nominal: 27, Reserved: int64(round / 4 % 20)})
	}
	return s
}

// runHalfHour runs 30 virtual minutes with 4 clusters, a scrape each 15 s and 20 queries each second.
func runHalfHour(b *testing.B, s *metrics.Store, send func(expr string, at time.Time)) {
	queries := append(operatorQueries(), recorded...)[:20]
	for second := range 1800 {
		now := start.Add(time.Duration(second) * time.Second)
		if phase := second % 15; phase%4 == 0 && phase < 16 {
			if err := s.Scrape(now, benchSnapshot(fmt.Sprintf("c%d", phase/4), second/15)); err != nil {
				b.Fatal(err)
			}
		} else if phase == 14 {
			if err := s.Evaluate(now); err != nil {
				b.Fatal(err)
			}
		}
		for _, expr := range queries {
			send(expr, now)
		}
	}
}

func BenchmarkClosedForm(b *testing.B) {
	for b.Loop() {
		s := newStore(b, metrics.Options{})
		runHalfHour(b, s, func(expr string, at time.Time) { seriesCount(b, s, expr, at) })
	}
}

func BenchmarkRulesEngine(b *testing.B) {
	rules := loadRules(b)
	for b.Loop() {
		s := newStore(b, metrics.Options{Mode: metrics.RulesEngine, Rules: rules})
		runHalfHour(b, s, func(expr string, at time.Time) { seriesCount(b, s, expr, at) })
	}
}

func seriesCount(b *testing.B, s *metrics.Store, expr string, at time.Time) {
	if _, err := s.Query(b.Context(), expr, at); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkClient sends the queries with the operator's client.
func BenchmarkClient(b *testing.B) {
	for b.Loop() {
		s := newStore(b, metrics.Options{})
		c, err := query.New(query.Config{
			Name: "bench", URL: "https://prometheus.example.com", ClusterLabel: "cluster", Timeout: time.Minute, MaxConcurrency: 4, QueriesPerSecond: 1_000_000,
			MaxResponseBytes: 1 << 20, MaxSeries: 1000, Transport: &metrics.Transport{Store: s},
		})
		if err != nil {
			b.Fatal(err)
		}
		runHalfHour(b, s, func(expr string, at time.Time) {
			if _, err := c.Query(b.Context(), expr, at); err != nil {
				b.Fatal(err)
			}
		})
	}
}
