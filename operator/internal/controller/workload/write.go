package workload

import (
	"context"

	"plimsoll.dev/plimsoll/operator/internal/admission/engine"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
)

// Write implements engine.Edge.
func (r *Reconciler) Write(ctx context.Context, w *engine.Writing, request lifecycle.Write) (err error) {
	switch {
	case request.Record != nil:
		err = r.writeRecord(ctx, w, *request.Record)
	case request.Nomination != nil:
		err = r.writeNomination(ctx, w, *request.Nomination)
	default:
		err = r.writeCheck(ctx, w, *request.Check)
	}
	w.History.LastWrite.MayBeStored = err != nil && mayBeStored(err)
	if isRefused(err) {
		w.Refused = lifecycle.NewRefusal(request, err, r.now())
	}
	return err
}

// Notify implements engine.Edge.
func (r *Reconciler) Notify(s *lifecycle.Situation, n lifecycle.Notice) {
	kind := "Normal"
	if n.Warning {
		kind = "Warning"
	}
	r.recorder.Eventf(s.Workload, nil, kind, n.Reason, "Gate", "%s", n.Message)
}
