package querycache

import (
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// A sample can't be newer than the query that returned it. If a time far in the future
// counted, the sample would never become old, and the ledger would treat every
// reservation as measured.
func TestSampleTimeOfRejectsTheFuture(t *testing.T) {
	for _, tc := range []struct {
		name  string
		ahead float64 // seconds
		want  time.Time
	}{
		{"a clock that is 30 s ahead", 30, noon},
		{"a clock that is an hour ahead", 3600, time.Time{}},
		{"milliseconds instead of seconds", 1e12, time.Time{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(v1alpha1.PlacementGateSpec{PeriodSeconds: 15})
			f.source.responses["floor("] = series("cluster1", 3.0)
			f.source.responses["sample_timestamp"] = series("cluster1", f.unixIn(tc.ahead))
			f.results(t)
			f.clock.add(10 * time.Second)
			if got := f.sampledAt(t); !got.Equal(tc.want) {
				t.Errorf("sampled at %s, want %s", got, tc.want)
			}
		})
	}
}

// Values that rank clusters are kept for as long as the samples that show room.
func TestExpireRanking(t *testing.T) {
	f := newFixture(v1alpha1.PlacementGateSpec{PeriodSeconds: 15})
	f.source.responses["floor("] = series("cluster1", 3.0)
	f.source.responses["free_devices:sum"] = series("cluster1", 24.0)
	headroom := func() gate.Number {
		got, _ := f.results(t)
		return got["cluster1"].Shapes[0].Headroom
	}
	headroom()
	f.source.failing = "free_devices:sum"
	f.clock.add(timing.DefaultMaxSampleAge)
	f.refresh()
	if got := headroom(); got != gate.Known(24) {
		t.Errorf("headroom %+v, want the cached 24", got)
	}
	f.clock.add(time.Second)
	f.refresh()
	if got := headroom(); got.Known {
		t.Errorf("headroom %+v after two minutes of failures, want unknown", got)
	}
}
