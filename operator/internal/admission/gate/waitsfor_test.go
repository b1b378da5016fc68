package gate

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
)

func TestWaitsFor(t *testing.T) {
	inactive := false
	deleted := metav1.NewTime(t0)
	noRoom := &Decision{State: Pending, Reason: ReasonNoRoom, Message: "no cluster has 8 free"}
	ready := func(s *Snapshot) {
		kueuestate.FindCheck(s.Workload, "plimsoll").State = kueue.CheckStateReady
		s.Decision = &Decision{State: Ready}
	}
	builtinSince := func(seconds int) func(*Snapshot) {
		return func(s *Snapshot) {
			ready(s)
			s.BuiltinDispatcher = true
			kueuestate.FindCheck(s.Workload, "plimsoll").LastTransitionTime = metav1.NewTime(before(seconds))
		}
	}
	withoutMultiKueue := func(s *Snapshot) {
		s.MultiKueue, s.Workload.Status.AdmissionChecks = "", s.Workload.Status.AdmissionChecks[:1]
	}
	for _, tc := range []struct {
		name   string
		change func(*Snapshot)
		want   string
	}{
		{"finished", func(s *Snapshot) { setCondition(s.Workload, kueue.WorkloadFinished, "True", "") }, "nothing: the workload has finished"},
		{"being deleted", func(s *Snapshot) { s.Workload.DeletionTimestamp = &deleted }, "deletion to complete"},
		{"placed", func(s *Snapshot) { s.Cluster = "cluster1" }, "nothing: the workload is on cluster1"},
		{"deactivated with quota", func(s *Snapshot) { s.Workload.Spec.Active = &inactive }, "activation: spec.active is false"},
		{"rejected", func(s *Snapshot) {
			s.Workload.Spec.Active, s.Workload.Status.Admission = &inactive, nil
			setCondition(s.Workload, kueue.WorkloadEvicted, "True", "admission check budget rejected it")
		}, "activation: spec.active is false: admission check budget rejected it"},
		{"asleep after a yield", func(s *Snapshot) {
			s.Workload.Spec.Active, s.Workload.Status.Admission = &inactive, nil
			s.Dispatch.SleepsUntil = t0.Add(12 * time.Second)
		}, "activation in 12s: the workload returned its quota for other workloads"},
		{"reclaimed", func(s *Snapshot) {
			s.Workload.Spec.Active, s.Dispatch = &inactive, dispatch.Record{}.Reclaim("idle-gpus", "its 8 devices on c1 have been idle for 47m0s", 0, t0)
		}, "activation in 15s: ReclaimPolicy idle-gpus returned it to its queue, because its 8 devices on c1 have been idle for 47m0s"},
		{"asleep for too long", func(s *Snapshot) {
			s.Workload.Spec.Active, s.Dispatch.SleepsUntil = &inactive, t0.Add(-time.Second)
		}, "eviction to complete: the workload returned its quota for other workloads"},
		{"asleep for too long, without quota", func(s *Snapshot) {
			s.Workload.Spec.Active, s.Workload.Status.Admission, s.Dispatch.SleepsUntil = &inactive, nil, t0.Add(-time.Second)
		}, "activation by the operator: the workload returned its quota for other workloads"},
		{"without quota", func(s *Snapshot) {
			s.Workload.Status.Admission, s.Workload.Status.Conditions = nil, nil
			setCondition(s.Workload, kueue.WorkloadQuotaReserved, "False", "3 more needed")
		}, "quota in its ClusterQueue: 3 more needed"},
		{"without quota, for a reason that Kueue does not state", func(s *Snapshot) {
			s.Workload.Status.Admission, s.Workload.Status.Conditions = nil, nil
			setCondition(s.Workload, kueue.WorkloadQuotaReserved, "False", "")
		}, "quota in its ClusterQueue"},
		{"evicted", func(s *Snapshot) { setCondition(s.Workload, kueue.WorkloadEvicted, "True", "") }, "eviction to complete"},
		{"nominated by the gate", func(s *Snapshot) {
			ready(s)
			s.Workload.Status.NominatedClusterNames = []string{"cluster1", "cluster2"}
		}, "admission by one of cluster1, cluster2"},
		{"nominated without a gate", func(s *Snapshot) {
			s.Own, s.Workload.Status.AdmissionChecks = nil, s.Workload.Status.AdmissionChecks[1:]
			s.Workload.Status.NominatedClusterNames = []string{"cluster1"}
		}, "admission by cluster1"},
		{"two gates", func(s *Snapshot) { s.Own, s.Decision = []string{"a", "b"}, noRoom }, "the queue has several placement checks, keep one of: a, b"},
		{"missing gate", func(s *Snapshot) { s.Fault = "PlacementGate gpu, which does not exist" }, "PlacementGate gpu, which does not exist"},
		{"no room", func(s *Snapshot) { s.Decision = noRoom }, "no cluster has 8 free"},
		{"no room since the check became Ready", func(s *Snapshot) { ready(s); s.Decision = noRoom }, "no cluster has 8 free"},
		{"unknown decision, check with message", func(s *Snapshot) { kueuestate.FindCheck(s.Workload, "plimsoll").Message = "message of the check" }, "message of the check"},
		{"unknown decision, check without message", func(*Snapshot) {}, "admission check plimsoll"},
		{"rejected by the gate", func(s *Snapshot) {
			*kueuestate.FindCheck(s.Workload, "plimsoll") = kueue.AdmissionCheckState{Name: "plimsoll", State: kueue.CheckStateRejected, Message: "gave up"}
			s.Decision = noRoom
		}, "admission check plimsoll: gave up"},
		{"retried", func(s *Snapshot) {
			*kueuestate.FindCheck(s.Workload, "plimsoll") = kueue.AdmissionCheckState{Name: "plimsoll", State: kueue.CheckStateRetry, Message: "yields"}
			s.Decision = noRoom
		}, "admission check plimsoll: yields"},
		{"room, and the check is still Pending", func(s *Snapshot) { s.Decision = &Decision{State: Ready} }, "nomination by the operator"},
		{"Ready, and the decision is unknown", func(s *Snapshot) { ready(s); s.Decision = nil }, "nomination by the operator"},
		{"Ready, and the gate is missing now", func(s *Snapshot) { ready(s); s.Decision, s.Fault = nil, "PlacementGate gpu, which does not exist" }, "PlacementGate gpu, which does not exist"},
		{"check of another controller", func(s *Snapshot) {
			ready(s)
			s.Workload.Status.AdmissionChecks = append(s.Workload.Status.AdmissionChecks, kueue.AdmissionCheckState{Name: "budget", State: kueue.CheckStatePending, Message: "no funds"})
		}, "admission check budget: no funds"},
		{"nomination by the operator", ready, "nomination by the operator"},
		{"built-in dispatcher", func(s *Snapshot) { ready(s); s.BuiltinDispatcher = true }, "Kueue's built-in dispatcher to nominate clusters"},
		{"built-in dispatcher, and no room now", func(s *Snapshot) {
			ready(s)
			s.BuiltinDispatcher, s.Decision = true, noRoom
		}, "Kueue's built-in dispatcher to nominate clusters"},
		{"built-in dispatcher within its time", builtinSince(29), "Kueue's built-in dispatcher to nominate clusters"},
		{"built-in dispatcher that is disabled", builtinSince(30), "Kueue's built-in dispatcher to nominate clusters for 30s: multiKueue.dispatcherName in Kueue's configuration must name a built-in dispatcher"},
		{"built-in dispatcher without a connected cluster", func(s *Snapshot) { ready(s); s.BuiltinDispatcher, s.Connected = true, nil },
			"a cluster of MultiKueueConfig gpu that Kueue is connected to"},
		{"pinned component", func(s *Snapshot) {
			ready(s)
			s.Workload.Annotations = map[string]string{kueuestate.ComponentAnnotation: "1"}
		}, "Kueue to choose its cluster: the workload follows the other parts of its job"},
		{"no gate and no connected cluster", func(s *Snapshot) {
			s.Own, s.Connected = nil, nil
			kueuestate.FindCheck(s.Workload, "plimsoll").State = kueue.CheckStateReady
		}, "a cluster of MultiKueueConfig gpu that Kueue is connected to"},
		{"gate without MultiKueue", func(s *Snapshot) { ready(s); withoutMultiKueue(s); s.Decision = noRoom }, "admission by Kueue"},
		{"no check", func(s *Snapshot) { withoutMultiKueue(s); s.Own, s.Workload.Status.AdmissionChecks = nil, nil }, "admission by Kueue: no gate decides for this queue"},
		{"no check that can be read", func(s *Snapshot) {
			withoutMultiKueue(s)
			s.Own, s.Workload.Status.AdmissionChecks, s.ChecksUnknown = nil, nil, true
		}, "admission by Kueue"},
		{"admitted", func(s *Snapshot) { withoutMultiKueue(s); setCondition(s.Workload, kueue.WorkloadAdmitted, "True", "") }, "nothing: Kueue has admitted the workload"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := snapshot()
			tc.change(&s)
			got := s.Wait(t0)
			if got.For != tc.want {
				t.Errorf("got %q, want %q", got.For, tc.want)
			}
			if waits := !strings.HasPrefix(got.For, "nothing"); waits != (got.Next != "") {
				t.Errorf("the next event is %q", got.Next)
			}
		})
	}
}

