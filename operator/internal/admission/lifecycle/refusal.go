package lifecycle

import (
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// ReasonWriteRefused is the reason of a workload that the API server refuses a write of.
const ReasonWriteRefused = "WriteRefused"

// Refusal is a write that the API server refused as invalid or forbidden, such as one of the annotation when those
// of users leave no room. It would refuse the same write again, so that the workload pauses and reserves nothing.
type Refusal struct {
	At      time.Time
	Message string
	// OfCheck: the check was refused, which could say so.
	OfCheck bool
}

// NewRefusal returns the refusal of a request.
func NewRefusal(request Write, err error, now time.Time) *Refusal {
	return &Refusal{At: now, OfCheck: request.Check != nil, Message: gate.Truncate(
		"the API server refuses a write of the gate, which tries again every minute until the cause is removed: " + err.Error())}
}

func isRefused(s *Situation) bool {
	return s.History.Refusal != nil && s.Now.Before(s.History.Refusal.At.Add(timing.RefusedPause))
}

// stepAfterRefusal pauses, and writes why to the check of a workload that was not sent anywhere.
func stepAfterRefusal(s *Situation) Step {
	refusal := s.History.Refusal
	next := Step{RequeueAfter: refusal.At.Add(timing.RefusedPause).Sub(s.Now)}
	if refusal.OfCheck || len(s.Checks.Own) != 1 || isIdle(s) || !isPending(s) && !isNominating(s) || isPending(s) && s.Check().Message == refusal.Message {
		return next
	}
	next.Writes = []Write{{Check: &CheckWrite{Names: s.Checks.Own, RememberReason: true,
		Decision: gate.Decision{State: gate.Pending, Reason: ReasonWriteRefused, Message: refusal.Message}}}}
	return next
}

// recordFirst moves the record to the front of the writes of a decision that nominates. While it is refused, the check
// stays as it is.
func recordFirst(writes []Write) []Write {
	var records, others []Write
	for _, w := range writes {
		if w.Record != nil {
			records = append(records, w)
		} else {
			others = append(others, w)
		}
	}
	return append(records, others...)
}
