package lifecycle

import (
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// A workload that no cluster could start, even if it were empty, keeps quota from others for nothing. It is parked: it
// returns the quota, and queues again as soon as a cluster could start it. The components of a job follow the primary one,
// which is decided with the whole job.

// Returned is the quota that an inactive workload has given back until the gate returns it to its queue, as far as its
// record says. nil = it is active, or it is not known.
func (s *Situation) Returned() *kueue.Admission {
	if !s.Record.hasYielded(s.Workload) || kueuestate.IsActive(s.Workload) || kueuestate.HoldsQuota(s.Workload) {
		return nil
	}
	return s.Record.Returned
}

// WithQuota is the workload with its quota, or with the one that it has given back, for which the gate decides. nil = it has
// none.
func (s *Situation) WithQuota() *kueue.Workload {
	if kueuestate.HoldsQuota(s.Workload) {
		return s.Workload
	}
	quota := s.Returned()
	if quota == nil {
		return nil
	}
	returned := *s.Workload
	returned.Status.Admission = quota
	return &returned
}

// isParked reports whether a workload stays away until its own decision says that a cluster could start it.
func isParked(s *Situation) bool {
	return s.Record.Parked != "" && s.Returned() != nil && s.Job.Primary == nil && len(s.Checks.Own) == 1 && s.Gate.Exists && neverMode(s) == v1alpha1.NeverPark
}

// stepParked returns the workload if a cluster could start it. While metrics do not say, it stays. Parked workloads of one
// shape form a line, of which the first one looks for all.
func stepParked(s *Situation) Step {
	if s.Decision(s.Record.Attempt+1).Prospect == gate.ProspectPossible {
		return stepReturn(s)
	}
	if !s.Decides() {
		return Step{RequeueAfter: timing.Seconds(s.Gate.Spec.PeriodSeconds, timing.DefaultPeriod)}
	}
	e := s.WaitEntry(s.Room.Key)
	e.Parked = true
	return Step{Wait: &e}
}

func neverMode(s *Situation) v1alpha1.NeverMode {
	if mode := s.Gate.Spec.WhenUnplaceable.Never.Mode; mode != "" {
		return mode
	}
	return v1alpha1.NeverPark
}

// neverSince is since when decisions prove that no cluster could start the workload.
func neverSince(s *Situation, d gate.Decision) time.Time {
	switch {
	case d.State != gate.Pending || d.Prospect != gate.ProspectNever:
		return time.Time{}
	case s.History.NeverSince.IsZero():
		return s.Now
	}
	return s.History.NeverSince
}

// neverAfter is the time until a workload that no cluster could start is parked or rejected; zero = that time has come, or
// never does.
func neverAfter(s *Situation, d gate.Decision) time.Duration {
	since := neverSince(s, d)
	if since.IsZero() || neverMode(s) == v1alpha1.NeverWait {
		return 0
	}
	return max(0, timing.Seconds(s.Gate.Spec.WhenUnplaceable.Never.AfterSeconds, timing.DefaultNeverAfter)-s.Now.Sub(since))
}

// endNever parks or rejects a workload that no cluster could start.
func endNever(s *Situation, d gate.Decision) gate.Decision {
	switch {
	case neverMode(s) == v1alpha1.NeverReject:
		d.State, d.Message = gate.Rejected, gate.Truncate("gave up: "+d.Message)
	case neverMode(s) == v1alpha1.NeverPark && s.mayReturnQuota():
		d.State, d.Reason = gate.Retry, gate.ReasonParked
	}
	return d
}

// mayReturnQuota reports whether the workload may give up its quota. It would begin the work of another check anew, and
// Kueue would forget its count of retries.
func (s *Situation) mayReturnQuota() bool {
	return s.Workload.Status.Admission != nil && s.Job.Cluster == "" && !kueuestate.KeepsRetries(s.Workload) && s.Checks.Awaited(s.Workload) == ""
}

// whyPrimaryIsParked is why no cluster could start the job of a component without a cluster, if the primary component has
// returned its quota for that reason. Empty = it has not.
func (j Job) whyPrimaryIsParked() string {
	if j.Primary == nil || j.Cluster != "" || kueuestate.IsActive(j.Primary) {
		return ""
	}
	record, err := dispatch.Decode(j.Primary.Annotations)
	if err != nil {
		return ""
	}
	return record.Parked
}

// staysWithPrimary reports whether a parked component stays away because the primary one does.
func staysWithPrimary(s *Situation) bool {
	return s.Record.Parked != "" && s.Returned() != nil && s.Job.whyPrimaryIsParked() != ""
}
