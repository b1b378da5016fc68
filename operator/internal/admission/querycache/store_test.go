package querycache

import (
	"errors"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

func TestStoreKeepsTheLastSuccess(t *testing.T) {
	f := newFixture(v1alpha1.PlacementGateSpec{})
	f.source.responses["floor("] = series("cluster1", 3.0)
	f.setSampleAge(5)
	f.results(t)
	f.source.err = errors.New("connection refused")
	f.clock.add(time.Minute)
	got, fleet := f.results(t)
	if got["cluster1"].Shapes[0].Fit != gate.Known(3) || !got["cluster1"].SampledAt.Equal(noon.Add(-5*time.Second)) {
		t.Errorf("got %+v, want the last values with their sample time", got["cluster1"])
	}
	if !strings.Contains(fleet.Problem, "connection refused") {
		t.Errorf("problem %q", fleet.Problem)
	}
}

// Gates that share a query keep its result for the longest of their TTLs.
func TestStoreKeepsASharedResultForAllGates(t *testing.T) {
	for _, tc := range []struct {
		name               string
		shorterTTLIsServed func(f *fixture, longer, shorter func())
	}{
		{"the gate with the shorter TTL queries last", func(f *fixture, longer, shorter func()) {
			longer()
			f.clock.add(20 * time.Second)
			shorter()
		}},
		{"the gate with the shorter TTL queries first", func(_ *fixture, longer, shorter func()) {
			shorter()
			longer()
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newOpenFixture()
			f.gate.Spec.Freshness.MaxSampleAgeSeconds, f.gate.Spec.Freshness.UnknownAfterSeconds = 600, 900
			longer, shorter := f.gate, f.gate
			shorter.Name = "other"
			shorter.Spec.Freshness = v1alpha1.GateFreshness{OnStale: v1alpha1.StaleClosed, MaxSampleAgeSeconds: 120, UnknownAfterSeconds: 300}
			tc.shorterTTLIsServed(f, func() { f.gate = longer; f.results(t) }, func() { f.gate = shorter; f.results(t) })
			f.clock.add(3 * time.Minute)
			f.cleanUp()
			f.gate, f.source.err = longer, errors.New("timeout")
			f.wantPending(t, "after the shorter TTL", gate.ReasonFleetRequirementUnmet)
		})
	}
}

// The ledger expires an entry once no cached result is too old to include it.
func TestOldestSampleTimesExpireLedgerEntries(t *testing.T) {
	f := newFixture(v1alpha1.PlacementGateSpec{PeriodSeconds: 15})
	f.source.responses["floor("] = series("cluster1", 3.0)
	f.setSampleAge(5)
	f.results(t)
	f.ledger.Debit(f.ledgerEntry())
	f.ledger.MarkAdmitted("other", "cluster1", f.clock.now(), false)
	reserved := func() int64 { return f.ledger.DevicesByCluster()["cluster1"] }

	f.clock.add(10 * time.Second)
	f.setSampleAge(5)
	small := f.facts.PodSets
	f.facts.PodSets = podSets("NVIDIA-L4", 4)
	f.results(t)
	f.refresh()
	if f.cleanUp(); reserved() == 0 {
		t.Error("the entry expired although a cached result does not include it")
	}
	f.facts.PodSets = small
	f.refresh()
	if f.cleanUp(); reserved() != 0 {
		t.Errorf("%d devices are reserved although every result includes the entry", reserved())
	}
}

func TestDropUnused(t *testing.T) {
	f := newFixture(v1alpha1.PlacementGateSpec{})
	f.results(t)
	f.ledger.Debit(f.ledgerEntry())
	f.clock.add(timing.UnusedResultTTL + time.Second)
	if f.cleanUp(); len(f.Cache.results) != 0 || len(f.plans) != 0 {
		t.Errorf("%d results and %d plans are left", len(f.Cache.results), len(f.plans))
	}
	if got := f.ledger.DevicesByCluster()["cluster1"]; got != 2 {
		t.Errorf("%d reserved devices, want 2 until the ledger's TTL", got)
	}
	f.clock.add(time.Hour)
	if f.cleanUp(); len(f.ledger.DevicesByCluster()) != 0 {
		t.Errorf("reserved devices after the ledger's TTL: %v", f.ledger.DevicesByCluster())
	}
}

// An explanation queries beside decisions. Its result must not replace one that is newer: the ledger may
// have dropped reservations that the newer one shows.
func TestStoreKeepsTheNewestResult(t *testing.T) {
	f := newFixture(v1alpha1.PlacementGateSpec{})
	f.results(t)
	key := f.KeyOf(f.gate, f.facts)
	q := &f.plan(key, f.gate, f.facts).queries[0]
	older := &cachedResult{queriedAt: noon.Add(-time.Second)}
	if previous := f.store(q, older); previous != nil {
		t.Errorf("replaced %+v", previous)
	}
	everything := func(*cachedResult) bool { return true }
	if got := f.lookUp([]renderedQuery{*q}, everything)[0].result; !got.queriedAt.Equal(noon) {
		t.Errorf("the cache has the result of %s, want that of %s", got.queriedAt, noon)
	}
}
