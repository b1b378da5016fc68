package workload

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/engine"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/admission/waitqueue"
)

func TestMetricsExposition(t *testing.T) {
	gates, reservations, exposed := gatestate.New(), ledger.New(time.Second, time.Hour), prometheus.NewPedanticRegistry()
	clock := func() time.Time { return fixture.Noon }
	waiting := waitqueue.New(gates, clock, func(gatestate.QueryKey, time.Time) {})
	m := newMetrics(exposed, reservations, gates, waiting, clock)
	gates.Put(gatestate.Gate{Name: "gpu"})
	gates.Put(gatestate.Gate{Name: "idle", Clusters: []gatestate.Cluster{{Name: "cluster1"}}})
	h100 := shape.PodSet{Resource: "nvidia.com/gpu", Model: "H100", DevicesPerPod: 8, Pods: 2}
	anyModel := shape.PodSet{Resource: "nvidia.com/gpu", DevicesPerPod: 1, Pods: 1}
	for i, podSets := range [][]shape.PodSet{{h100}, {h100, anyModel}} {
		waiting.Add(waitqueue.Entry{Workload: types.NamespacedName{Name: strconv.Itoa(i)}, Key: gatestate.QueryKey{Gate: "gpu"}, PodSets: podSets})
	}
	gates.SetWaiting("gpu", gatestate.WaitSummary{Workloads: 2, Since: fixture.Noon.Add(-90 * time.Second)})
	gates.SetQueryFaults(map[string]gatestate.QueryFaults{"gpu": {Failing: "fit: connection refused"}})
	reservations.Debit(ledger.Entry{UID: "a", Cluster: "cluster1", DebitedAt: fixture.Noon.Add(-time.Minute), PodSets: []shape.PodSet{{Resource: "nvidia.com/gpu", DevicesPerPod: 8, Pods: 2}}})
	s := &lifecycle.Situation{Workload: &kueue.Workload{Status: kueue.WorkloadStatus{NominatedClusterNames: []string{"cluster3"}}}}
	s.Gate.Name = "gpu"
	ready := 2 * time.Second
	m.count(&engine.Outcome{Situation: s, Step: lifecycle.Step{Decision: &gate.Decision{State: gate.Pending, Reason: gate.ReasonNoRoom}}})
	m.count(&engine.Outcome{Situation: s, ReadyAfter: &ready, Admission: &engine.Admission{Cluster: "cluster2", After: 5 * time.Second},
		Step: lifecycle.Step{Decision: &gate.Decision{State: gate.Ready, Reason: gate.ReasonPlaceable}, Mispredicted: true,
			Writes: []lifecycle.Write{{Nomination: &lifecycle.NominationWrite{Clusters: []string{"cluster3", "cluster1", "cluster2"}, Reason: "Widened"}}}}})

	want := `
# HELP plimsoll_gate_decisions_total Decisions of the gate, by state of the admission check and reason.
# TYPE plimsoll_gate_decisions_total counter
plimsoll_gate_decisions_total{gate="gpu",reason="fleet_requirement_unmet",state="pending"} 0
plimsoll_gate_decisions_total{gate="gpu",reason="gate_not_ready",state="pending"} 0
plimsoll_gate_decisions_total{gate="gpu",reason="never",state="pending"} 0
plimsoll_gate_decisions_total{gate="gpu",reason="no_decisions",state="pending"} 0
plimsoll_gate_decisions_total{gate="gpu",reason="no_metrics",state="pending"} 0
plimsoll_gate_decisions_total{gate="gpu",reason="no_room",state="pending"} 1
plimsoll_gate_decisions_total{gate="gpu",reason="orphaned_copy",state="pending"} 0
plimsoll_gate_decisions_total{gate="gpu",reason="ruled_out",state="pending"} 0
plimsoll_gate_decisions_total{gate="gpu",reason="stale_samples",state="pending"} 0
plimsoll_gate_decisions_total{gate="gpu",reason="placeable",state="ready"} 1
plimsoll_gate_decisions_total{gate="idle",reason="fleet_requirement_unmet",state="pending"} 0
plimsoll_gate_decisions_total{gate="idle",reason="gate_not_ready",state="pending"} 0
plimsoll_gate_decisions_total{gate="idle",reason="never",state="pending"} 0
plimsoll_gate_decisions_total{gate="idle",reason="no_decisions",state="pending"} 0
plimsoll_gate_decisions_total{gate="idle",reason="no_metrics",state="pending"} 0
plimsoll_gate_decisions_total{gate="idle",reason="no_room",state="pending"} 0
plimsoll_gate_decisions_total{gate="idle",reason="orphaned_copy",state="pending"} 0
plimsoll_gate_decisions_total{gate="idle",reason="ruled_out",state="pending"} 0
plimsoll_gate_decisions_total{gate="idle",reason="stale_samples",state="pending"} 0
plimsoll_gate_decisions_total{gate="idle",reason="placeable",state="ready"} 0
# HELP plimsoll_gate_ledger_devices Devices of workloads that were sent to a cluster and that its samples do not show yet.
# TYPE plimsoll_gate_ledger_devices gauge
plimsoll_gate_ledger_devices{cluster="cluster1"} 16
# HELP plimsoll_gate_ledger_oldest_seconds Age of the oldest reservation for a cluster in seconds. A reservation ends when the cluster's samples show the workload.
# TYPE plimsoll_gate_ledger_oldest_seconds gauge
plimsoll_gate_ledger_oldest_seconds{cluster="cluster1"} 60
# HELP plimsoll_gate_mispredictions_total Attempts of a workload that no nominated cluster admitted within the gate's advanced.widenAfterSeconds.
# TYPE plimsoll_gate_mispredictions_total counter
plimsoll_gate_mispredictions_total{gate="gpu"} 1
plimsoll_gate_mispredictions_total{gate="idle"} 0
# HELP plimsoll_gate_nominations_total Nominations of clusters, by cluster and reason.
# TYPE plimsoll_gate_nominations_total counter
plimsoll_gate_nominations_total{cluster="cluster1",reason="eviction_repair"} 0
plimsoll_gate_nominations_total{cluster="cluster1",reason="nominated"} 0
plimsoll_gate_nominations_total{cluster="cluster1",reason="nominated_again"} 0
plimsoll_gate_nominations_total{cluster="cluster1",reason="nominated_all"} 0
plimsoll_gate_nominations_total{cluster="cluster1",reason="widened"} 1
plimsoll_gate_nominations_total{cluster="cluster2",reason="widened"} 1
# HELP plimsoll_gate_oldest_waiting_seconds Time since the longest waiting workload of the gate reserved quota, in seconds; 0 if no workload waits.
# TYPE plimsoll_gate_oldest_waiting_seconds gauge
plimsoll_gate_oldest_waiting_seconds{gate="gpu"} 90
plimsoll_gate_oldest_waiting_seconds{gate="idle"} 0
# HELP plimsoll_gate_queries_failing 1 while the last attempt of a query that the gate recently needed failed, or returned no result for some clusters. The gate's condition QueriesSucceeding names the query and the error.
# TYPE plimsoll_gate_queries_failing gauge
plimsoll_gate_queries_failing{gate="gpu"} 1
plimsoll_gate_queries_failing{gate="idle"} 0
# HELP plimsoll_gate_waiting_devices Number of devices that the waiting workloads of the gate request, by resource and model. model is empty for workloads that may use any model.
# TYPE plimsoll_gate_waiting_devices gauge
plimsoll_gate_waiting_devices{gate="gpu",model="",resource="nvidia.com/gpu"} 1
plimsoll_gate_waiting_devices{gate="gpu",model="H100",resource="nvidia.com/gpu"} 32
# HELP plimsoll_gate_waiting_workloads Number of workloads that hold quota and wait for the gate, including gates that do not exist.
# TYPE plimsoll_gate_waiting_workloads gauge
plimsoll_gate_waiting_workloads{gate="gpu"} 2
plimsoll_gate_waiting_workloads{gate="idle"} 0
`
	names := []string{"plimsoll_gate_decisions_total", "plimsoll_gate_ledger_devices", "plimsoll_gate_mispredictions_total",
		"plimsoll_gate_nominations_total", "plimsoll_gate_oldest_waiting_seconds",
		"plimsoll_gate_queries_failing", "plimsoll_gate_waiting_workloads", "plimsoll_gate_waiting_devices", "plimsoll_gate_ledger_oldest_seconds"}
	if err := testutil.GatherAndCompare(exposed, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(exposed); err != nil || len(problems) > 0 {
		t.Errorf("the metrics violate Prometheus' conventions: %v %v", problems, err)
	}
	if sums := histogramSums(t, exposed); sums["plimsoll_gate_ready_seconds"] != 2 || sums["plimsoll_gate_admitted_seconds"] != 5 {
		t.Errorf("want 2 s to Ready and 5 s to admission, got %v", sums)
	}
}

// histogramSums are the sums of all series of the histograms, in seconds rounded to
// milliseconds.
func histogramSums(t *testing.T, gatherer prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := gatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if h := m.GetHistogram(); h != nil {
				sums[f.GetName()] += math.Round(h.GetSampleSum()*1000) / 1000
			}
		}
	}
	return sums
}

