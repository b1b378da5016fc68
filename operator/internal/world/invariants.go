package world

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/world/hub"
)

// Invariant is a statement that holds in every world. operator/docs/world.md has the same sentences.
type Invariant string

// Invariants.
const (
	// OneCopy: a job has pods on at most one cluster, unless one of its clusters is unreachable.
	OneCopy Invariant = "OneCopy"
	// NotLost: every job ends that can, unless it hangs where it was sent.
	NotLost Invariant = "NotLost"
	// StartsWhereSent: the pods of a job that was sent to a cluster find nodes there.
	StartsWhereSent Invariant = "StartsWhereSent"
	// StartsInTime: a job that fits on a cluster which is free for it is sent there within startBound after all its
	// components have quota.
	StartsInTime Invariant = "StartsInTime"
	// NoStarvation: a job that has waited for hold.agingSeconds is sent to a cluster within the bound of
	// operator/docs/order.md.
	NoStarvation Invariant = "NoStarvation"
	// NoOvercommit: when a cluster admits a job, the jobs that it has admitted request no more devices than
	// it has, those left out that hang for longer than the 10 min of the ledger, or than a minute if no pod runs there or
	// another process of the operator sent them.
	NoOvercommit Invariant = "NoOvercommit"
	// NoVainKill: no running job is preempted for one that does not start within vainBound, and none
	// twice by the same.
	NoVainKill Invariant = "NoVainKill"
	// NoVainReturn: no job is sent to a cluster again within returnBound after it could not start there
	// while another cluster fits.
	NoVainReturn Invariant = "NoVainReturn"
	// FewWrites: the operator writes each Workload at most maxWrites times, maxWritesPerAttempt for each
	// further attempt, and once more for each 15 s.
	FewWrites Invariant = "FewWrites"
	// TrueMessage: what the message of a waiting job says of holds, connections, samples, its turn and free
	// devices was true within messageLag.
	TrueMessage Invariant = "TrueMessage"
	// PassesAtOnce: a gate in mode Shadow lets every job pass within passBound.
	PassesAtOnce Invariant = "PassesAtOnce"
	// Drains: after the last job, nothing of it is left in the operator.
	Drains Invariant = "Drains"
)

// Bounds of the invariants.
const (
	checkInterval       = 5 * time.Second
	startBound          = 3 * time.Minute
	passBound           = 30 * time.Second
	vainBound           = 10 * time.Minute
	returnBound         = 30 * time.Minute
	maxWrites           = 12
	maxWritesPerAttempt = 8
	// copyGrace is the time in which MultiKueue removes the other copy after a cluster is reachable again.
	copyGrace = 3 * time.Minute
	// truthLag is how far metrics and caches may lag behind the truth.
	truthLag = 2 * time.Minute
)

// Problem is a broken invariant.
type Problem struct {
	Invariant Invariant
	At        time.Duration
	Job       string
	Text      string
}

func (p Problem) String() string {
	return fmt.Sprintf("%s after %s: %s", p.Invariant, p.At.Round(time.Millisecond), p.Text)
}

// broken records a problem once for each invariant and job.
func (w *World) broken(i Invariant, job, format string, args ...any) {
	if w.isShadow() && !slices.Contains(holdInShadow, i) {
		return
	}
	p := Problem{Invariant: i, At: w.Elapsed(), Job: job, Text: fmt.Sprintf(format, args...)}
	if slices.ContainsFunc(w.Problems, func(other Problem) bool { return other.Invariant == i && other.Job == job }) {
		return
	}
	w.Problems = append(w.Problems, p)
	w.note("BROKEN %s", p)
}

// check tests the invariants of the present.
func (w *World) check() {
	w.loop.After(w.settings.CheckInterval, w.check)
	w.quiet = map[*cluster]bool{}
	defer func() { w.quiet = nil }()
	w.checkVainKills()
	disturbed := w.disturbed()
	if disturbed {
		w.calmSince = w.loop.Now()
	}
	if !w.Operator.Running() {
		w.leaderlessAt = w.loop.Now()
	}
	w.noteDoubts()
	holds, isCalm := w.Operator.Holds(), w.isCalm()
	w.measureRuns()
	w.checkMoves(isCalm)
	w.checkQuota(isCalm)
	w.markUndecided()
	w.unfinished = slices.DeleteFunc(w.unfinished, (*Run).isOver)
	for _, r := range w.unfinished {
		if r.jobs > 1 {
			w.checkCopies(r)
		}
		w.checkTogether(r)
		w.checkNever(r, isCalm && !disturbed)
		if disturbed || r.waitedAt != w.checks {
			r.fitsSince, r.heldSince, r.falseSince, r.wait.agedAt = time.Time{}, time.Time{}, nil, time.Time{}
			continue
		}
		if w.isShadow() {
			w.checkPassage(r)
			continue
		}
		w.checkStarvation(r, isCalm)
		w.checkStart(r, holds)
		w.checkMessage(r)
	}
}

// markUndecided marks the runs that hold quota without a decision of the gate or without a cluster. The others
// need no look at their Workloads.
func (w *World) markUndecided() {
	w.checks++
	for _, key := range w.hubStore.undecidedKeys() {
		if r := w.runs[key]; r != nil && r.Key == key {
			r.waitedAt = w.checks
		}
	}
}

