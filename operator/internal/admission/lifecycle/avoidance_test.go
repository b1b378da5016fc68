package lifecycle

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// lostQuotaBy is the state of a workload that lost its quota by its first eviction.
func lostQuotaBy(reason string) func(*Situation) {
	return func(s *Situation) {
		fixture.WithoutQuota(s.Workload)
		s.Workload.Status.SchedulingStats = &kueue.SchedulingStats{Evictions: []kueue.WorkloadSchedulingStatsEviction{{Reason: reason, Count: 1}}}
	}
}

// A start fails if a cluster admits a workload and Kueue takes it away before its pods were ready, because of that.
func TestFailedStart(t *testing.T) {
	for _, tc := range []struct {
		name            string
		reason          string
		after           time.Duration
		admitted, ready bool
		want            string
		unreported      bool
	}{
		{"its pods were not ready in time", kueue.WorkloadEvictedByPodsReadyTimeout, time.Minute, true, false, "cluster1", false},
		{"the worker ended it", kueue.WorkloadEvictedByAdmissionCheck, timing.SlowStart, true, false, "cluster1", false},
		{"the worker ended it soon", kueue.WorkloadEvictedByAdmissionCheck, timing.SlowStart - time.Second, true, false, "", false},
		{"its pods were ready before", kueue.WorkloadEvictedByPodsReadyTimeout, time.Hour, true, true, "", false},
		{"another workload preempted it", kueue.WorkloadEvictedByPreemption, time.Hour, true, false, "", false},
		{"Kueue does not say whether its pods are ready", kueue.WorkloadEvictedByAdmissionCheck, time.Hour, true, false, "", true},
		{"no cluster admitted it", kueue.WorkloadEvictedByAdmissionCheck, time.Hour, false, false, "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := situationWith(lostQuotaBy(tc.reason))
			if !tc.unreported {
				fixture.SetCondition(s.Workload, kueue.WorkloadPodsReady, s.Now)
			}
			if tc.admitted {
				s.History = s.History.WithRunning(s.AdmittedEntry("cluster1", s.Now.Add(-tc.after)))
			}
			if tc.ready {
				s.History = s.History.WithStart(s.Now)
			}
			got := ""
			if f := s.FailedStart(); f != nil {
				got = f.Cluster
			}
			if got != tc.want {
				t.Errorf("failed on %q, want %q", got, tc.want)
			}
		})
	}
}

// The record gets a cluster that did not start the workload, once.
func TestAFailedStartIsRecorded(t *testing.T) {
	s := situationWith(lostQuotaBy(kueue.WorkloadEvictedByPodsReadyTimeout))
	h := s.History
	h.FailedStart = &FailedStart{Cluster: "cluster1", At: s.Now, Cause: kueue.WorkloadEvictedByPodsReadyTimeout}
	s = s.WithHistory(h)
	next := Next(s)
	if len(next.Writes) != 1 || next.Writes[0].Record == nil {
		t.Fatalf("writes %+v, want one of the record", next.Writes)
	}
	avoided := next.Writes[0].Record.Record.Avoided(s.Now.Add(timing.StartAvoidance - time.Second))
	if len(avoided) != 1 || avoided[0].Cluster != "cluster1" || !avoided[0].IfOther {
		t.Errorf("the record avoids %+v", avoided)
	}
	if again := Next(s.WithHistory(h.AfterWrite(next.Writes[0], s.Now))); len(again.Writes) > 0 {
		t.Errorf("written again: %+v", again.Writes)
	}
}

// In mode Shadow, the record gets it together with what the gate would have done.
func TestAFailedStartIsRecordedInShadow(t *testing.T) {
	s := situationWith(passed("", fixture.Noon))
	h := s.History
	h.FailedStart = &FailedStart{Cluster: "cluster1", At: s.Now, Cause: kueue.WorkloadEvictedByPodsReadyTimeout}
	var reasons []string
	var last dispatch.Record
	for _, w := range Next(s.WithHistory(h)).Writes {
		reasons, last = append(reasons, w.Event.Reason), w.Record.Record
	}
	if diff := cmp.Diff([]string{"NotStarted", ReasonWouldSend}, reasons); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if avoided := last.Avoided(s.Now); last.Passed == nil || len(avoided) != 1 || avoided[0].Cluster != "cluster1" {
		t.Errorf("the record has %+v and avoids %+v", last.Passed, avoided)
	}
}
