package workload

import (
	"context"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// mayNominate says whether it is our turn: every check but ours and MultiKueue's is Ready.
func (r *Reconciler) mayNominate(s *subject) bool {
	return r.nominate && s.mk != "" && kueuestate.WantsNomination(s.wl, s.mk) && kueuestate.OtherChecksReady(s.wl, s.own[0], s.mk)
}

// nominated looks after the nominations of a workload whose turn has come.
func (r *Reconciler) nominated(ctx context.Context, s *subject) (reconcile.Result, error) {
	if done, err := r.nominateAgain(ctx, s); done || err != nil {
		return reconcile.Result{RequeueAfter: timing.DefaultWidenAfter}, err
	}
	if len(s.wl.Status.NominatedClusterNames) == 0 {
		return r.decide(ctx, s)
	}
	return r.widenIfDue(ctx, s)
}

// nominateAgain what somebody took off the list: a cluster that was revoked after
// it admitted runs its copy, and Kueue can't record that until it is nominated.
func (r *Reconciler) nominateAgain(ctx context.Context, s *subject) (bool, error) {
	record, err := dispatch.Decode(s.wl.Annotations)
	if err != nil {
		return false, err
	}
	now, nominated := r.now(), s.wl.Status.NominatedClusterNames
	revoked := record.Revoked(nominated, r.tracks.see(s.wl.UID, nominated))
	clusters := dispatch.Record{EverNominated: revoked}.WidenedList(dispatch.StageHeal, nominated, nil, s.usable, v1alpha1.Widen{})
	if len(clusters) == len(nominated) {
		return false, nil
	}
	message := "somebody revoked the nomination of " + strings.Join(revoked, ", ")
	r.board.ReportConflict(s.gateName, fmt.Sprintf("%s: %s", s.key(), message), now)
	next := record.Widen(clusters, message, now)
	return true, r.write(ctx, s, clusters, &next, "NominatedAgain", message)
}

// widenIfDue looks after a nomination that no cluster has admitted yet. Without a
// gate the defaults hold, and where the workload fits is not known.
func (r *Reconciler) widenIfDue(ctx context.Context, s *subject) (reconcile.Result, error) {
	g, ok := r.gateOf(s)
	if _, exists := r.specOf(ctx, s.gateName); exists && !ok {
		return reconcile.Result{RequeueAfter: timing.DefaultWidenAfter}, nil
	}
	record, _ := dispatch.Decode(s.wl.Annotations) // one that can't be read is begun anew
	now, nominated := r.now(), s.wl.Status.NominatedClusterNames
	reserved, _ := reservedAt(s.wl)
	if !record.IsCurrent(reserved) || len(record.Foreign(nominated)) > 0 {
		next := record.Adopt(nominated, reserved, now)
		r.reserve(ctx, s, g, r.facts(ctx, s, &g.Spec), next.Attempt, func(gate.Decision) []string { return nominated })
		_, err := r.annotate(ctx, s.wl, next)
		return reconcile.Result{RequeueAfter: timing.Seconds(widen(g).AfterSeconds, timing.DefaultWidenAfter)}, err
	}
	phase, after := record.Stage(widen(g), now)
	if phase == dispatch.StageWait {
		return reconcile.Result{RequeueAfter: after}, nil
	}
	news := r.tracks.late(s.wl.UID, record.Attempt)
	if ok && news {
		r.metrics.mispredicted(g.Name)
	}
	wider := r.reserve(ctx, s, g, r.facts(ctx, s, &g.Spec), record.Attempt, func(d gate.Decision) []string {
		return record.WidenedList(phase, nominated, d.Order, s.usable, widen(g))
	})
	message := fmt.Sprintf("%s has not admitted it %s after its nomination (is the queue there, and has it quota?)",
		strings.Join(nominated, ", "), now.Sub(record.NominatedAt).Round(time.Second))
	if len(wider) == len(nominated) {
		if news {
			r.event(s.wl, true, "NotAdmitted", gate.Truncate(message+", and no other cluster is known to have room"))
		}
		return reconcile.Result{RequeueAfter: after}, nil
	}
	message += ": now also " + strings.Join(wider[len(nominated):], ", ")
	next := record.Widen(wider, message, now)
	return reconcile.Result{RequeueAfter: after}, r.write(ctx, s, wider, &next, string(phase), message)
}
