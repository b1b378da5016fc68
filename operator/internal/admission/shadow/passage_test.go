package shadow_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/shadow"
)

var noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

func minutes(n int) time.Time { return noon.Add(time.Duration(n) * time.Minute) }

func shadowGate(generation int64, stored *v1alpha1.GateShadow) *v1alpha1.PlacementGate {
	g := &v1alpha1.PlacementGate{ObjectMeta: metav1.ObjectMeta{Name: "fleet", UID: "fleet-1", Generation: generation}}
	g.Spec.Mode, g.Status.Shadow = v1alpha1.ModeShadow, stored
	return g
}

// passage of a workload of 4 devices that passed at noon, and that cluster1 admitted then.
func passage(change func(*shadow.Passage)) shadow.Passage {
	p := shadow.Passage{UID: "1", Workload: "team-a/job", Gate: "fleet", Would: dispatch.Passed{At: noon, Devices: 4}, Went: "cluster1", AdmittedAt: noon, ReportsPodsReady: true}
	change(&p)
	return p
}

func chosen(cluster string, at time.Time) func(*shadow.Passage) {
	return func(p *shadow.Passage) { p.Would.Cluster, p.Would.ChosenAt = cluster, at }
}

func waits(reason string) func(*shadow.Passage) {
	return func(p *shadow.Passage) { p.Would.Reason, p.Would.Message = reason, "no cluster has room" }
}

func started(n int) func(*shadow.Passage) {
	return func(p *shadow.Passage) { p.StartedAt = minutes(n) }
}

func nowhere(p *shadow.Passage) { p.Went, p.AdmittedAt = "", time.Time{} }

func all(changes ...func(*shadow.Passage)) func(*shadow.Passage) {
	return func(p *shadow.Passage) {
		for _, change := range changes {
			change(p)
		}
	}
}

// reportOf is the report of one passage, which ended after an hour if it had not started.
func reportOf(p shadow.Passage) *v1alpha1.GateShadow {
	b := shadow.NewBook()
	b.Report(shadowGate(1, nil), noon)
	b.Put(p)
	if !p.StartedAt.IsZero() {
		p.Would.Outcome = p.Settle()
		b.Put(p)
	}
	b.End("1", false, minutes(60))
	return b.Report(shadowGate(1, nil), minutes(60))
}

func TestOutcomes(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*shadow.Passage)
		want   v1alpha1.ShadowOutcome
	}{
		{"the same cluster", all(chosen("cluster1", noon), started(1)), v1alpha1.ShadowOutcome{Outcome: v1alpha1.OutcomeSameCluster, Workloads: 1}},
		{"another cluster, and it started there", all(chosen("cluster2", noon), started(4)), v1alpha1.ShadowOutcome{Outcome: v1alpha1.OutcomeOtherCluster, Workloads: 1}},
		{"another cluster, and it hung for 10 min", all(chosen("cluster2", noon), started(10)), v1alpha1.ShadowOutcome{Outcome: v1alpha1.OutcomeOtherCluster, Workloads: 1, Hung: 1, HungDeviceSeconds: 2400}},
		{"another cluster, and it never started", chosen("cluster2", noon), v1alpha1.ShadowOutcome{Outcome: v1alpha1.OutcomeOtherCluster, Workloads: 1, Hung: 1, HungDeviceSeconds: 14400}},
		{"the same cluster, and it hung", all(chosen("cluster1", noon), started(5)), v1alpha1.ShadowOutcome{Outcome: v1alpha1.OutcomeSameCluster, Workloads: 1, Hung: 1, HungDeviceSeconds: 1200}},
		{"would have waited until a cluster had room", all(waits(gate.ReasonNoRoom), chosen("cluster1", minutes(3)), started(4)), v1alpha1.ShadowOutcome{Outcome: v1alpha1.OutcomeWait, Workloads: 1, WaitSeconds: 180}},
		{"would have waited, but its pods were ready", all(waits(gate.ReasonNoRoom), started(2)), v1alpha1.ShadowOutcome{Outcome: v1alpha1.OutcomeWait, Workloads: 1, WaitSeconds: 120}},
		{"would have waited, and hung", waits(gate.ReasonNoRoom), v1alpha1.ShadowOutcome{Outcome: v1alpha1.OutcomeWait, Workloads: 1, WaitSeconds: 3600, Hung: 1, HungDeviceSeconds: 14400}},
		{"no cluster could ever start it", waits(gate.ReasonNever), v1alpha1.ShadowOutcome{Outcome: v1alpha1.OutcomeNever, Workloads: 1, WaitSeconds: 3600, Hung: 1, HungDeviceSeconds: 14400}},
		{"no metrics", all(waits(gate.ReasonNoMetrics), started(1)), v1alpha1.ShadowOutcome{Outcome: v1alpha1.OutcomeUndecided, Workloads: 1, WaitSeconds: 60}},
		{"metrics after a minute", all(waits(gate.ReasonNoMetrics), chosen("cluster1", minutes(1)), started(2)), v1alpha1.ShadowOutcome{Outcome: v1alpha1.OutcomeWait, Workloads: 1, WaitSeconds: 60}},
		{"nobody says whether its pods are ready", all(chosen("cluster2", noon), func(p *shadow.Passage) { p.ReportsPodsReady = false }), v1alpha1.ShadowOutcome{Outcome: v1alpha1.OutcomeOtherCluster, Workloads: 1}},
		{"no cluster admitted it", all(chosen("cluster1", noon), nowhere), v1alpha1.ShadowOutcome{Outcome: v1alpha1.OutcomeUnplaced, Workloads: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			report := reportOf(passage(tc.change))
			if diff := cmp.Diff([]v1alpha1.ShadowOutcome{tc.want}, report.Outcomes); diff != "" {
				t.Errorf("outcomes (-want +got):\n%s", diff)
			}
			if isShown := len(report.Workloads) > 0; isShown != (tc.want.Outcome != v1alpha1.OutcomeSameCluster || tc.want.Hung > 0) {
				t.Errorf("workloads %+v", report.Workloads)
			}
		})
	}
}

