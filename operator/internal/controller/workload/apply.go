package workload

import (
	"context"
	"strings"

	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
)

// apply carries a step out: the wait queue, the writes in order with their events, then
// metrics and the log. The first write that fails ends the step.
func (r *Reconciler) apply(ctx context.Context, o *lifecycle.Situation, s lifecycle.Step) error {
	if s.Wait != nil {
		r.waiting.Add(*s.Wait)
	} else {
		r.waiting.Remove(o.Key)
	}
	if o.Room.HasTurn && s.Decision != nil {
		r.waiting.Decided(o.Key, lifecycle.DecisionKind(*s.Decision))
	} else if o.Room.HasTurn {
		r.waiting.EndTurn(o.Key)
	}
	if o.Workload != nil && (s.Reservation == nil || s.Reservation.Hold == nil) {
		r.ledger.ReleaseHold(string(o.Workload.UID))
	}
	if s.Conflict != nil {
		r.registry.ReportConflict(o.Gate.Name, s.Conflict.Evidence, s.Conflict.At)
	}
	if s.Decision != nil && s.Decision.Join != "" {
		r.registry.RequestCluster(o.Gate.Name, s.Decision.Join, o.Now)
	}
	if s.Decision != nil {
		r.metrics.decided(o.Gate.Name, *s.Decision)
	}
	if s.Mispredicted {
		r.metrics.mispredicted(o.Gate.Name)
	}
	if o.Workload == nil {
		return nil
	}
	if s.Requeued {
		r.metrics.requeued(o.Gate.Name)
	}
	if s.PodsLate != nil {
		o.History.PodsLate = s.PodsLate
	}
	if s.LateAttempt > 0 {
		o.History.LateAttempt = s.LateAttempt
	}
	if s.Reservation != nil {
		o.History = o.History.WithAdmittedPods(s.Reservation.AdmittedPods)
	}
	r.remember(o)
	if s.Event != nil {
		r.record(o, *s.Event)
	}
	done, err := r.writeAll(ctx, o, s.Writes)
	s.Writes = s.Writes[:done]
	logStep(ctx, o, s)
	return err
}

// writeAll sends the requests in order, each followed by the event, and returns the number of
// successful writes.
func (r *Reconciler) writeAll(ctx context.Context, o *lifecycle.Situation, writes []lifecycle.Write) (int, error) {
	var live *unstructured.Unstructured
	for i, w := range writes {
		var err error
		if live, err = r.write(ctx, o, w, live); err != nil {
			o.History.LastWrite.MayBeStored = mayBeStored(err)
			r.remember(o)
			return i, err
		}
		if w.Event != nil {
			r.record(o, *w.Event)
		}
	}
	return len(writes), nil
}

// write sends one request. It returns the workload as the API server has it afterwards, with
// managedFields, if the request was for the record.
func (r *Reconciler) write(ctx context.Context, o *lifecycle.Situation, w lifecycle.Write, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	switch {
	case w.Record != nil:
		live, err := r.writeRecord(ctx, o, *w.Record)
		if err == nil && w.Record.Reason != "" {
			o.History.LastReason = w.Record.Reason
			r.remember(o)
		}
		return live, err
	case w.Nomination != nil:
		return nil, r.writeNomination(ctx, o, *w.Nomination, live)
	}
	if err := r.writeCheck(ctx, o, *w.Check); err != nil {
		return nil, err
	}
	if w.Check.RememberReason {
		o.History.LastReason = w.Check.Decision.Reason
	}
	if w.Check.MessageKind != "" {
		o.History.LastMessage.Kind, o.History.LastMessage.At = w.Check.MessageKind, o.Now
	}
	r.remember(o)
	if w.Check.Decision.State == gate.Ready && w.Check.RememberReason {
		r.metrics.ready(o.Gate.Name, max(0, r.now().Sub(o.History.QuotaSeenAt)))
	}
	return nil, nil
}

// remember stores the observation's history.
func (r *Reconciler) remember(o *lifecycle.Situation) { r.histories.put(o.Workload.UID, o.History) }

func (r *Reconciler) record(o *lifecycle.Situation, e lifecycle.Notice) {
	kind := "Normal"
	if e.Warning {
		kind = "Warning"
	}
	r.recorder.Eventf(o.Workload, nil, kind, e.Reason, "Gate", "%s", e.Message)
}

// logStep writes one info line for a step with an event, and a debug line for any other step.
// s.writes contains only successful writes. The next reconciliation repeats the failed write
// and logs the transition then.
func logStep(ctx context.Context, o *lifecycle.Situation, s lifecycle.Step) {
	logger := log.FromContext(ctx).WithValues("gate", o.Gate.Name, "from", lifecycle.PhaseOf(o), "to", s.LeadsTo(lifecycle.PhaseOf(o)))
	events := make([]lifecycle.Notice, 0, len(s.Writes)+1)
	if s.Event != nil {
		events = append(events, *s.Event)
	}
	var clusters []string
	for _, w := range s.Writes {
		if w.Event != nil {
			events = append(events, *w.Event)
		}
		if w.Nomination != nil {
			clusters = w.Nomination.Clusters
		}
	}
	if len(events) == 0 {
		logger.V(1).Info("Workload observed", "writes", len(s.Writes), "requeueAfter", s.RequeueAfter)
		return
	}
	var reasons, messages []string
	for _, e := range events {
		reasons, messages = append(reasons, e.Reason), append(messages, e.Message)
	}
	logger.Info("Workload transition", "reason", strings.Join(reasons, ","), "clusters", clusters, "message", strings.Join(messages, "; "))
}
