package workload

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"plimsoll.dev/plimsoll/operator/internal/admission/engine"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
)

func TestAdmissionMetrics(t *testing.T) {
	e := engine.New(engine.Options{Now: func() time.Time { return fixture.Noon }})
	e.Remember("a", lifecycle.History{PodsLate: &lifecycle.LateAdmission{Gate: "gpu", Cluster: "cluster2"}})
	e.Remember("b", lifecycle.History{})
	e.ObserveLag(fixture.Noon.Add(-7*time.Second), fixture.Noon.Add(-4*time.Second))
	collector := newAdmissionCollector(e, func() bool { return true })
	want := `
# HELP plimsoll_dispatching 1 if this replica of the operator leads and nominates clusters for MultiKueue; 0 if another replica leads, none does, or --multikueue-dispatch is off.
# TYPE plimsoll_dispatching gauge
plimsoll_dispatching 1
# HELP plimsoll_gate_admitted_not_ready_workloads Number of workloads that a cluster admitted more than 10 minutes ago and whose pods have not been ready since. Kueue must report PodsReady (waitForPodsReady).
# TYPE plimsoll_gate_admitted_not_ready_workloads gauge
plimsoll_gate_admitted_not_ready_workloads{cluster="cluster2",gate="gpu"} 1
# HELP plimsoll_multikueue_lag_seconds Estimated time from a nomination to MultiKueue's copy of the workload, in seconds: the shortest time from nomination to admission within the last minute; 0 if there was no admission.
# TYPE plimsoll_multikueue_lag_seconds gauge
plimsoll_multikueue_lag_seconds 3
`
	if err := testutil.CollectAndCompare(collector, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	collector.isDispatching = func() bool { return false }
	if got := testutil.CollectAndCount(collector, "plimsoll_dispatching"); got != 1 {
		t.Errorf("a replica that does not lead exports %d series of plimsoll_dispatching, want 1 with the value 0", got)
	}
}
