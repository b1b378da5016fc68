package trial

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

const (
	// createWithin is the time from the start of a trial in which its copies are created, and Kueue
	// creates their Workloads. A copy that is gone later was deleted by another client, and Kueue
	// does not run a copy without a Workload: it may lack the WorkloadPriorityClass.
	createWithin = time.Minute
	// settleTime is the wait between the end of a copy and its queries, in which the last samples
	// reach the source.
	settleTime = 15 * time.Second
	// graceTime is the time after its deadline in which a copy is expected to end.
	graceTime = time.Minute
	// lookInterval is the longest wait between two looks at a trial.
	lookInterval = 15 * time.Second
)

// State is everything that a step depends on.
type State struct {
	Now time.Time
	// IsDisabled is true if the operator may not create Jobs.
	IsDisabled bool
	// Policy is nil if the check names none, or one that does not exist.
	Policy *v1alpha1.TrialPolicy
	// PolicyName that the check names.
	PolicyName string
	// Problem is the reason why the policy can't try any job; empty = none.
	Problem string
	// Exempt is the reason why this job is not tried; empty = none.
	Exempt string
	// Devices that the job requests.
	Devices int64
	// UID and Namespace of the Workload.
	UID, Namespace string
	// Profile is the name of the job's profile.
	Profile string
	// ReservedAt is the time of the quota reservation.
	ReservedAt time.Time
	// Fitting are the models of the policy that the job's node selector permits.
	Fitting []string
	// Known are the models of which the profile knows what a trial measures, with the throughput; empty
	// = not measured.
	Known map[string]string
	// Copies that exist, by model.
	Copies map[string]Copy
}

// Copy is a copy of the job.
type Copy struct {
	// IsQueued is true if Kueue created a Workload for the copy.
	IsQueued bool
	// Started is the time of the admission to a cluster; zero = not yet.
	Started time.Time
	// Ended is the time of the end; zero = not yet.
	Ended time.Time
}

// Action is the kind of a step.
type Action int

// Actions in the order of a trial.
const (
	// Pass makes the check Ready and deletes all copies.
	Pass Action = iota
	// Reserve counts Models in the policy's status.
	Reserve
	// Create creates the copies for Models.
	Create
	// Measure measures the copies for Models and deletes them.
	Measure
	// Wait looks again after After.
	Wait
)

// Step is the next step of a trial.
type Step struct {
	Action Action
	// Models that the step is about.
	Models []string
	// Message of the check; empty = unchanged.
	Message string
	// Result of a running trial that ends with this step.
	Result Result
	// After is the time until the next look.
	After time.Duration
}

// Result says how a trial ended.
type Result string

// Results of trials.
const (
	// Measured means that the profile knows a model of the policy.
	Measured Result = "measured"
	// Unmeasured means that no copy was measured.
	Unmeasured Result = "unmeasured"
	// TimedOut means that the time limit of the policy ended the trial.
	TimedOut Result = "timed_out"
	// Stopped means that the trial could not go on, for example because its policy was deleted.
	Stopped Result = "stopped"
)

// Results are all results.
var Results = []Result{Measured, Unmeasured, TimedOut, Stopped}

func pass(format string, args ...any) Step {
	return Step{Action: Pass, Message: fmt.Sprintf(format, args...), Result: Stopped}
}

// Next returns the next step for a job whose check is Pending.
func Next(s State) Step {
	if s.IsDisabled {
		return pass("no trial: the operator runs without --trials")
	}
	if s.Policy == nil {
		return pass("no trial: TrialPolicy %s does not exist", s.PolicyName)
	}
	running := FindTrial(&s.Policy.Status, s.UID)
	switch {
	case s.Exempt != "":
		return pass("no trial: %s", s.Exempt)
	case s.Remaining() <= 0 && running == nil:
		return pass("no trial: the job has waited for %d s, the limit of TrialPolicy %s", int(waitOf(s.Policy).Seconds()), s.Policy.Name)
	case s.Remaining() <= 0:
		step := pass("the trial did not end within %d s, the limit of TrialPolicy %s", int(waitOf(s.Policy).Seconds()), s.Policy.Name)
		step.Result = TimedOut
		return step
	case running != nil:
		return s.proceed(running) // a source that fails now may recover before the limit
	case s.Problem != "":
		return pass("no trial: %s", s.Problem)
	}
	return begin(s)
}

