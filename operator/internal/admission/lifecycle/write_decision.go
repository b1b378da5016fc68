package lifecycle

import (
	"fmt"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// WriteDecision returns the writes of a decision: the record if the clock of giving up
// started, stopped or was reset, or if it lacks a failed start, then the check if it changes. Kueue deactivates a workload as soon as
// its check is Rejected, so that a later write could be a conflict.
func WriteDecision(s *Situation, d gate.Decision, record dispatch.Record) []Write {
	if d.State == gate.Rejected {
		record = record.GivenUp()
	}
	var writes []Write
	if d.State != gate.Ready {
		if writes = s.Record.writeClock(record); len(writes) == 0 {
			writes = recordFailedStart(s)
		}
	}
	old := *s.Check()
	if d.Reason == gate.ReasonQueued && old.State == kueue.CheckStatePending { // lasts until the next wake-up
		return writes
	}
	if string(old.State) == string(d.State) && (old.Message == d.Message || d.State == gate.Ready) {
		return writes
	}
	if keepsMessage(s, d) > 0 {
		return writes
	}
	kind := MessageKind(d)
	if messageDelay(s, kind) > 0 {
		kind = ""
	}
	if d.State == gate.Retry {
		return append(writes, WriteYield(s, d, record))
	}
	// The time without room ends here; elsewhere the nomination ends it. What a ReclaimPolicy recorded stays, and the clusters to avoid.
	placed := dispatch.Record{Reclaimed: record.Reclaimed, Preferences: record.Avoided(s.Now)}
	if d.State == gate.Ready && s.Dispatch() != OwnDispatch && record.Encode() != placed.Encode() {
		writes = append(writes, Write{Record: &RecordWrite{Record: placed}})
	}
	w := Write{Check: &CheckWrite{Names: s.Checks.Own, Decision: d, PodSetUpdates: podSetUpdates(s, d), MessageKind: kind, RememberReason: true}}
	if isTransition(s, d) {
		w.Event = &Notice{Warning: d.State == gate.Rejected, Reason: d.Reason, Message: d.Message}
	}
	return append(writes, w)
}

// isTransition reports whether a decision differs from the last one in more than what was measured.
func isTransition(s *Situation, d gate.Decision) bool {
	return string(s.Check().State) != string(d.State) || s.History.LastReason != d.Reason
}

// messageDelay is the time until a message of a kind may be written; zero = now. Numbers change with nearly
// every job. Together the waiting workloads write one such message per MessageInterval.
func messageDelay(s *Situation, kind string) time.Duration {
	return s.History.messageDelay(kind, time.Duration(s.Gate.TotalWaiting)*timing.MessageInterval, s.Now)
}

// keepsMessage is how long the check still has an earlier message than the decision's; zero = it gets this one.
func keepsMessage(s *Situation, d gate.Decision) time.Duration {
	if old := s.Check().Message; d.Reason == gate.ReasonQueued || isTransition(s, d) || old == "" || old == d.Message {
		return 0
	}
	return messageDelay(s, MessageKind(d))
}

// writeClock returns the write of a record whose clock of giving up started, stopped or was reset.
func (r Record) writeClock(record dispatch.Record) []Write {
	if record.HasClockOf(r.Record) {
		return nil
	}
	return []Write{{Record: &RecordWrite{Record: record}}}
}

// WriteYield deactivates the workload for a moment. A workload that is merely evicted would
// reserve its quota again before Kueue looks at the others. The time to activate it is part
// of the same request, so that a restart does not lose it.
func WriteYield(s *Situation, d gate.Decision, record dispatch.Record) Write {
	inactive, since := false, kueuestate.PendingSince(s.Workload, s.Checks.Own[0], s.Now)
	if d.Reason == gate.ReasonParked {
		record = record.Park(d.Message, since, s.Now)
	} else {
		record = record.Yielded(since, s.Now)
	}
	return Write{
		Record: &RecordWrite{Record: record.WithReturned(s.Workload.Status.Admission), Active: &inactive, Reason: d.Reason},
		Event:  &Notice{Reason: d.Reason, Message: d.Message},
	}
}

// DecisionKind is what a decision has in common with those of workloads of the same shape.
func DecisionKind(d gate.Decision) string {
	return fmt.Sprintf("%s %t %s", d.State, d.NoRoomAnywhere, MessageKind(d))
}

// MessageKind of a decision. Two messages of one kind differ only in what was measured.
func MessageKind(d gate.Decision) string {
	switch {
	case d.Reason == gate.ReasonGateNotReady:
		return d.Message
	case d.Incomplete:
		return d.Reason + ", incomplete"
	}
	return d.Reason
}
