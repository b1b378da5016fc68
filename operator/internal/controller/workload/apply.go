package workload

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
)

// apply carries a step out: the wait queue, the writes in order with their events, then
// metrics and the log. The first write that fails ends the step.
func (r *Reconciler) apply(ctx context.Context, o *observation, s step) error {
	if s.wait != nil {
		r.waiting.Add(*s.wait)
	} else {
		r.waiting.Remove(o.key)
	}
	if o.hasTurn && s.decision != nil {
		r.waiting.Decided(o.key, decisionKind(*s.decision))
	} else if o.hasTurn {
		r.waiting.EndTurn(o.key)
	}
	if o.wl != nil && (s.reservation == nil || s.reservation.hold == nil) {
		r.ledger.ReleaseHold(string(o.wl.UID))
	}
	if s.conflict != nil {
		r.registry.ReportConflict(o.gateName, s.conflict.evidence, s.conflict.at)
	}
	if s.decision != nil && s.decision.Join != "" {
		r.registry.RequestCluster(o.gateName, s.decision.Join, o.now)
	}
	if s.decision != nil {
		r.metrics.decided(o.gateName, *s.decision)
	}
	if s.mispredicted {
		r.metrics.mispredicted(o.gateName)
	}
	if o.wl == nil {
		return nil
	}
	if s.requeued {
		r.metrics.requeued(o.gateName)
	}
	if s.podsLate != nil {
		o.history.podsLate = s.podsLate
	}
	if s.lateAttempt > 0 {
		o.history.lateAttempt = s.lateAttempt
	}
	if s.reservation != nil {
		o.history = o.history.withAdmittedPods(s.reservation.admittedPods)
	}
	r.remember(o)
	if s.event != nil {
		r.record(o, *s.event)
	}
	done, err := r.writeAll(ctx, o, s.writes)
	s.writes = s.writes[:done]
	logStep(ctx, o, s)
	return err
}

// writeAll sends the requests in order, each followed by the event, and returns the number of
// successful writes.
func (r *Reconciler) writeAll(ctx context.Context, o *observation, writes []write) (int, error) {
	var live *unstructured.Unstructured
	for i, w := range writes {
		var err error
		if live, err = r.write(ctx, o, w, live); err != nil {
			o.history.lastWrite.mayBeStored = mayBeStored(err)
			r.remember(o)
			return i, err
		}
		if w.event != nil {
			r.record(o, *w.event)
		}
	}
	return len(writes), nil
}

// write sends one request. It returns the workload as the API server has it afterwards, with
// managedFields, if the request was for the record.
func (r *Reconciler) write(ctx context.Context, o *observation, w write, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	switch {
	case w.record != nil:
		live, err := r.writeRecord(ctx, o, *w.record)
		if err == nil && w.record.reason != "" {
			o.history.lastReason = w.record.reason
			r.remember(o)
		}
		return live, err
	case w.nomination != nil:
		return nil, r.writeNomination(ctx, o, *w.nomination, live)
	}
	if err := r.writeCheck(ctx, o, *w.check); err != nil {
		return nil, err
	}
	if w.check.rememberReason {
		o.history.lastReason = w.check.decision.Reason
	}
	if w.check.messageKind != "" {
		o.history.lastMessage.kind, o.history.lastMessage.at = w.check.messageKind, o.now
	}
	r.remember(o)
	if w.check.decision.State == gate.Ready && w.check.rememberReason {
		r.metrics.ready(o.gateName, max(0, r.now().Sub(o.history.quotaSeenAt)))
	}
	return nil, nil
}

// remember stores the observation's history.
func (r *Reconciler) remember(o *observation) { r.histories.put(o.wl.UID, o.history) }

func (r *Reconciler) record(o *observation, e notice) {
	kind := "Normal"
	if e.warning {
		kind = "Warning"
	}
	r.recorder.Eventf(o.wl, nil, kind, e.reason, "Gate", "%s", e.message)
}

// logStep writes one info line for a step with an event, and a debug line for any other step.
// s.writes contains only successful writes. The next reconciliation repeats the failed write
// and logs the transition then.
func logStep(ctx context.Context, o *observation, s step) {
	logger := log.FromContext(ctx).WithValues("gate", o.gateName, "from", o.phase, "to", s.leadsTo(o.phase))
	events := make([]notice, 0, len(s.writes)+1)
	if s.event != nil {
		events = append(events, *s.event)
	}
	var clusters []string
	for _, w := range s.writes {
		if w.event != nil {
			events = append(events, *w.event)
		}
		if w.nomination != nil {
			clusters = w.nomination.clusters
		}
	}
	if len(events) == 0 {
		logger.V(1).Info("Workload observed", "writes", len(s.writes), "requeueAfter", s.requeueAfter)
		return
	}
	var reasons, messages []string
	for _, e := range events {
		reasons, messages = append(reasons, e.reason), append(messages, e.message)
	}
	logger.Info("Workload transition", "reason", strings.Join(reasons, ","), "clusters", clusters, "message", strings.Join(messages, "; "))
}
