package world

import (
	"math/rand/v2"
	"slices"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
)

// holdInShadow are the invariants of a world whose gate is in mode Shadow. Jobs go where Kueue sends them, and may hang
// there for ever.
var holdInShadow = []Invariant{OneCopy, FewWrites, PassesAtOnce, Drains}

func (w *World) isShadow() bool { return w.settings.Gate.Mode == v1alpha1.ModeShadow }

// checkPassage reports a job that a gate in mode Shadow keeps waiting.
func (w *World) checkPassage(r *Run) {
	wl := w.kueue.workloads.get(r.Key)
	var check *kueue.AdmissionCheckState
	if wl != nil && kueuestate.AcceptsCheckUpdate(wl) {
		check = kueuestate.FindCheck(wl, checkName)
	}
	isFollower := r.set != nil && r != r.set.members[0] // Kueue sends it after the first one
	isConnected := slices.ContainsFunc(w.clusters, func(c *cluster) bool { return w.isReportedActive(c.spec.Name) })
	switch {
	case check == nil || check.State == kueue.CheckStateReady && (len(wl.Status.NominatedClusterNames) > 0 || wl.Status.ClusterName != nil || awaitsOthers(wl) || isFollower || !isConnected):
		r.heldSince = time.Time{}
	case r.heldSince.IsZero():
		r.heldSince = w.loop.Now()
	case w.loop.Now().Sub(r.heldSince) > passBound:
		w.broken(PassesAtOnce, r.Name, "%s has waited for %s: checks %s", r.Name, w.loop.Now().Sub(r.heldSince).Round(time.Second), checksText(wl))
	}
}

// makeShadow puts the gates of some worlds in mode Shadow.
func makeShadow(s *Spec) {
	dice := generator{rand.New(rand.NewPCG(s.Seed, 0x736861646f77))}
	if dice.chance(.06) {
		s.Settings.Gate.Mode = v1alpha1.ModeShadow
	}
}
