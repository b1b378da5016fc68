package querycache

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
)

const quotaTimeQuery = `min by (cluster) (cluster:kueue_sample_timestamp_seconds:min)`

// newQuotaFixture has a quota of 8 devices on both clusters. The samples of devices are 5 s old, and
// those of Kueue 40 s.
func newQuotaFixture(spec v1alpha1.PlacementGateSpec) *fixture {
	f := newRemoteFixture(spec)
	f.source.responses["floor("] = series("cluster1", 3.0, "cluster2", 3.0)
	f.source.responses["unreserved_quota"] = ofQueue("cq", series("cluster1", 8.0, "cluster2", 8.0))
	f.source.responses["my_quota"] = series("cluster1", 8.0, "cluster2", 8.0)
	f.setTimes(5, 40)
	return f
}

// setTimes sets the ages of the samples in seconds.
func (f *fixture) setTimes(devices, quota float64) {
	f.source.responses["cluster:plimsoll_sample_timestamp"] = series("cluster1", f.unixIn(-devices), "cluster2", f.unixIn(-devices))
	f.source.responses["cluster:kueue_sample_timestamp"] = series("cluster1", f.unixIn(-quota))
}

// quotaAges returns the age of cluster1's samples of devices and of its quota in seconds; -1 = unknown.
func (f *fixture) quotaAges(t *testing.T) (ages [2]float64) {
	t.Helper()
	clusters, _ := f.results(t)
	for i, at := range []time.Time{clusters["cluster1"].SampledAt, clusters["cluster1"].QuotaSampledAt} {
		if ages[i] = -1; !at.IsZero() {
			ages[i] = f.clock.now().Sub(at).Seconds()
		}
	}
	return ages
}

func TestQuotaHasItsOwnSampleTime(t *testing.T) {
	f := newQuotaFixture(v1alpha1.PlacementGateSpec{PeriodSeconds: 15})
	if got := f.quotaAges(t); got != [2]float64{5, 40} {
		t.Errorf("ages %v", got)
	}
	got, _ := f.results(t)
	if two := got["cluster2"]; !two.QuotaSampledAt.IsZero() || two.SampledAt.IsZero() || two.Shapes[0].Quota != gate.Known(8) {
		t.Errorf("cluster2, whose rules have no time of the quota: %+v", two)
	}
	f.clock.add(20 * time.Second)
	f.setTimes(5, 10)
	f.refresh()
	if got := f.quotaAges(t); got != [2]float64{5, 10} {
		t.Errorf("ages %v after a refresh", got)
	}
}

// The time that was known when the quota was queried counts.
func TestQuotaTimeIsNoNewerThanTheQuota(t *testing.T) {
	for _, tc := range []struct {
		name, failing string
		want          float64 // age of the quota
		problem       bool
	}{
		{"the query for the quota fails", `unreserved_quota:max{`, 60, true},
		{"the query for its time fails", quotaTimeQuery, 60, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newQuotaFixture(v1alpha1.PlacementGateSpec{PeriodSeconds: 15})
			f.results(t)
			f.source.failing = tc.failing
			f.clock.add(20 * time.Second)
			f.setTimes(5, 1)
			f.refresh()
			if got := f.quotaAges(t)[1]; got != tc.want {
				t.Errorf("the quota is %g s old, want %g", got, tc.want)
			}
			clusters, fleet := f.results(t)
			if quota := clusters["cluster1"].Shapes[0].Quota; quota != gate.Known(8) || (fleet.Problem != "") != tc.problem {
				t.Errorf("quota %+v, problem %q", quota, fleet.Problem)
			}
		})
	}
}

func TestGatesWithoutATimeOfTheQuota(t *testing.T) {
	for _, tc := range []struct {
		name   string
		spec   v1alpha1.PlacementGateSpec
		change func(*fixture)
		want   int // queries for the time
	}{
		{"own quota query", v1alpha1.PlacementGateSpec{Queries: v1alpha1.GateQueries{Quota: "my_quota"}}, func(*fixture) {}, 0},
		{"workload that stays on the hub", v1alpha1.PlacementGateSpec{}, func(f *fixture) { f.facts.Remote = false }, 0},
		{"rules of an older release", v1alpha1.PlacementGateSpec{}, func(f *fixture) { delete(f.source.responses, "cluster:kueue_sample_timestamp") }, 1},
		{"a time in the future", v1alpha1.PlacementGateSpec{}, func(f *fixture) { f.setTimes(5, -3600) }, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newQuotaFixture(tc.spec)
			tc.change(f)
			if got := f.quotaAges(t); got != [2]float64{5, -1} {
				t.Errorf("ages %v", got)
			}
			if n := f.source.queryCounts()[quotaTimeQuery]; n != tc.want {
				t.Errorf("the time of the quota was queried %d times, want %d", n, tc.want)
			}
		})
	}
}

// Shapes share the time of the quota, and workloads that stay on the hub share the fit of those that do
// not.
func TestQuotaTimeIsSharedByShapes(t *testing.T) {
	f := newQuotaFixture(v1alpha1.PlacementGateSpec{})
	f.results(t)
	f.facts.PodSets = podSets("NVIDIA-L4", 4)
	f.results(t)
	n := len(f.source.queries)
	f.facts.Remote = false
	f.results(t)
	if counts := f.source.queryCounts(); counts[quotaTimeQuery] != 1 || len(f.source.queries) != n {
		t.Errorf("queries %v, %d of a workload that stays on the hub", counts, len(f.source.queries)-n)
	}
}

// The ledger keeps the quota of an entry while a cached result is too old to include it.
func TestOldestQuotaTimes(t *testing.T) {
	f := newQuotaFixture(v1alpha1.PlacementGateSpec{PeriodSeconds: 15})
	f.results(t)
	f.clock.add(20 * time.Second)
	f.setTimes(1, 2)
	f.facts.PodSets = podSets("NVIDIA-L4", 8) // the results of the first shape stay
	f.facts.PodSets[0].Flavor = "l4"
	f.results(t)
	seconds := func(ago int) time.Time { return f.clock.now().Add(-time.Duration(ago) * time.Second) }
	want := map[string]ledger.SampleTimes{"cluster1": {Devices: seconds(25), Quota: seconds(60)}, "cluster2": {Devices: seconds(25)}}
	if diff := cmp.Diff(want, f.oldestSampleTimes()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