// A workload that finished has run, even if nobody saw its pods ready.
func TestFinishedWorkloadDidNotHang(t *testing.T) {
	b := shadow.NewBook()
	b.Report(shadowGate(1, nil), noon)
	b.Put(passage(chosen("cluster1", noon)))
	b.End("1", true, minutes(60))
	want := []v1alpha1.ShadowOutcome{{Outcome: v1alpha1.OutcomeSameCluster, Workloads: 1}}
	if diff := cmp.Diff(want, b.Report(shadowGate(1, nil), minutes(60)).Outcomes); diff != "" {
		t.Error(diff)
	}
}

// A report survives a restart, in which the status has what happened before.
func TestReportContinuesTheStoredOne(t *testing.T) {
	stored := reportOf(passage(all(chosen("cluster2", noon), started(10))))
	b := shadow.NewBook()
	second := passage(all(chosen("cluster2", noon), started(20)))
	b.Put(passage(chosen("cluster2", noon)))
	second.Would.Outcome = second.Settle()
	b.Put(second) // before the gate is read
	report := b.Report(shadowGate(1, stored), minutes(61))
	if !report.Since.Time.Equal(noon) || len(report.Workloads) != 2 {
		t.Errorf("report %+v", report)
	}
	if got := report.Outcomes[0]; got.Workloads != 2 || got.Hung != 2 || got.HungDeviceSeconds != 2400+4800 {
		t.Errorf("outcome %+v", got)
	}
	b.Put(second) // the record of a passage that is counted
	if again := b.Report(shadowGate(1, report), minutes(62)); again.Outcomes[0].Workloads != 2 {
		t.Errorf("counted again: %+v", again.Outcomes)
	}
}

// Numbers of another spec would mislead, also those of a workload that passed before the change.
func TestReportBeginsAnewWithTheSpec(t *testing.T) {
	stored := reportOf(passage(all(chosen("cluster2", noon), started(10))))
	b := shadow.NewBook()
	b.Report(shadowGate(1, stored), minutes(60))
	b.Put(passage(chosen("cluster2", noon)))
	report := b.Report(shadowGate(2, stored), minutes(61))
	b.End("1", false, minutes(62))
	report = b.Report(shadowGate(2, report), minutes(63))
	if report.Generation != 2 || !report.Since.Time.Equal(minutes(61)) || len(report.Outcomes)+len(report.Hanging) > 0 {
		t.Errorf("report %+v", report)
	}
	enforced := shadowGate(3, report)
	enforced.Spec.Mode = v1alpha1.ModeEnforce
	if got := b.Report(enforced, minutes(64)); got != report {
		t.Errorf("a gate in mode Enforce has the report %+v", got)
	}
	if reports := b.Reports(minutes(64)); len(reports) != 0 {
		t.Errorf("reports of gates in mode Enforce: %v", reports)
	}
}

