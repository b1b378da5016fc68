package workload

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/log"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
)

// apply carries a step out: the wait queue, the writes in order with their events, then
// metrics and the log. The first write that fails ends the step.
func (r *Reconciler) apply(ctx context.Context, s *lifecycle.Situation, next lifecycle.Step) error {
	if next.Wait != nil {
		r.waiting.Add(*next.Wait)
	} else {
		r.waiting.Remove(s.Key)
	}
	if s.Room.HasTurn && next.Decision != nil {
		r.waiting.Decided(s.Key, lifecycle.DecisionKind(*next.Decision))
	} else if s.Room.HasTurn {
		r.waiting.EndTurn(s.Key)
	}
	if s.Workload != nil && (next.Reservation == nil || next.Reservation.Hold == nil) {
		r.ledger.ReleaseHold(string(s.Workload.UID))
	}
	if next.Conflict != nil {
		r.registry.ReportConflict(s.Gate.Name, next.Conflict.Evidence, next.Conflict.At)
	}
	if next.Decision != nil && next.Decision.Join != "" {
		r.registry.RequestCluster(s.Gate.Name, next.Decision.Join, s.Now)
	}
	if next.Decision != nil {
		r.metrics.decided(s.Gate.Name, *next.Decision)
	}
	if next.Mispredicted {
		r.metrics.mispredicted(s.Gate.Name)
	}
	if s.Workload == nil {
		return nil
	}
	if next.Requeued {
		r.metrics.requeued(s.Gate.Name)
	}
	w := &writing{Situation: s, Workload: ptr.To(*s.Workload), History: s.History}
	if next.PodsLate != nil {
		w.History = w.History.WithPodsLate(next.PodsLate)
	}
	if next.LateAttempt > 0 {
		w.History.LateAttempt = next.LateAttempt
	}
	if next.Reservation != nil {
		w.History = w.History.WithAdmittedPods(next.Reservation.AdmittedPods)
	}
	r.remember(w)
	if next.Event != nil {
		r.record(s, *next.Event)
	}
	done, err := r.writeAll(ctx, w, next.Writes)
	next.Writes = next.Writes[:done]
	logStep(ctx, s, next)
	return err
}

// writing is a situation while its step is written: the workload as the last write left it, and what to remember.
type writing struct {
	*lifecycle.Situation
	Workload *kueue.Workload
	History  lifecycle.History
}

// writeAll sends the requests in order, each followed by the event, and returns the number of
// successful writes.
func (r *Reconciler) writeAll(ctx context.Context, s *writing, writes []lifecycle.Write) (int, error) {
	var live *unstructured.Unstructured
	for i, w := range writes {
		var err error
		if live, err = r.write(ctx, s, w, live); err != nil {
			s.History.LastWrite.MayBeStored = mayBeStored(err)
			r.remember(s)
			return i, err
		}
		if w.Event != nil {
			r.record(s.Situation, *w.Event)
		}
	}
	return len(writes), nil
}

// write sends one request. It returns the workload as the API server has it afterwards, with
// managedFields, if the request was for the record.
func (r *Reconciler) write(ctx context.Context, s *writing, w lifecycle.Write, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	switch {
	case w.Record != nil:
		live, err := r.writeRecord(ctx, s, *w.Record)
		if err == nil && w.Record.Reason != "" {
			s.History.LastReason = w.Record.Reason
			r.remember(s)
		}
		return live, err
	case w.Nomination != nil:
		return nil, r.writeNomination(ctx, s, *w.Nomination, live)
	}
	if err := r.writeCheck(ctx, s, *w.Check); err != nil {
		return nil, err
	}
	if w.Check.RememberReason {
		s.History.LastReason = w.Check.Decision.Reason
	}
	if w.Check.MessageKind != "" {
		s.History.LastMessage.Kind, s.History.LastMessage.At = w.Check.MessageKind, s.Now
	}
	r.remember(s)
	if w.Check.Decision.State == gate.Ready && w.Check.RememberReason {
		r.metrics.ready(s.Gate.Name, max(0, r.now().Sub(s.History.QuotaSeenAt)))
	}
	return nil, nil
}

// remember stores the situation's history.
func (r *Reconciler) remember(s *writing) { r.histories.put(s.Workload.UID, s.History) }

func (r *Reconciler) record(s *lifecycle.Situation, e lifecycle.Notice) {
	kind := "Normal"
	if e.Warning {
		kind = "Warning"
	}
	r.recorder.Eventf(s.Workload, nil, kind, e.Reason, "Gate", "%s", e.Message)
}

// logStep writes one info line for a step with an event, and a debug line for any other step.
// s.writes contains only successful writes. The next reconciliation repeats the failed write
// and logs the transition then.
func logStep(ctx context.Context, s *lifecycle.Situation, next lifecycle.Step) {
	logger := log.FromContext(ctx).WithValues("gate", s.Gate.Name, "from", lifecycle.PhaseOf(s), "to", next.LeadsTo(lifecycle.PhaseOf(s)))
	events := make([]lifecycle.Notice, 0, len(next.Writes)+1)
	if next.Event != nil {
		events = append(events, *next.Event)
	}
	var clusters []string
	for _, w := range next.Writes {
		if w.Event != nil {
			events = append(events, *w.Event)
		}
		if w.Nomination != nil {
			clusters = w.Nomination.Clusters
		}
	}
	if len(events) == 0 {
		logger.V(1).Info("Workload observed", "writes", len(next.Writes), "requeueAfter", next.RequeueAfter)
		return
	}
	var reasons, messages []string
	for _, e := range events {
		reasons, messages = append(reasons, e.Reason), append(messages, e.Message)
	}
	logger.Info("Workload transition", "reason", strings.Join(reasons, ","), "clusters", clusters, "message", strings.Join(messages, "; "))
}
