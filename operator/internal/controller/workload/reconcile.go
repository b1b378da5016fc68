package workload

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// Reconcile takes one workload one step further.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if err := r.rebuildOnce(ctx); err != nil {
		return reconcile.Result{}, fmt.Errorf("rebuild the ledger: %w", err)
	}
	out, err := r.engine.Step(ctx, req.NamespacedName)
	if out != nil {
		r.metrics.count(out)
		logStep(ctx, out.Situation, out.Step)
		logDecision(ctx, out)
	}
	if out != nil && (apierrors.IsConflict(err) || apierrors.IsNotFound(err)) {
		return reconcile.Result{RequeueAfter: timing.RereadDelay}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: out.Step.RequeueAfter}, nil
}

// logStep writes one info line for a step with an event, and a debug line for any other step.
// next has only successful writes. The next reconciliation repeats the failed write
// and logs the transition then.
func logStep(ctx context.Context, s *lifecycle.Situation, next lifecycle.Step) {
	if s.Workload == nil {
		log.FromContext(ctx).V(1).Info("Workload observed", "observedAt", s.Now, "isGone", true)
		return
	}
	logger := log.FromContext(ctx).WithValues("gate", s.Gate.Name, "observedAt", s.Now, "resourceVersion", s.Workload.ResourceVersion, "from", lifecycle.PhaseOf(s), "to", next.LeadsTo(lifecycle.PhaseOf(s)))
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