// disturbed reports whether a fault is present in which waiting is right.
func (w *World) disturbed() bool {
	s := &w.faults
	return s.promDown > 0 || s.promSlow > 0 || s.writesFail > 0 || s.hubSlow > 0 || s.operatorOff > 0 || w.kueue.paused || len(s.lies) > 0 || !w.Operator.Running()
}

func (w *World) checkCopies(r *Run) {
	var on []string
	excused := false
	for _, c := range w.clusters {
		if c.hasPods(r) {
			on = append(on, c.spec.Name)
			excused = excused || w.isExcused(c)
		}
	}
	if len(on) > 1 && !excused && !w.kueue.paused {
		w.broken(OneCopy, r.Name, "%s has pods on %s", r.Name, strings.Join(on, " and "))
	}
}

// hasPods reports whether pods of a job have nodes on the cluster.
func (c *cluster) hasPods(r *Run) bool {
	j := c.jobFor(r.Key)
	return j != nil && slices.ContainsFunc(j.pods, func(p *pod) bool { return p.node != nil && !p.deleting })
}

// isExcused reports whether Kueue may not have removed copies from the cluster yet.
func (w *World) isExcused(c *cluster) bool {
	return !c.reachable || !w.multiKueue.remotes[c.spec.Name].connected || w.loop.Now().Sub(c.foundAt) < copyGrace
}

// preempted records that Kueue on the hub or on a worker preempts a job for another one.
func (w *World) preempted(by string, victim, preemptor types.NamespacedName) {
	r := w.runs[victim]
	if r == nil || len(r.running) == 0 || r.ended {
		return
	}
	p := w.runs[preemptor]
	r.killers[p.Name]++
	w.note("%s preempts %s, which runs, for %s", by, r.Name, p.Name)
	if r.killers[p.Name] > 1 && p.Started.IsZero() {
		w.broken(NoVainKill, r.Name, "%s ran and was preempted %d times for %s, which never started, now by %s", r.Name, r.killers[p.Name], p.Name, by)
	}
	if p.killedAt.IsZero() && p.Started.IsZero() {
		p.killedAt = w.loop.Now()
		p.killed, p.killedBy = r.Name, by
		w.preemptors = append(w.preemptors, p)
	}
}

func (w *World) checkVainKills() {
	w.preemptors = slices.DeleteFunc(w.preemptors, func(r *Run) bool { return r.killedAt.IsZero() || r.vainReported })
	slices.SortFunc(w.preemptors, func(a, b *Run) int { return a.serial - b.serial })
	for _, r := range w.preemptors {
		switch {
		case !r.Started.IsZero() || r.Deleted:
			r.killedAt = time.Time{}
		case w.loop.Now().Sub(r.killedAt) > vainBound:
			r.vainReported = true
			w.broken(NoVainKill, r.Name, "%s was preempted by %s for %s, which has not started %s later", r.killed, r.killedBy, r.Name, vainBound)
		}
	}
}

// workloadChanged follows the state of a job that the hub shows.
func (w *World) workloadChanged(key types.NamespacedName, e hub.Event) { //nolint:gocyclo // one statement per transition of a workload
	r := w.runs[key]
	wl, _ := e.New.(*kueue.Workload)
	if r == nil || wl == nil || e.Type == hub.Deleted {
		return
	}
	if kueuestate.IsFinished(wl) && !isReplaced(wl) && r.Done.IsZero() {
		r.Done = w.loop.Now()
		w.expire(r)
		w.endCopy(r)
		w.note("%s is done", r.Name)
	}
	isOperator := strings.HasPrefix(e.Manager, "plimsoll")
	if old, _ := e.Old.(*kueue.Workload); old != nil {
		was, is := kueuestate.FindCheck(old, checkName), kueuestate.FindCheck(wl, checkName)
		if was != nil && is != nil && was.Message != is.Message {
			w.note("gate on %s: %s %q", r.Name, is.State, is.Message)
		}
		if !slices.Equal(old.Status.NominatedClusterNames, wl.Status.NominatedClusterNames) {
			w.note("%s is nominated to %v", r.Name, wl.Status.NominatedClusterNames)
			if len(wl.Status.NominatedClusterNames) > 0 {
				r.Nominated = append(r.Nominated, strings.Join(wl.Status.NominatedClusterNames, " "))
				r.misled = slices.ContainsFunc(wl.Status.NominatedClusterNames, w.lies)
			}
		}
		if n := len(r.placements); n > 0 && old.Status.ClusterName != nil && wl.Status.ClusterName == nil {
			r.placements[n-1].endedAt = w.loop.Now()
			r.placements[n-1].why = evictionReason(wl)
			r.placements[n-1].unseen = !w.Operator.Running()
		}
		if old.Status.Admission == nil && wl.Status.Admission != nil {
			r.attempts++
		}
		r.followWait(old, wl, isOperator)
		if isOperator {
			w.followReclaim(r, old, wl)
		}
		if c := kueuestate.FindCheck(wl, "other"); c != nil && wl.Status.Admission != nil && c.State == kueue.CheckStatePending && (old.Status.Admission == nil || kueuestate.FindCheck(old, "other") == nil || kueuestate.FindCheck(old, "other").State != kueue.CheckStatePending) {
			w.passOtherCheck(key, r)
		}
	}
	if isOperator {
		r.writes++
		waited := int(w.loop.Now().Sub(r.Submitted) / (15 * time.Second)) // the message of a waiting job may change
		if limit := maxWrites + maxWritesPerAttempt*max(0, r.attempts-1) + waited; r.writes > limit && w.faults.writesFail == 0 {
			w.broken(FewWrites, r.Name, "%s was written %d times in %d attempts", r.Name, r.writes, r.attempts)
		}
	}
}

