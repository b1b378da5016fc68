package workload

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/ledger"
	"plimsoll.dev/plimsoll/operator/internal/registry"
	"plimsoll.dev/plimsoll/operator/internal/shape"
)

// What the gate exposes, as Prometheus reads it.
func TestMetricsOfTheGate(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	board, ledger, registry := registry.New(), ledger.New(time.Second, time.Hour), prometheus.NewPedanticRegistry()
	m := newMetrics(registry, ledger, board, func() time.Time { return now })
	board.Put(registry.Gate{Name: "gpu"})
	board.Put(registry.Gate{Name: "idle"})
	board.SetWaiting("gpu", registry.WaitSummary{Workloads: 2, Since: now.Add(-90 * time.Second)})
	board.SetFailingQueries(map[string]string{"gpu": "not answered: fit: connection refused"})
	ledger.Debit(ledger.Entry{UID: "a", Cluster: "cluster1", DebitedAt: now, PodSets: []shape.PodSet{{Resource: "nvidia.com/gpu", DevicesPerPod: 8, Pods: 2}}})
	m.decided("gpu", gate.Decision{State: gate.Pending, Reason: gate.ReasonNoRoom})
	m.decided("gpu", gate.Decision{State: gate.Ready, Reason: gate.ReasonPlaceable})
	m.ready("gpu", 2*time.Second)
	m.nominated([]string{"cluster1", "cluster2"}, "Widened")
	m.mispredicted("gpu")
	m.admitted("gpu", "cluster2", 5*time.Second)

	want := `
# HELP plimsoll_gate_decisions_total Decisions about workloads, by gate, state and reason.
# TYPE plimsoll_gate_decisions_total counter
plimsoll_gate_decisions_total{gate="gpu",reason="NoRoom",state="Pending"} 1
plimsoll_gate_decisions_total{gate="gpu",reason="Placeable",state="Ready"} 1
# HELP plimsoll_gate_ledger_devices Devices sent to a cluster and not yet seen in its metrics.
# TYPE plimsoll_gate_ledger_devices gauge
plimsoll_gate_ledger_devices{cluster="cluster1"} 16
# HELP plimsoll_gate_mispredictions_total Nominations that no cluster admitted in time.
# TYPE plimsoll_gate_mispredictions_total counter
plimsoll_gate_mispredictions_total{gate="gpu"} 1
# HELP plimsoll_gate_nominations_total Clusters nominated, by cluster and why.
# TYPE plimsoll_gate_nominations_total counter
plimsoll_gate_nominations_total{cluster="cluster1",reason="Widened"} 1
plimsoll_gate_nominations_total{cluster="cluster2",reason="Widened"} 1
# HELP plimsoll_gate_oldest_waiting_seconds Seconds since the longest waiting workload got its quota; 0 when none waits.
# TYPE plimsoll_gate_oldest_waiting_seconds gauge
plimsoll_gate_oldest_waiting_seconds{gate="gpu"} 90
plimsoll_gate_oldest_waiting_seconds{gate="idle"} 0
# HELP plimsoll_gate_queries_failing 1 while some query that the gate needed of late was not answered, or not for all clusters, when it was asked last; the gate's condition QueriesSucceeding says which and why.
# TYPE plimsoll_gate_queries_failing gauge
plimsoll_gate_queries_failing{gate="gpu"} 1
plimsoll_gate_queries_failing{gate="idle"} 0
# HELP plimsoll_gate_waiting_workloads Workloads that hold quota and that a gate keeps waiting, whether or not it exists.
# TYPE plimsoll_gate_waiting_workloads gauge
plimsoll_gate_waiting_workloads{gate="gpu"} 2
plimsoll_gate_waiting_workloads{gate="idle"} 0
`
	names := []string{"plimsoll_gate_decisions_total", "plimsoll_gate_ledger_devices", "plimsoll_gate_mispredictions_total",
		"plimsoll_gate_nominations_total", "plimsoll_gate_oldest_waiting_seconds",
		"plimsoll_gate_queries_failing", "plimsoll_gate_waiting_workloads"}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("not as Prometheus' conventions have it: %v %v", problems, err)
	}
	if sums := sums(t, registry); sums["plimsoll_gate_ready_seconds"] != 2 || sums["plimsoll_gate_admitted_seconds"] != 5 {
		t.Errorf("2 s to Ready and 5 s to admission, got %v", sums)
	}
}

// sums of the histograms, in seconds rounded to milliseconds.
func sums(t *testing.T, registry prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]float64{}
	for _, f := range families {
		if h := f.GetMetric()[0].GetHistogram(); h != nil {
			sums[f.GetName()] = math.Round(h.GetSampleSum()*1000) / 1000
		}
	}
	return sums
}

// The hub tells the time in whole seconds, a decision takes milliseconds.
func TestHowLongItTookIsToldInMilliseconds(t *testing.T) {
	for name, tc := range map[string]struct {
		seen            time.Duration // after the second in which quota was reserved
		ready, admitted float64
	}{
		"seen at once":           {300 * time.Millisecond, 0.03, 0.23},
		"seen five seconds late": {5 * time.Second, 4.03, 4.23},
	} {
		b := newBench(v1alpha1.PlacementGateSpec{})
		r, s := b.operator(t, b.holder(noon))
		registry := prometheus.NewRegistry()
		registry.MustRegister(r.metrics.readySeconds, r.metrics.admitSeconds)
		b.add(tc.seen)
		r.track(t.Context(), s)
		b.add(30 * time.Millisecond)
		d := gate.Decision{State: gate.Ready, Message: "cluster1 can take it: room for 1 such pod there"}
		if err := r.writeCheck(t.Context(), s, d, dispatch.Record{}); err != nil {
			t.Fatal(err)
		}
		b.add(200 * time.Millisecond)
		condition(s.wl, kueue.WorkloadAdmitted, b.clock.now().Truncate(time.Second))
		r.track(t.Context(), s)
		want := map[string]float64{"plimsoll_gate_ready_seconds": tc.ready, "plimsoll_gate_admitted_seconds": tc.admitted}
		if diff := cmp.Diff(want, sums(t, registry)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestAnAttemptIsMispredictedOnce(t *testing.T) {
	tracks := newTracks()
	for i, want := range []bool{true, false, false} {
		if got := tracks.late("uid", 1); got != want {
			t.Errorf("look %d: news %t, want %t", i+1, got, want)
		}
	}
	if !tracks.late("uid", 2) {
		t.Error("the next attempt may be mispredicted, too")
	}
}
