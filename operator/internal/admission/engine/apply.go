package engine

import (
	"context"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
)

// Writing is a situation while its step is written: the workload as the last write left it, and what to remember.
type Writing struct {
	*lifecycle.Situation
	Workload *kueue.Workload
	History  lifecycle.History
	// Refused by the API server: it would refuse the last request again. nil = it did not.
	Refused *lifecycle.Refusal
	// Stored is for the edge: what the API server returned for the last write of the step.
	Stored any
}

// Apply carries a step out: the wait queue, then the writes in order with their events. The first write that
// fails ends the step.
func (e *Engine) Apply(ctx context.Context, out *Outcome) error {
	s, next := out.Situation, out.Step
	e.applyToQueue(s, next)
	if s.Workload != nil && (next.Reservation == nil || next.Reservation.Hold == nil) {
		e.Ledger.ReleaseHold(string(s.Workload.UID))
	}
	if next.Conflict != nil {
		e.Registry.ReportConflict(s.Gate.Name, next.Conflict.Evidence, next.Conflict.At)
	}
	if next.Decision != nil && next.Decision.Join != "" {
		e.Registry.RequestCluster(s.Gate.Name, next.Decision.Join, s.Now)
	}
	if s.Workload == nil {
		return nil
	}
	wl := *s.Workload
	w := &Writing{Situation: s, Workload: &wl, History: s.History.After(next)}
	e.Remember(wl.UID, w.History)
	if next.Event != nil {
		e.Edge.Notify(s, *next.Event)
	}
	return e.writeAll(ctx, w, out)
}

func (e *Engine) applyToQueue(s *lifecycle.Situation, next lifecycle.Step) {
	if next.Wait != nil {
		e.Waiting.Add(*next.Wait)
	} else {
		e.Waiting.Remove(s.Key)
	}
	if s.Room.HasTurn && next.Decision != nil {
		e.Waiting.Decided(s.Key, lifecycle.DecisionKind(*next.Decision))
	} else if s.Room.HasTurn {
		e.Waiting.EndTurn(s.Key)
	}
}

// writeAll sends the requests in order, each followed by its event.
func (e *Engine) writeAll(ctx context.Context, w *Writing, out *Outcome) error {
	for i, request := range out.Step.Writes {
		if err := e.Edge.Write(ctx, w, request); err != nil {
			e.Remember(w.Workload.UID, w.History)
			if w.Refused != nil {
				e.endRefused(w, out.Step.Reservation)
			}
			out.Step.Writes = out.Step.Writes[:i]
			return err
		}
		w.History = w.History.AfterWrite(request, w.Now)
		e.Remember(w.Workload.UID, w.History)
		if c := request.Check; c != nil && c.Decision.State == gate.Ready && c.RememberReason {
			after := max(0, e.Now().Sub(w.History.QuotaSeenAt))
			out.ReadyAfter = &after
		}
		if request.Event != nil {
			e.Edge.Notify(w.Situation, *request.Event)
		}
	}
	if w.History.Refusal != nil && len(out.Step.Writes) > 0 && lifecycle.PhaseOf(w.Situation) != lifecycle.PhaseWriteRefused {
		w.History.Refusal = nil
		e.Remember(w.Workload.UID, w.History)
	}
	return nil
}

// endRefused ends what a step reserved whose write the API server refused: the workload is not sent to these
// clusters.
func (e *Engine) endRefused(w *Writing, res *lifecycle.Reservation) {
	if former := w.Situation.History.Refusal; former == nil || former.Message != w.Refused.Message {
		e.Edge.Notify(w.Situation, lifecycle.Notice{Warning: true, Reason: lifecycle.ReasonWriteRefused, Message: w.Refused.Message})
	}
	w.History.Refusal = w.Refused
	e.Remember(w.Workload.UID, w.History)
	if res == nil {
		return
	}
	for !e.commit(e.Ledger.View(), string(w.Workload.UID), lifecycle.Reservation{Kept: res.Kept}) { // another workload changed the ledger
	}
}
