package trial

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// newState is the state of an opted-in job of 8 devices that got quota at noon. Its profile knows
// neither model of the policy.
func newState() State {
	policy := &v1alpha1.TrialPolicy{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: v1alpha1.TrialPolicySpec{
		RunSeconds: 120, WaitSeconds: 600, MaxCopiesPerDay: 3, MaxConcurrent: 1, MinDevices: 8}}
	return State{Now: noon.Add(time.Second), Policy: policy, PolicyName: "gpu", Devices: 8, UID: "uid", Namespace: "team-a", Profile: "llama", ReservedAt: noon, Fitting: []string{"l4", "h100"}}
}

// running is newState with a trial on both models that began at noon.
func running() State {
	s := newState()
	s.Policy.Status = v1alpha1.TrialPolicyStatus{Day: "2026-05-01", CopiesToday: 2, Trials: []v1alpha1.RunningTrial{{WorkloadUID: "uid", StartTime: metav1.NewTime(noon), Models: []string{"l4", "h100"}}}}
	s.Copies = map[string]Copy{"l4": {IsQueued: true}, "h100": {IsQueued: true}}
	return s
}

func at(after time.Duration) time.Time { return noon.Add(after) }

func TestNext(t *testing.T) {
	for _, tc := range []struct {
		name   string
		state  State
		change func(*State)
		want   Step // Message is a part of the message
	}{
		{"an unknown job is tried on both models", newState(), nil, Step{Action: Reserve, Models: []string{"l4", "h100"}, Message: "is tried on l4, h100"}},
		{"one model is known", newState(), func(s *State) { s.Known = map[string]string{"h100": "", "b200": ""} }, Step{Action: Reserve, Models: []string{"l4"}, Message: "is tried on l4"}},
		{"all models are known", newState(), func(s *State) { s.Known = map[string]string{"h100": "", "l4": ""} }, Step{Message: "no trial: the profile of the job knows l4, h100"}},
		{"no policy", newState(), func(s *State) { s.Policy = nil }, Step{Message: "no trial: TrialPolicy gpu does not exist"}},
		{"not opted in", newState(), func(s *State) { s.Exempt = "the job has no label" }, Step{Message: "no trial: the job has no label"}},
		{"the source is unknown", newState(), func(s *State) { s.Problem = "no source" }, Step{Message: "no trial: no source"}},
		{"few devices", newState(), func(s *State) { s.Devices = 7 }, Step{Message: "no trial: the job requests 7 devices, and trials begin at 8"}},
		{"no model fits", newState(), func(s *State) { s.Fitting = nil }, Step{Message: "permits no model of TrialPolicy gpu"}},
		{"another trial runs", newState(), func(s *State) { s.Policy.Status.Trials = []v1alpha1.RunningTrial{{WorkloadUID: "other"}} }, Step{Message: "no trial: TrialPolicy gpu tries 1 other jobs, which is its limit"}},
		{"another job of the profile is tried", newState(), func(s *State) {
			s.Policy.Spec.MaxConcurrent = 2
			s.Policy.Status.Trials = []v1alpha1.RunningTrial{{WorkloadUID: "other", Namespace: "team-a", Profile: "llama"}}
		}, Step{Message: "no trial: another job of its profile is being tried"}},
		{"a job of a profile with this name is tried in another namespace", newState(), func(s *State) {
			s.Policy.Spec.MaxConcurrent = 2
			s.Policy.Status.Trials = []v1alpha1.RunningTrial{{WorkloadUID: "other", Namespace: "team-b", Profile: "llama"}}
		}, Step{Action: Reserve, Models: []string{"l4", "h100"}, Message: "is tried on l4, h100"}},
		{"a job of another profile is tried", newState(), func(s *State) {
			s.Policy.Spec.MaxConcurrent = 2
			s.Policy.Status.Trials = []v1alpha1.RunningTrial{{WorkloadUID: "other", Namespace: "team-a", Profile: "mistral"}}
		}, Step{Action: Reserve, Models: []string{"l4", "h100"}, Message: "is tried on l4, h100"}},
		{"the budget permits one copy", newState(), func(s *State) { s.Policy.Status = v1alpha1.TrialPolicyStatus{Day: "2026-05-01", CopiesToday: 2} }, Step{Action: Reserve, Models: []string{"l4"}, Message: "is tried on l4"}},
		{"the budget is exhausted", newState(), func(s *State) { s.Policy.Status = v1alpha1.TrialPolicyStatus{Day: "2026-05-01", CopiesToday: 3} }, Step{Message: "no trial: TrialPolicy gpu has created all copies of today"}},
		{"the budget of yesterday does not count", newState(), func(s *State) { s.Policy.Status = v1alpha1.TrialPolicyStatus{Day: "2026-04-30", CopiesToday: 3} }, Step{Action: Reserve, Models: []string{"l4", "h100"}, Message: "is tried on l4, h100"}},
		{"the budget of tomorrow counts, which another leader's clock began", newState(), func(s *State) {
			s.Now, s.ReservedAt = at(12*time.Hour-30*time.Second), at(12*time.Hour-40*time.Second)
			s.Policy.Status = v1alpha1.TrialPolicyStatus{Day: "2026-05-02", CopiesToday: 3}
		}, Step{Message: "no trial: TrialPolicy gpu has created all copies of today"}},
		{"the budget of today counts until midnight", newState(), func(s *State) {
			s.Now, s.ReservedAt = at(12*time.Hour-30*time.Second), at(12*time.Hour-40*time.Second)
			s.Policy.Status = v1alpha1.TrialPolicyStatus{Day: "2026-05-01", CopiesToday: 3}
		}, Step{Message: "no trial: TrialPolicy gpu has created all copies of today"}},
		{"by default, few devices", newState(), func(s *State) { s.Policy.Spec, s.Devices = v1alpha1.TrialPolicySpec{}, 7 }, Step{Message: "no trial: the job requests 7 devices, and trials begin at 8"}},
		{"by default, the second trial", newState(), func(s *State) {
			s.Policy.Spec, s.Policy.Status.Trials = v1alpha1.TrialPolicySpec{}, make([]v1alpha1.RunningTrial, 1)
		}, Step{Action: Reserve, Models: []string{"l4", "h100"}, Message: "is tried on l4, h100"}},
		{"by default, the third trial", newState(), func(s *State) {
			s.Policy.Spec, s.Policy.Status.Trials = v1alpha1.TrialPolicySpec{}, make([]v1alpha1.RunningTrial, 2)
		}, Step{Message: "no trial: TrialPolicy gpu tries 2 other jobs, which is its limit"}},
		{"by default, the last copy of the day", newState(), func(s *State) {
			s.Policy.Spec, s.Policy.Status = v1alpha1.TrialPolicySpec{}, v1alpha1.TrialPolicyStatus{Day: "2026-05-01", CopiesToday: 19}
		}, Step{Action: Reserve, Models: []string{"l4"}, Message: "is tried on l4"}},
		{"by default, late", newState(), func(s *State) { s.Policy.Spec, s.Now = v1alpha1.TrialPolicySpec{}, at(15*time.Minute) }, Step{Message: "no trial: the job has waited for 900 s"}},
		{"tried before", newState(), func(s *State) { s.Policy.Status.Tried = []string{"other", "uid"} }, Step{Message: "no trial: the job was tried before"}},
		{"trials are disabled", newState(), func(s *State) { s.IsDisabled = true }, Step{Message: "no trial: the operator runs without --trials"}},
		{"late without a trial", newState(), func(s *State) { s.Now = at(10 * time.Minute) }, Step{Message: "no trial: the job has waited for 600 s"}},

		{"copies are missing after a restart", running(), func(s *State) { delete(s.Copies, "h100") }, Step{Action: Create, Models: []string{"h100"}, Message: "is tried on l4, h100"}},
		{"Kueue has not seen the copies", running(), func(s *State) { s.Copies = map[string]Copy{"l4": {}, "h100": {}} }, Step{Action: Wait, Message: "is tried on l4, h100", After: 15 * time.Second}},
		{"Kueue ignores a copy", running(), func(s *State) { s.Now, s.Copies["l4"] = at(time.Minute), Copy{} }, Step{Action: Measure, Models: []string{"l4"}}},
		{"disabled meanwhile", running(), func(s *State) { s.IsDisabled = true }, Step{Message: "no trial: the operator runs without --trials", Result: Stopped}},
		{"the policy is deleted meanwhile", running(), func(s *State) { s.Policy = nil }, Step{Message: "no trial: TrialPolicy gpu does not exist", Result: Stopped}},
		{"the clock of Kueue is ahead", running(), func(s *State) { s.ReservedAt, s.Now = at(time.Hour), at(10*time.Minute) }, Step{Message: "the trial did not end within 600 s", Result: TimedOut}},
		{"the clock of Kueue is behind", running(), func(s *State) { s.ReservedAt = at(-time.Hour) }, Step{Message: "the trial did not end within 600 s", Result: TimedOut}},
		{"the copies wait", running(), nil, Step{Action: Wait, Message: "is tried on l4, h100", After: 15 * time.Second}},
		{"the copies run", running(), func(s *State) { s.Copies["l4"] = Copy{IsQueued: true, Started: at(0)} }, Step{Action: Wait, Message: "is tried on", After: 15 * time.Second}},
		{"a copy ended just now", running(), func(s *State) {
			s.Now, s.Copies["l4"] = at(2*time.Minute), Copy{IsQueued: true, Started: at(0), Ended: at(110 * time.Second)}
		}, Step{Action: Wait, Message: "is tried on", After: 5 * time.Second}},
		{"a copy ended", running(), func(s *State) {
			s.Now, s.Copies["l4"] = at(2*time.Minute), Copy{IsQueued: true, Started: at(0), Ended: at(105 * time.Second)}
		}, Step{Action: Measure, Models: []string{"l4"}}},
		{"a copy runs longer than its deadline", running(), func(s *State) {
			s.Now, s.Copies["l4"] = at(3*time.Minute+15*time.Second), Copy{IsQueued: true, Started: at(0)}
		}, Step{Action: Measure, Models: []string{"l4"}}},
		{"a copy may still end after its deadline", running(), func(s *State) {
			s.Now, s.Copies["l4"] = at(3*time.Minute+14*time.Second), Copy{IsQueued: true, Started: at(0)}
		}, Step{Action: Wait, Message: "is tried on", After: time.Second}},
		{"a copy ended without a start", running(), func(s *State) {
			s.Now, s.Copies["l4"] = at(2*time.Minute), Copy{IsQueued: true, Ended: at(time.Minute)}
		}, Step{Action: Measure, Models: []string{"l4"}}},
		{"someone deleted a copy", running(), func(s *State) {
			s.Now = at(time.Minute)
			delete(s.Copies, "l4")
		}, Step{Action: Measure, Models: []string{"l4"}}},
		{"the source fails meanwhile", running(), func(s *State) { s.Problem = "no source" }, Step{Action: Wait, Message: "is tried on", After: 15 * time.Second}},
		{"the last look is at the limit", running(), func(s *State) { s.Now = at(595 * time.Second) }, Step{Action: Wait, Message: "is tried on", After: 5 * time.Second}},
		{"late", running(), func(s *State) { s.Now = at(10 * time.Minute) }, Step{Message: "the trial did not end within 600 s", Result: TimedOut}},
		{"measured", running(), func(s *State) {
			s.Policy.Status.Trials[0].Models = nil
			s.Known = map[string]string{"h100": "", "l4": ""}
		}, Step{Message: "the profile of the job knows l4, h100", Result: Measured}},
		{"the throughput of one was not measured", running(), func(s *State) {
			s.Policy.Status.Trials[0].Models = nil
			s.Policy.Spec.ThroughputQuery = "steps"
			s.Known = map[string]string{"h100": "", "l4": "5"}
		}, Step{Message: "knows l4 (throughput 5), h100 (without throughput: the throughputQuery of TrialPolicy gpu had no value)", Result: Measured}},
		{"nothing was measured", running(), func(s *State) { s.Policy.Status.Trials[0].Models = nil }, Step{Message: "the trial measured nothing", Result: Unmeasured}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.change != nil {
				tc.change(&tc.state)
			}
			got := Next(tc.state)
			if !strings.Contains(got.Message, tc.want.Message) {
				t.Errorf("message %q, want %q", got.Message, tc.want.Message)
			}
			if tc.want.Result != "" && got.Result != tc.want.Result {
				t.Errorf("result %s, want %s", got.Result, tc.want.Result)
			}
			got.Message, tc.want.Message, got.Result, tc.want.Result = "", "", "", ""
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Whatever the state is, the job passes when its time is over.
func TestEveryJobPassesAtTheLimit(t *testing.T) {
	for _, copies := range []map[string]Copy{nil, {"l4": {}}, {"l4": {IsQueued: true, Started: at(0)}, "h100": {IsQueued: true, Ended: at(0)}}} {
		for _, known := range []map[string]string{nil, {"l4": "5"}} {
			for _, s := range []State{newState(), running()} {
				s.Copies, s.Known, s.Now = copies, known, at(10*time.Minute)
				if step := Next(s); step.Action != Pass || step.Message == "" {
					t.Errorf("step %+v", step)
				}
			}
		}
	}
}

// The controller reads whether a trial runs, and how long the job still waits.
func TestRunningAndRemaining(t *testing.T) {
	for _, tc := range []struct {
		state     State
		isRunning bool
		remaining time.Duration
	}{{State{}, false, 0}, {newState(), false, 599 * time.Second}, {running(), true, 599 * time.Second}} {
		if tc.state.IsRunning() != tc.isRunning || tc.state.Remaining() != tc.remaining {
			t.Errorf("running %t, remaining %s, want %t and %s", tc.state.IsRunning(), tc.state.Remaining(), tc.isRunning, tc.remaining)
		}
	}
}

func TestStatusCountsCopies(t *testing.T) {
	var status v1alpha1.TrialPolicyStatus
	Begin(&status, v1alpha1.RunningTrial{WorkloadUID: "a", Models: []string{"l4", "h100"}}, noon)
	Begin(&status, v1alpha1.RunningTrial{WorkloadUID: "b", Models: []string{"l4"}}, noon)
	if start := FindTrial(&status, "a").StartTime; !start.Time.Equal(noon) {
		t.Errorf("started at %s", start)
	}
	EndCopies(&status, "a", []string{"l4", "b200"})
	EndCopies(&status, "ended", []string{"l4"})
	if status.CopiesToday != 3 || status.Day != "2026-05-01" {
		t.Errorf("%d copies on %s", status.CopiesToday, status.Day)
	}
	if diff := cmp.Diff([]string{"h100"}, FindTrial(&status, "a").Models); diff != "" {
		t.Error(diff)
	}
	End(&status, func(t v1alpha1.RunningTrial) bool { return t.WorkloadUID == "a" })
	if FindTrial(&status, "a") != nil || FindTrial(&status, "b") == nil || !slices.Equal(status.Tried, []string{"a"}) {
		t.Errorf("status %+v", status)
	}
	status.Trials = append(status.Trials, v1alpha1.RunningTrial{WorkloadUID: "a"})
	if End(&status, func(t v1alpha1.RunningTrial) bool { return t.WorkloadUID == "a" }); len(status.Tried) != 1 {
		t.Errorf("tried %v", status.Tried)
	}
	Begin(&status, v1alpha1.RunningTrial{WorkloadUID: "c", Models: []string{"l4"}}, noon.Add(12*time.Hour))
	Begin(&status, v1alpha1.RunningTrial{WorkloadUID: "d", Models: []string{"l4"}}, noon.Add(12*time.Hour-time.Second)) // of another leader
	if status.CopiesToday != 2 || status.Day != "2026-05-02" {
		t.Errorf("%d copies on %s", status.CopiesToday, status.Day)
	}
}

func TestStatusKeepsTheLatestTriedWorkloads(t *testing.T) {
	var status v1alpha1.TrialPolicyStatus
	for i := range maxTried + 2 {
		status.Trials = []v1alpha1.RunningTrial{{WorkloadUID: fmt.Sprint(i)}}
		End(&status, func(v1alpha1.RunningTrial) bool { return true })
	}
	if len(status.Tried) != maxTried || status.Tried[0] != "2" || len(status.Trials) > 0 {
		t.Errorf("%d tried, the first is %s", len(status.Tried), status.Tried[0])
	}
}