func evictionReason(wl *kueue.Workload) string {
	for _, c := range wl.Status.Conditions {
		if c.Type == kueue.WorkloadEvicted {
			return c.Reason
		}
	}
	return ""
}

// passOtherCheck sets the check of the other controller Ready after a time.
// Like some controllers, it also passes workloads that are being evicted.
func (w *World) passOtherCheck(key types.NamespacedName, r *Run) {
	if !w.kueue.quota.queues[r.Queue].spec.OtherCheck {
		return
	}
	w.loop.After(w.settings.OtherCheckDelay, func() {
		w.kueue.workloads.update(key, func(wl *kueue.Workload) bool {
			c := kueuestate.FindCheck(wl, "other")
			if c == nil || c.State != kueue.CheckStatePending || wl.Status.Admission == nil {
				return false
			}
			c.State, c.LastTransitionTime = kueue.CheckStateReady, w.kueue.stamp()
			return true
		})
	})
}

// AllOver reports whether every job is over that can end.
func (w *World) AllOver() bool {
	for len(w.unfinished) > 0 && w.unfinished[0].isOver() {
		w.unfinished = w.unfinished[1:]
	}
	return len(w.order) == w.workloads && !slices.ContainsFunc(w.unfinished, func(r *Run) bool { return !r.isOver() && r.mayEnd() })
}

// mayEnd reports whether the job can end in this world: its pods succeed, an empty cluster takes them, and an
// empty queue on the hub does.
func (r *Run) mayEnd() bool {
	if r.Elastic {
		return r.fitsEmpty()
	}
	if r.findsEnd == nil {
		r.findsEnd = ptr.To(r.fitsEmpty())
	}
	return *r.findsEnd
}

func (r *Run) fitsEmpty() bool {
	if r.Behavior == Crashes || r.Behavior == NeverReady || !r.world.kueue.quota.takes(r.Job, cmp.Or(r.MinPods, r.allPods())*r.Devices) {
		return false
	}
	for _, c := range r.world.clusters {
		if wl := r.world.kueue.workloads.get(r.Key); r.Elastic && wl != nil && ptr.Deref(wl.Status.ClusterName, c.spec.Name) != c.spec.Name {
			continue // its slices stay where it runs
		}
		if c.emptied == nil {
			c.emptied = emptyCluster(c.spec)
		}
		if c.emptied.placeable(r.Job, r.allPods()) >= r.allPods() && c.kueue.quota.takes(r.Job, r.allPods()*r.Devices) {
			return true
		}
	}
	return false
}

// Finish tests what must hold when the world is over.
func (w *World) Finish() {
	for _, r := range w.order {
		if !r.Done.IsZero() || r.Deleted || !r.mayEnd() {
			continue
		}
		wl := w.kueue.workloads.get(r.Key)
		if wl == nil {
			w.broken(NotLost, r.Name, "%s has no Workload and has not ended", r.Name)
			continue
		}
		if evictionReason(wl) == kueue.WorkloadDeactivated+"DueTo"+kueue.WorkloadMaximumExecutionTimeExceeded {
			continue // ran for as long as it may
		}
		invariant := NotLost
		if slices.ContainsFunc(r.placements, func(p placement) bool { return p.startedAt.IsZero() }) {
			invariant = StartsWhereSent
		}
		w.broken(invariant, r.Name, "%s has not ended: active %v, quota %v, cluster %s, nominated %v, evicted %q, checks %s, record %s", r.Name, kueuestate.IsActive(wl), wl.Status.Admission != nil,
			ptr.Deref(wl.Status.ClusterName, "none"), wl.Status.NominatedClusterNames, evictionReason(wl), checksText(wl), wl.Annotations[v1alpha1.DispatchAnnotation])
	}
}

// FinishDrained tests that the operator remembers no workload after all of them were deleted.
func (w *World) FinishDrained() {
	if left := w.Operator.Remaining(); left != "" {
		w.broken(Drains, "", "%s", left)
	}
}

// DeleteAll deletes all Workloads, as users do in the end.
func (w *World) DeleteAll() { w.deleteAll() }

func checksText(wl *kueue.Workload) string {
	texts := map[string]string{}
	for _, c := range wl.Status.AdmissionChecks {
		texts[string(c.Name)] = string(c.State) + " " + c.Message
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		list = append(list, name+"="+texts[name])
	}
	return strings.Join(list, ", ")
}