// A gate that was deleted and made again, with the same name and generation, has a report of its own, also if nobody saw
// that it was gone.
func TestReportBeginsAnewWithTheGate(t *testing.T) {
	b := shadow.NewBook()
	b.Report(shadowGate(1, nil), noon)
	b.Put(passage(chosen("cluster2", noon)))
	b.End("1", false, minutes(10))
	b.Put(func() shadow.Passage { p := passage(chosen("cluster2", noon)); p.UID = "2"; return p }()) // hangs
	again := shadowGate(1, nil)
	again.UID = "fleet-2"
	report := b.Report(again, minutes(20))
	if !report.Since.Time.Equal(minutes(20)) || len(report.Outcomes)+len(report.Workloads)+len(report.Hanging) > 0 {
		t.Errorf("report %+v", report)
	}
}

func TestHangingWorkloads(t *testing.T) {
	b := shadow.NewBook()
	b.Report(shadowGate(1, nil), noon)
	b.Put(passage(chosen("cluster2", noon)))
	if hanging := b.Report(shadowGate(1, nil), minutes(4)).Hanging; len(hanging) > 0 {
		t.Errorf("hangs after 4 minutes: %+v", hanging)
	}
	report := b.Report(shadowGate(1, nil), minutes(7).Add(50*time.Second))
	want := []v1alpha1.ShadowWorkload{{Workload: "team-a/job", Time: metav1.NewTime(noon), Devices: 4, Outcome: v1alpha1.OutcomeOtherCluster, Would: "cluster2", Cluster: "cluster1", HungSeconds: 420}}
	if diff := cmp.Diff(want, report.Hanging); diff != "" || len(report.Outcomes) > 0 {
		t.Errorf("outcomes %v, hanging (-want +got):\n%s", report.Outcomes, diff)
	}
	b.Put(func() shadow.Passage { p := passage(chosen("cluster2", noon)); p.UID = "2"; return p }())
	b.Drop("2")
	b.End("1", false, minutes(9))
	if report := b.Report(shadowGate(1, nil), minutes(9)); len(report.Hanging)+b.Open() > 0 || report.Outcomes[0].HungDeviceSeconds != 4*9*60 {
		t.Errorf("report %+v", report)
	}
}

// The status of a gate stays small.
func TestReportIsBounded(t *testing.T) {
	b := shadow.NewBook()
	b.Report(shadowGate(1, nil), noon)
	for i := range 3 * shadow.MaxWorkloads {
		p := passage(func(p *shadow.Passage) {
			p.Would.Reason, p.Would.Message = gate.ReasonNoRoom, strings.Repeat("é", 900)
		})
		p.UID = time.Duration(i).String()
		b.Put(p)
		if i%3 == 0 {
			b.End(p.UID, false, minutes(1))
		}
	}
	b.Put(passage(func(p *shadow.Passage) { p.Workload = "team-a/last" }))
	b.End("1", false, minutes(2))
	report := b.Report(shadowGate(1, nil), minutes(60))
	if len(report.Workloads) != shadow.MaxWorkloads || len(report.Hanging) != shadow.MaxWorkloads || report.Workloads[shadow.MaxWorkloads-1].Workload != "team-a/last" {
		t.Errorf("%d workloads, %d hang", len(report.Workloads), len(report.Hanging))
	}
	if report.Outcomes[0].Workloads != shadow.MaxWorkloads+1 {
		t.Errorf("outcomes %+v", report.Outcomes)
	}
	if n := len(report.Workloads[0].Message); n > 200 {
		t.Errorf("a message of %d bytes", n)
	}
	b.Forget("fleet")
	if reports := b.Reports(minutes(61)); len(reports) > 0 {
		t.Errorf("reports of a deleted gate: %v", reports)
	}
}