func TestNextOfDecision(t *testing.T) {
	s := snapshot()
	s.Decision, s.Period = &Decision{State: Pending, Reason: ReasonNoRoom, Message: "no cluster has 8 free"}, 15*time.Second
	if got, want := s.Wait(t0).Next, "metrics show free devices or quota; the gate looks every 15s"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	s.Decision.Reason = ReasonJoining
	if got, want := s.Wait(t0).Next, "a cluster without workloads leaves the MultiKueueConfig"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A workload that is ruled out everywhere waits for the end of one of these rejections, and not for any change.
func TestNextOfRuledOut(t *testing.T) {
	s := snapshot()
	s.Decision = &Decision{State: Pending, Reason: ReasonRuledOut, Message: "no cluster is eligible"}
	s.Rejections = []Rejection{RejectAvoided, RejectDisconnected, RejectDisconnected, RejectNoRoom}
	if got, want := s.Wait(t0).Next, "Kueue connects to a cluster, or the time ends for which it avoids a cluster"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, row := range rejections {
		if isRuledOut := row.reason == ReasonRuledOut; isRuledOut != (row.next != "") {
			t.Errorf("%s has the next event %q", row.rejection, row.next)
		}
	}
}

// Whoever reads why a workload waits also reads what can change that.
func TestEveryReasonHasANextEvent(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "decide.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Reason") || spec.Names[0].Name == "ReasonPlaceable" {
			return true
		}
		found++
		reason, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		s := snapshot()
		s.Decision = &Decision{State: Pending, Reason: reason, Message: "why"}
		if err != nil || s.Wait(t0).Next == "" {
			t.Errorf("%s has no next event (%v)", reason, err)
		}
		return true
	})
	if found != len(nextEvents) || found < 10 {
		t.Errorf("%d reasons and %d next events", found, len(nextEvents))
	}
}