// begin starts a trial if the limits allow it.
func begin(s State) Step {
	spec := &s.Policy.Spec
	if least := int64(cmp.Or(spec.MinDevices, 8)); s.Devices < least {
		return pass("no trial: the job requests %d devices, and trials begin at %d", s.Devices, least)
	}
	if len(s.Fitting) == 0 {
		return pass("no trial: the node selector of the job permits no model of TrialPolicy %s", s.Policy.Name)
	}
	unknown := slices.DeleteFunc(slices.Clone(s.Fitting), s.isKnown)
	if len(unknown) == 0 {
		return pass("no trial: the profile of the job knows %s", s.known())
	}
	if slices.Contains(s.Policy.Status.Tried, s.UID) {
		return pass("no trial: the job was tried before")
	}
	isSameProfile := func(t v1alpha1.RunningTrial) bool { return t.Namespace == s.Namespace && t.Profile == s.Profile }
	if slices.ContainsFunc(s.Policy.Status.Trials, isSameProfile) {
		return pass("no trial: another job of its profile is being tried")
	}
	if limit := int(cmp.Or(spec.MaxConcurrent, 2)); len(s.Policy.Status.Trials) >= limit {
		return pass("no trial: TrialPolicy %s tries %d other jobs, which is its limit", s.Policy.Name, len(s.Policy.Status.Trials))
	}
	budget := int(cmp.Or(spec.MaxCopiesPerDay, 20)) - int(copiesOn(&s.Policy.Status, s.Now))
	if budget <= 0 {
		return pass("no trial: TrialPolicy %s has created all copies of today", s.Policy.Name)
	}
	models := unknown[:min(budget, len(unknown))]
	return Step{Action: Reserve, Models: models, Message: triedOn(models)}
}

// proceed returns the next step of a running trial.
func (s State) proceed(running *v1alpha1.RunningTrial) Step {
	var absent, ended []string
	next := min(lookInterval, s.Remaining())
	isNew := s.Now.Sub(running.StartTime.Time) < createWithin
	for _, model := range running.Models {
		c, exists := s.Copies[model]
		switch end := c.End(s.Policy); {
		case !exists && isNew:
			absent = append(absent, model)
		case !c.IsQueued && !isNew:
			ended = append(ended, model)
		case end.IsZero():
		case s.Now.Sub(end) >= settleTime:
			ended = append(ended, model)
		default:
			next = min(next, settleTime-s.Now.Sub(end))
		}
	}
	switch {
	case len(running.Models) == 0:
		return s.outcome()
	case len(absent) > 0:
		return Step{Action: Create, Models: absent, Message: triedOn(running.Models)}
	case len(ended) > 0:
		return Step{Action: Measure, Models: ended}
	}
	return Step{Action: Wait, Message: triedOn(running.Models), After: next}
}

func triedOn(models []string) string { return "the job is tried on " + strings.Join(models, ", ") }

// End returns the end of a copy, or zero if it has not begun. It is in the future for a copy that
// runs: a copy that does not end at its deadline counts as ended a minute later.
func (c Copy) End(p *v1alpha1.TrialPolicy) time.Time {
	switch overdue := c.Started.Add(RunTime(p) + graceTime); {
	case !c.Ended.IsZero():
		return c.Ended
	case c.Started.IsZero():
		return time.Time{}
	default:
		return overdue
	}
}

// outcome passes the job after a trial.
func (s State) outcome() Step {
	step := pass("the trial measured nothing")
	step.Result = Unmeasured
	if slices.ContainsFunc(s.Fitting, s.isKnown) {
		step.Message, step.Result = "the trial has ended: the profile of the job knows "+s.known(), Measured
	}
	return step
}

func (s State) isKnown(model string) bool {
	_, known := s.Known[model]
	return known
}

// known returns the known models that the job may use. If the policy measures throughput, it says which
// of them can't be compared.
func (s State) known() string {
	var list []string
	for _, model := range s.Fitting {
		throughput, known := s.Known[model]
		switch {
		case !known:
			continue
		case throughput != "":
			model += " (throughput " + throughput + ")"
		case s.Policy.Spec.ThroughputQuery != "":
			model += " (without throughput: the throughputQuery of TrialPolicy " + s.Policy.Name + " had no value)"
		}
		list = append(list, model)
	}
	return strings.Join(list, ", ")
}

// Remaining returns the time until the job passes at the latest. It is 0 without a policy. The limit
// counts from the quota reservation, which has the time of Kueue's clock, or from the start of the
// trial, which has the time of the operator's: a clock that is behind must not extend the limit.
func (s State) Remaining() time.Duration {
	if s.Policy == nil {
		return 0
	}
	from := s.ReservedAt
	if running := FindTrial(&s.Policy.Status, s.UID); running != nil && running.StartTime.Time.Before(from) {
		from = running.StartTime.Time
	}
	return from.Add(waitOf(s.Policy)).Sub(s.Now)
}

// IsRunning reports whether the trial of the job has begun.
func (s State) IsRunning() bool {
	return s.Policy != nil && FindTrial(&s.Policy.Status, s.UID) != nil
}

func waitOf(p *v1alpha1.TrialPolicy) time.Duration {
	return time.Duration(cmp.Or(p.Spec.WaitSeconds, 900)) * time.Second
}

// RunTime returns the longest run time of a copy.
func RunTime(p *v1alpha1.TrialPolicy) time.Duration {
	return time.Duration(cmp.Or(p.Spec.RunSeconds, 300)) * time.Second
}
