package workload

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/gate"
)

// What the gate exposes, as Prometheus reads it.
func TestMetricsOfTheGate(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	board, ledger, registry := gate.NewBoard(), gate.NewLedger(time.Second, time.Hour), prometheus.NewPedanticRegistry()
	m := newMetrics(registry, ledger, board, func() time.Time { return now })
	board.Put(gate.Gate{Name: "gpu"})
	board.Put(gate.Gate{Name: "idle"})
	board.SetWaiting("gpu", gate.Queue{Workloads: 2, Since: now.Add(-90 * time.Second)})
	ledger.Debit(gate.Entry{UID: "a", Cluster: "cluster1", Debited: now, PodSets: []gate.PodSet{{Resource: "nvidia.com/gpu", DevicesPerPod: 8, Pods: 2}}})
	wl := &kueue.Workload{Status: kueue.WorkloadStatus{Conditions: []metav1.Condition{
		{Type: kueue.WorkloadQuotaReserved, Status: "True", LastTransitionTime: metav1.NewTime(now.Add(-2 * time.Second))}}}}
	m.decided("gpu", gate.Decision{State: gate.Pending, Reason: gate.ReasonNoRoom})
	m.decided("gpu", gate.Decision{State: gate.Ready, Reason: gate.ReasonPlaceable})
	m.ready("gpu", wl, now)
	m.nominated([]string{"cluster1", "cluster2"}, "Widened")
	m.mispredicted("gpu")
	m.admitted("gpu", "cluster2", wl, now.Add(3*time.Second))

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
# HELP plimsoll_gate_waiting_workloads Workloads that hold quota and that a gate keeps waiting, whether or not it exists.
# TYPE plimsoll_gate_waiting_workloads gauge
plimsoll_gate_waiting_workloads{gate="gpu"} 2
plimsoll_gate_waiting_workloads{gate="idle"} 0
`
	names := []string{"plimsoll_gate_decisions_total", "plimsoll_gate_ledger_devices", "plimsoll_gate_mispredictions_total",
		"plimsoll_gate_nominations_total", "plimsoll_gate_oldest_waiting_seconds", "plimsoll_gate_waiting_workloads"}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("not as Prometheus' conventions have it: %v %v", problems, err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]float64{}
	for _, f := range families {
		if h := f.GetMetric()[0].GetHistogram(); h != nil {
			sums[f.GetName()] = h.GetSampleSum()
		}
	}
	if sums["plimsoll_gate_ready_seconds"] != 2 || sums["plimsoll_gate_admitted_seconds"] != 5 {
		t.Errorf("2 s to Ready and 5 s to admission, got %v", sums)
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
