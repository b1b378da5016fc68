package lifecycle

import (
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// A workload of a queue that preempts takes quota from running ones as soon as it is queued, and the gate decides
// afterwards. The gate decides first if a policy of the hub creates the workload inactive, with a record as if it had
// yielded:
//  1. It is held back, without quota, until a cluster has room for it.
//  2. The operator reserves the devices and activates it: it is released. Kueue gives it quota, by preemption if needed.
//  3. If it has no quota after a while, or has lost it, and no cluster has room, it is held back again.

// ReasonHeldBack is the reason in the record of a workload that is held back again, and of its event.
const ReasonHeldBack = "HeldBack"

// IsDecidedFirst reports whether the gate decides about the workload while it has no quota.
func (s *Situation) IsDecidedFirst() bool {
	return mayBeDecidedFirst(s.Workload) && (isHeldBack(s) || kueuestate.IsActive(s.Workload))
}

func mayBeDecidedFirst(wl *kueue.Workload) bool {
	return kueuestate.IsGateFirst(wl) && !kueuestate.HoldsQuota(wl) && !kueuestate.IsFinished(wl) && wl.DeletionTimestamp.IsZero()
}

// isHeldBack reports whether the workload is inactive because the gate decides first, and not because of a user.
func isHeldBack(s *Situation) bool {
	return mayBeDecidedFirst(s.Workload) && !kueuestate.IsActive(s.Workload) && s.Record.hasYielded(s.Workload)
}

// awaitsReleaseByGate reports whether the gate decides about a workload that is held back. Its queue may get its checks
// later than the workload appears.
func awaitsReleaseByGate(s *Situation) bool {
	return isHeldBack(s) && (s.Queue.LacksChecks || s.Queue.CanPreempt && len(s.Checks.Own) > 0)
}

// stepRelease activates a workload that is held back if a cluster has room for it, and reserves the devices, so that no
// other one is released for them. Components follow the primary one, which is decided with the whole job.
func stepRelease(s *Situation) Step {
	wait := Step{RequeueAfter: timing.Seconds(s.Gate.Spec.PeriodSeconds, timing.DefaultPeriod)}
	if primary := s.Job.Primary; primary != nil && s.Job.Cluster == "" {
		if !kueuestate.IsActive(primary) {
			return wait
		}
		return stepReturn(s)
	}
	d := s.Decision(s.Record.Attempt + 1)
	switch {
	case d.State == gate.Ready:
		next := stepReturn(s)
		next.Reservation = Reserve(s, d.Order[:1], d)
		return next
	case d.State == gate.Pending && isPending(s):
		wait.Writes = WriteDecision(s, d, s.Record.Record)
	}
	return wait
}

// IsReleased reports whether the operator has activated the workload a moment ago, so that Kueue may be about to give it
// quota. Until then it keeps the devices that the release has reserved.
func (s *Situation) IsReleased() bool { return releasedFor(s) > 0 }

// releasedFor is the rest of that time.
func releasedFor(s *Situation) time.Duration {
	if !mayBeDecidedFirst(s.Workload) || !kueuestate.IsActive(s.Workload) {
		return 0
	}
	return max(0, s.History.ReleasedAt.Add(timing.ReleasedWait).Sub(s.Now))
}

// mayPreemptInVain reports whether Kueue may preempt others for a workload about which the gate decides first. If the
// workload failed to become ready again and again, Kueue's count of retries matters more.
func mayPreemptInVain(s *Situation) bool {
	return mayBeDecidedFirst(s.Workload) && kueuestate.IsActive(s.Workload) && !s.Record.hasYielded(s.Workload) && s.Record.Err == nil && s.Queue.CanPreempt &&
		len(s.Checks.Own) > 0 && s.Job.Cluster == "" && len(s.OutdatedChecks()) == 0 && !kueuestate.KeepsRetries(s.Workload)
}

// stepHoldBack holds the workload back if no cluster has room for it any more.
func stepHoldBack(s *Situation) Step {
	if rest := releasedFor(s); rest > 0 {
		return Step{RequeueAfter: rest}
	}
	if !s.Decides() || s.Decision(s.Record.Attempt+1).State == gate.Ready {
		return Step{RequeueAfter: timing.Seconds(s.Gate.Spec.PeriodSeconds, timing.DefaultPeriod)}
	}
	inactive := false
	return Step{Writes: []Write{{Record: &RecordWrite{Record: s.Record.Requeued(ReasonHeldBack, s.Now), Active: &inactive},
		Event: &Notice{Reason: ReasonHeldBack, Message: "no cluster has room for the workload: it gets quota when one has, and preempts no other one in vain"}}}}
}
