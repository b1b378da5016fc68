package workload

import (
	"context"
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/querycache"
)

// noGate says so on the workload; a gate that was merely not read yet is no news.
func (r *Reconciler) noGate(ctx context.Context, s *subject) error {
	message := "PlacementGate " + s.gateName + " does not exist"
	if _, exists := r.specOf(ctx, s.gateName); exists || s.check().Message == message {
		return nil
	}
	return r.undecided(ctx, s, message)
}

// tooMany of our checks stand on one queue: none of them decides. Those that wait say
// so; one that got Ready before the others came stays so.
func (r *Reconciler) tooMany(ctx context.Context, s *subject) error {
	waits := *s
	waits.own = slices.DeleteFunc(slices.Clone(s.own), func(name string) bool {
		return kueuestate.FindCheck(s.wl, name).State != kueue.CheckStatePending
	})
	if len(waits.own) == 0 {
		r.waiting.Remove(s.key())
		return nil
	}
	r.waiting.Add(querycache.Key{Gate: s.gateName}, s.key(), r.waitsSince(&waits))
	message := gate.TooManyChecksMessage(s.own)
	if !slices.ContainsFunc(waits.own, func(name string) bool { return kueuestate.FindCheck(s.wl, name).Message != message }) {
		return nil
	}
	return r.undecided(ctx, &waits, message)
}

// undecided says why no gate decides, which is no time without a place.
func (r *Reconciler) undecided(ctx context.Context, s *subject, message string) error {
	record, err := dispatch.Decode(s.wl.Annotations)
	if err != nil {
		return err
	}
	if _, err := r.count(ctx, s, record, false); err != nil {
		return err
	}
	d := gate.Decision{State: gate.Pending, Reason: gate.ReasonGateNotReady, Message: message}
	if err := r.writeChecks(ctx, s, d); err != nil {
		return err
	}
	r.tracks.setReason(s.wl.UID, d.Reason)
	r.event(s.wl, true, d.Reason, message)
	return nil
}
