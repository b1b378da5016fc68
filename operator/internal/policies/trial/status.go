package trial

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// maxTried is the number of ended trials in the status of a policy.
const maxTried = 200

// FindTrial returns the running trial of a Workload, or nil.
func FindTrial(status *v1alpha1.TrialPolicyStatus, uid string) *v1alpha1.RunningTrial {
	i := slices.IndexFunc(status.Trials, func(t v1alpha1.RunningTrial) bool { return t.WorkloadUID == uid })
	if i < 0 {
		return nil
	}
	return &status.Trials[i]
}

// copiesOn returns the number of copies that count for the day of a time. A day that is over on the
// clock of one leader and not yet on that of the next one counts once.
func copiesOn(status *v1alpha1.TrialPolicyStatus, now time.Time) int32 {
	if status.Day != dayOf(now) && status.Day != dayOf(now.Add(timing.MaxClockSkew)) {
		return 0
	}
	return status.CopiesToday
}

// Begin adds a trial to the status and counts its copies.
func Begin(status *v1alpha1.TrialPolicyStatus, t v1alpha1.RunningTrial, now time.Time) {
	count := copiesOn(status, now)
	if count == 0 {
		status.Day = dayOf(now)
	}
	status.CopiesToday = count + int32(len(t.Models))
	t.StartTime = metav1.NewTime(now.UTC().Truncate(time.Second))
	status.Trials = append(status.Trials, t)
}

// EndCopies removes models from a running trial.
func EndCopies(status *v1alpha1.TrialPolicyStatus, uid string, models []string) {
	if t := FindTrial(status, uid); t != nil {
		t.Models = slices.DeleteFunc(slices.Clone(t.Models), func(model string) bool { return slices.Contains(models, model) })
	}
}

// End ends running trials and records their Workloads as tried.
func End(status *v1alpha1.TrialPolicyStatus, isEnded func(v1alpha1.RunningTrial) bool) {
	var running []v1alpha1.RunningTrial
	for _, t := range status.Trials {
		if !isEnded(t) {
			running = append(running, t)
		} else if !slices.Contains(status.Tried, t.WorkloadUID) {
			status.Tried = append(slices.Clone(status.Tried), t.WorkloadUID)
		}
	}
	status.Trials = running
	status.Tried = status.Tried[max(0, len(status.Tried)-maxTried):]
}

// dayOf returns the day of a time as the status counts it.
func dayOf(at time.Time) string { return at.UTC().Format(time.DateOnly) }