// The API has a resolution of one second. A decision takes milliseconds.
func TestDurationsHaveMillisecondResolution(t *testing.T) {
	for _, tc := range []struct {
		name            string
		seen            time.Duration // after the second in which quota was reserved
		ready, admitted float64
	}{
		{"quota seen at once", 300 * time.Millisecond, 0.03, 0.23},
		{"quota seen five seconds late", 5 * time.Second, 4.03, 4.23},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			b.room(onlyCluster1)
			b.create(fixture.PendingWorkload(fixture.Noon))
			exposed := prometheus.NewRegistry()
			exposed.MustRegister(b.metrics.readySeconds, b.metrics.admitSeconds)
			b.clock.add(tc.seen)
			s := b.look()
			s = b.account(s)
			b.clock.add(30 * time.Millisecond)
			out := &engine.Outcome{Situation: s, Step: b.engine.Reserve(s)}
			if err := b.engine.Apply(t.Context(), out); err != nil {
				t.Fatal(err)
			}
			b.metrics.count(out)
			b.clock.add(200 * time.Millisecond)
			b.update(func(wl *kueue.Workload) {
				fixture.SetCondition(wl, kueue.WorkloadAdmitted, b.now().Truncate(time.Second))
			})
			b.reconcile()
			want := map[string]float64{"plimsoll_gate_ready_seconds": tc.ready, "plimsoll_gate_admitted_seconds": tc.admitted}
			if diff := cmp.Diff(want, histogramSums(t, exposed)); diff != "" {
				t.Errorf("sums in seconds (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSnakeCase(t *testing.T) {
	for reason, want := range map[string]string{"NoRoom": "no_room", "Pending": "pending", "PlacedByKueue": "placed_by_kueue", "": ""} {
		t.Run(reason, func(t *testing.T) {
			if got := snakeCase(reason); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}
