package gate

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/kueuestate"
)

func TestWaitsFor(t *testing.T) {
	no := false
	deleted := metav1.NewTime(t0)
	roomless := &Decision{State: Pending, Message: "no cluster has 8 free"}
	ready := func(s *Snapshot) {
		kueuestate.FindCheck(s.Workload, "plimsoll").State = kueue.CheckStateReady
		s.Decision = &Decision{State: Ready}
	}
	alone := func(s *Snapshot) {
		s.MultiKueue, s.Workload.Status.AdmissionChecks = "", s.Workload.Status.AdmissionChecks[:1]
	}
	for _, tc := range []struct {
		name   string
		change func(*Snapshot)
		want   string
	}{
		{"finished", func(s *Snapshot) { holds(s.Workload, kueue.WorkloadFinished, "True", "") }, "nothing: it is finished"},
		{"on its way out", func(s *Snapshot) { s.Workload.DeletionTimestamp = &deleted }, "its deletion"},
		{"placed", func(s *Snapshot) { s.Cluster = "cluster1" }, "nothing: it is on cluster1"},
		{"deactivated while it held quota", func(s *Snapshot) { s.Workload.Spec.Active = &no }, "its activation: spec.active is false"},
		{"rejected", func(s *Snapshot) {
			s.Workload.Spec.Active, s.Workload.Status.Admission = &no, nil
			holds(s.Workload, kueue.WorkloadEvicted, "True", "admission check budget rejected it")
		}, "its activation: spec.active is false: admission check budget rejected it"},
		{"asleep after a yield", func(s *Snapshot) {
			s.Workload.Spec.Active, s.Workload.Status.Admission = &no, nil
			s.Dispatch.SleepsUntil = t0.Add(12 * time.Second)
		}, "its return to the queue in 12s: it gave its quota to others"},
		{"slept too long", func(s *Snapshot) {
			s.Workload.Spec.Active, s.Dispatch.SleepsUntil = &no, t0.Add(-time.Second)
		}, "the operator to return it to the queue: it gave its quota to others"},
		{"without quota", func(s *Snapshot) {
			s.Workload.Status.Admission, s.Workload.Status.Conditions = nil, nil
			holds(s.Workload, kueue.WorkloadQuotaReserved, "False", "3 more needed")
		}, "quota in its ClusterQueue: 3 more needed"},
		{"evicted", func(s *Snapshot) { holds(s.Workload, kueue.WorkloadEvicted, "True", "") }, "its eviction to complete"},
		{"nominated by its gate", func(s *Snapshot) {
			ready(s)
			s.Workload.Status.NominatedClusterNames = []string{"cluster1", "cluster2"}
		}, "one of cluster1, cluster2 to admit it"},
		{"nominated without a gate", func(s *Snapshot) {
			s.Own, s.Workload.Status.AdmissionChecks = nil, s.Workload.Status.AdmissionChecks[1:]
			s.Workload.Status.NominatedClusterNames = []string{"cluster1"}
		}, "one of cluster1 to admit it"},
		{"two gates", func(s *Snapshot) { s.Own, s.Decision = []string{"a", "b"}, roomless }, "more than one placement check stands on this queue, leave one: a, b"},
		{"no gate", func(s *Snapshot) { s.Fault = "PlacementGate gpu, which does not exist" }, "PlacementGate gpu, which does not exist"},
		{"no room", func(s *Snapshot) { s.Decision = roomless }, "no cluster has 8 free"},
		{"no room any more", func(s *Snapshot) { ready(s); s.Decision = roomless }, "no cluster has 8 free"},
		{"the decision is not known", func(s *Snapshot) { kueuestate.FindCheck(s.Workload, "plimsoll").Message = "as it said" }, "as it said"},
		{"nothing is known", func(*Snapshot) {}, "admission check plimsoll"},
		{"the gate rejected it", func(s *Snapshot) {
			*kueuestate.FindCheck(s.Workload, "plimsoll") = kueue.AdmissionCheckState{Name: "plimsoll", State: kueue.CheckStateRejected, Message: "gave up"}
			s.Decision = roomless
		}, "admission check plimsoll: gave up"},
		{"another check", func(s *Snapshot) {
			ready(s)
			s.Workload.Status.AdmissionChecks = append(s.Workload.Status.AdmissionChecks, kueue.AdmissionCheckState{Name: "budget", State: kueue.CheckStatePending, Message: "no funds"})
		}, "admission check budget: no funds"},
		{"our nomination", ready, "its nomination"},
		{"Kueue's dispatcher", func(s *Snapshot) { ready(s); s.BuiltinDispatcher = true }, "Kueue's dispatcher to nominate clusters"},
		{"Kueue's dispatcher, whatever the gate would say now", func(s *Snapshot) {
			ready(s)
			s.BuiltinDispatcher, s.Decision = true, roomless
		}, "Kueue's dispatcher to nominate clusters"},
		{"Kueue's dispatcher, which was told to leave that to us", func(s *Snapshot) {
			ready(s)
			s.BuiltinDispatcher = true
			kueuestate.FindCheck(s.Workload, "plimsoll").LastTransitionTime = metav1.NewTime(t0.Add(-time.Minute))
		}, "Kueue's dispatcher to nominate clusters, for 1m0s now: does multiKueue.dispatcherName in its configuration name one of its own?"},
		{"Kueue's dispatcher, which has no cluster to nominate", func(s *Snapshot) { ready(s); s.BuiltinDispatcher, s.Connected = true, nil },
			"a cluster of MultiKueueConfig gpu that Kueue is connected to"},
		{"a pinned component", func(s *Snapshot) {
			ready(s)
			s.Workload.Annotations = map[string]string{kueuestate.ComponentAnnotation: "1"}
		}, "Kueue to choose its cluster: it goes where the rest of its job is"},
		{"no gate and no connection", func(s *Snapshot) {
			s.Own, s.Connected = nil, nil
			kueuestate.FindCheck(s.Workload, "plimsoll").State = kueue.CheckStateReady
		},
			"a cluster of MultiKueueConfig gpu that Kueue is connected to"},
		{"a gate alone", func(s *Snapshot) { ready(s); alone(s); s.Decision = roomless }, "Kueue to admit it"},
		{"no check at all", func(s *Snapshot) { alone(s); s.Own, s.Workload.Status.AdmissionChecks = nil, nil }, "Kueue to admit it: no gate decides its queue"},
		{"admitted", func(s *Snapshot) { alone(s); holds(s.Workload, kueue.WorkloadAdmitted, "True", "") }, "nothing: it is admitted"},
	} {
		s := waiting()
		tc.change(&s)
		if got := s.WaitsFor(t0); got != tc.want {
			t.Errorf("%s: waits for %q, want %q", tc.name, got, tc.want)
		}
	}
}
