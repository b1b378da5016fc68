package world

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/world/hub"
)

// Invariants of reclaims and moves.
const (
	// RightReclaim: a ReclaimPolicy returns only jobs that agreed and run, at most maxPerHour within an hour. All
	// devices of an idle one have been idle for idleSeconds, and one that moves leaves for a job of a higher priority.
	RightReclaim Invariant = "RightReclaim"
	// NoVainMove: a job for which another one moved starts within vainBound, if no fault occurs meanwhile.
	NoVainMove Invariant = "NoVainMove"
)

// reclaimPolicy is the name of the world's ReclaimPolicy.
const reclaimPolicy = "idle"

// createReclaimPolicy creates the ReclaimPolicy of the settings, for all queues.
func (w *World) createReclaimPolicy() {
	if w.settings.Reclaim == nil {
		return
	}
	spec := *w.settings.Reclaim.DeepCopy()
	spec.SourceRef = v1alpha1.LocalReference{Name: sourceName}
	for i := range w.Spec.Queues {
		spec.ClusterQueues = append(spec.ClusterQueues, w.Spec.Queues[i].Name)
	}
	w.create(&v1alpha1.ReclaimPolicy{ObjectMeta: metav1.ObjectMeta{Name: reclaimPolicy}, Spec: spec})
}

// utilization is how busy the devices of a pod are.
func (p *pod) utilization() float64 {
	if p.job.spec.Idle || !p.ready {
		return 0
	}
	return 0.9
}

// move is that a job returned to its queue for a waiting one.
type move struct {
	of, waiting *Run
	at          time.Time
}

// followReclaim follows the reclaims of a job by a change of its Workload, which the operator made.
func (w *World) followReclaim(r *Run, old, wl *kueue.Workload) {
	if !kueuestate.IsActive(old) || kueuestate.IsActive(wl) {
		return
	}
	record, err := dispatch.Decode(wl.Annotations)
	if err != nil || !record.IsReclaimed() {
		return
	}
	now := w.loop.Now()
	w.note("the policy returns %s to its queue: %s", r.Name, record.Reclaimed.Cause)
	w.reclaims = append(slices.DeleteFunc(w.reclaims, func(at time.Time) bool { return now.Sub(at) >= time.Hour }), now)
	if limit := int(w.settings.Reclaim.MaxPerHour); len(w.reclaims) > limit {
		w.broken(RightReclaim, r.Name, "%s is the job %d within an hour that returns to its queue, of at most %d", r.Name, len(w.reclaims), limit)
	}
	if !r.Reclaimable || !kueuestate.IsAdmitted(old) {
		w.broken(RightReclaim, r.Name, "%s returns to its queue: it agreed %v, is admitted %v", r.Name, r.Reclaimable, kueuestate.IsAdmitted(old))
	}
	waitsFor := w.movedFor(wl)
	if waitsFor == "" {
		w.checkIdle(r)
		return
	}
	_, name, _ := strings.Cut(waitsFor, "/job-")
	waiting := w.runOf(name)
	if waiting == nil || waiting.Priority <= r.Priority {
		w.broken(RightReclaim, r.Name, "%s moves for %s, which has no higher priority", r.Name, waitsFor)
		return
	}
	w.moves = append(w.moves, move{r, waiting, now})
}

// movedFor is the workload for which the policy recorded that a job moves; empty = the job is idle.
func (w *World) movedFor(wl *kueue.Workload) string {
	waiting := ""
	for _, record := range hub.Get[*v1alpha1.ReclaimPolicy](w.objects, types.NamespacedName{Name: reclaimPolicy}).Status.History {
		if record.UID == string(wl.UID) {
			waiting = ""
			if record.Move != nil {
				waiting = record.Move.For
			}
		}
	}
	return waiting
}

// checkIdle reports a job that is reclaimed although it was busy within idleSeconds.
func (w *World) checkIdle(r *Run) {
	since, runs := time.Time{}, false
	for _, at := range r.running {
		since, runs = at, true
	}
	if !runs { // it has just ended
		return
	}
	idle := time.Duration(w.settings.Reclaim.IdleSeconds) * time.Second
	// Its pods are idle until they are ready.
	if !r.Idle || w.loop.Now().Sub(since) < min(idle, time.Duration(*w.settings.Reclaim.MinRunSeconds)*time.Second)-w.settings.WatchDelay {
		w.broken(RightReclaim, r.Name, "%s returns to its queue as an idle job: it is idle %v, and runs since %s", r.Name, r.Idle, w.loop.Now().Sub(since).Round(time.Second))
	}
}

// checkMoves reports jobs that did not start although others moved for them.
func (w *World) checkMoves(isCalm bool) {
	w.moves = slices.DeleteFunc(w.moves, func(m move) bool {
		wl := w.kueue.workloads.get(m.waiting.Key)
		switch {
		case !isCalm || m.waiting.Deleted || wl == nil || !kueuestate.HoldsQuota(wl) || len(m.waiting.running) > 0 || !m.waiting.Done.IsZero():
			return true
		case w.loop.Now().Sub(m.at) > vainBound:
			w.broken(NoVainMove, m.of.Name, "%s moved for %s, which has not started %s later", m.of.Name, m.waiting.Name, vainBound)
			return true
		}
		return false
	})
}

// makeReclaims adds a ReclaimPolicy to some worlds, jobs that agree to it, and idle ones.
func makeReclaims(s *Spec) {
	g := generator{rand.New(rand.NewPCG(s.Seed, 0x7265636c))} // of its own, so that the rest of a seed's world stays the same
	if !g.chance(.15) {
		return
	}
	s.Settings.Reclaim = &v1alpha1.ReclaimPolicySpec{Mode: v1alpha1.ModeEnforce, IdleSeconds: oneOf[int32](g, 60, 120, 300), MinRunSeconds: ptr.To(oneOf[int32](g, 0, 60, 300)),
		MaxPerHour: oneOf[int32](g, 4, 20, 60), PeriodSeconds: oneOf[int32](g, 10, 30, 60)}
	if g.chance(.7) {
		s.Settings.Reclaim.Rebalance = &v1alpha1.Rebalance{Mode: v1alpha1.ModeEnforce}
	}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		j.Reclaimable = g.chance(.6)
		j.Idle = g.chance(.15)
	}
}
