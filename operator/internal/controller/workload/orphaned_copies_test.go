package workload

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
)

// Room on both clusters, or on one.
var (
	bothClusters = map[string]float64{"cluster1": 9, "cluster2": 9}
	onlyCluster1 = map[string]float64{"cluster1": 9}
	onlyCluster2 = map[string]float64{"cluster2": 9}
)

// withLostQuota gives the workload a history: nominated to cluster1, perhaps admitted there,
// then without quota since a time.
func (b *bench) withLostQuota(isAdmitted bool, reason string, at time.Time) {
	b.t.Helper()
	now := b.now()
	b.clock.time = at
	wl := fixture.PendingWorkload(fixture.Noon)
	wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: reason, LastTransitionTime: metav1.NewTime(at)}}
	h := lifecycle.History{}.WithNominations([]string{"cluster1"})
	if isAdmitted {
		h.Running = &ledger.Entry{Cluster: "cluster1"}
	}
	b.engine.Remember(wl.UID, h)
	for range 2 { // looks without quota
		b.account(&lifecycle.Situation{Key: b.key, Workload: wl, Now: at, History: b.engine.History(wl.UID)})
	}
	b.clock.time = now
}

// A copy that Kueue could not yet remove runs on. Nominated again it is adopted, and no
// second copy runs beside it.
func TestClusterOfAPossibleCopyIsNominatedAgain(t *testing.T) {
	for _, tc := range []struct {
		name      string
		lostQuota time.Duration // ago
		room      map[string]float64
		admitted  bool // by cluster1, as Kueue had recorded
		clusters  []string
		want      []string
	}{
		{"its devices are taken, perhaps by the copy", 3 * time.Second, onlyCluster2, false, nil, []string{"cluster2", "cluster1"}},
		{"it has room, so there is no second copy", 3 * time.Second, bothClusters, false, nil, []string{"cluster1"}},
		{"it is no candidate any more", 3 * time.Second, onlyCluster2, false, []string{"cluster2"}, []string{"cluster2"}},
		{"Kueue had the time to remove the copy", time.Minute, onlyCluster2, false, nil, []string{"cluster2"}},
		{"Kueue had recorded the copy and removed it", 16 * time.Second, onlyCluster2, true, nil, []string{"cluster2"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			b.room(tc.room)
			if tc.clusters != nil {
				b.putGate(func(g *gatestate.Gate) { g.Clusters = []gatestate.Cluster{{Name: tc.clusters[0]}} })
			}
			b.create(fixture.Nominated(fixture.PendingWorkload(fixture.Noon)))
			b.withLostQuota(tc.admitted, "", fixture.Noon.Add(-tc.lostQuota))
			b.reconcile()
			if reason := b.dispatchRecord().Reason; strings.Contains(reason, "cluster1 may still hold a copy of the last attempt") != (len(tc.want) > 1) {
				t.Errorf("the reason is %q", reason)
			}
			if diff := cmp.Diff(tc.want, b.workload().Status.NominatedClusterNames); diff != "" {
				t.Errorf("nominated (-want +got):\n%s", diff)
			}
		})
	}
}

// If another cluster admitted the workload while the copy is out of reach, Kueue would
// remove that one as soon as the older copy is back.
func TestWaitForCopyOutOfReach(t *testing.T) {
	const (
		disconnected, unconfigured = -1, -2
		unreachable                = "which Kueue can't reach"
	)
	for _, tc := range []struct {
		name      string
		lostQuota time.Duration // ago
		connected time.Duration // ago, of cluster1
		ended     string        // reason for the end of the run on cluster1; empty = never admitted
		room      map[string]float64
		want      []string
		wait      time.Duration
		why       string
	}{
		{"disconnected", 19 * time.Second, disconnected, "", bothClusters, nil, 11 * time.Second, unreachable},
		{"disconnected for longer than nominations wait", 31 * time.Second, disconnected, "", bothClusters, []string{"cluster2"}, 0, ""},
		{"removed from the configuration", 19 * time.Second, unconfigured, "", bothClusters, []string{"cluster2"}, 0, ""},
		{"connected again with room", 19 * time.Second, time.Second, "", bothClusters, []string{"cluster1"}, 0, ""},
		{"connected again without room", 19 * time.Second, time.Second, "", onlyCluster2, []string{"cluster2", "cluster1"}, 0, ""},
		{"connected for so long that the copy is removed", 19 * time.Second, 11 * time.Second, "", onlyCluster2, []string{"cluster2"}, 0, ""},
		{"ran there, may be disconnected", 3 * time.Second, time.Hour, "Preempted", onlyCluster2, nil, 12 * time.Second, "from which Kueue may not have removed it yet"},
		{"ran there, goes there again", 3 * time.Second, time.Hour, "Preempted", onlyCluster1, []string{"cluster1"}, 0, ""},
		{"ran there, disconnected", 16 * time.Second, disconnected, "Preempted", bothClusters, nil, 14 * time.Second, unreachable},
		{"ran there, connected again", 16 * time.Second, time.Second, "Preempted", onlyCluster2, []string{"cluster2", "cluster1"}, 0, ""},
		{"ran there, removed by Kueue", 16 * time.Second, time.Hour, "Preempted", onlyCluster2, []string{"cluster2"}, 0, ""},
		{"ran there until the worker ended it", 3 * time.Second, time.Hour, "AdmissionCheck", onlyCluster2, []string{"cluster2"}, 0, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			b.room(tc.room)
			switch tc.connected {
			case unconfigured:
				b.configure("cluster2")
			case disconnected:
				b.disconnect("cluster1")
			default:
				b.connect("cluster1", fixture.Noon.Add(-tc.connected))
			}
			b.create(fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon)))
			b.withLostQuota(tc.ended != "", tc.ended, fixture.Noon.Add(-tc.lostQuota))
			b.expectExplained()
			result := b.reconcile()
			if diff := cmp.Diff(tc.want, b.workload().Status.NominatedClusterNames); diff != "" {
				t.Errorf("nominated (-want +got):\n%s", diff)
			}
			if tc.wait == 0 {
				return
			}
			want := "waits until " + fixture.Noon.Add(tc.wait).Format(time.TimeOnly) + " UTC for its last copy on cluster1, " + tc.why
			if check := b.check(); check.State != kueue.CheckStatePending || check.Message != want || result.RequeueAfter != tc.wait {
				t.Errorf("got %s %q, next look after %s", check.State, check.Message, result.RequeueAfter)
			}
		})
	}
}
