package ledger

import (
	"maps"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// starts is what became of the workloads that a cluster admitted. It is replaced, never changed: views share it.
type starts struct {
	// unstarted workloads run there, and their pods have not been ready yet.
	unstarted []*Running
	// failed are those that ended before.
	failed []failedStart
	// started are the workloads whose pods were ready, by namespace.
	started map[string]successes
}

// successes are the starts of a namespace on a cluster.
type successes struct {
	// last is when the pods of a workload were last ready for the first time.
	last time.Time
	// took is how long the last learnedStarts took, from the admission.
	took [learnedStarts]time.Duration
}

// learnedStarts is the number of starts from which a namespace learns how long they take on a cluster: its images are as
// large each time, and pools of nodes take as long to grow.
const learnedStarts = 5

// patience is the time after an admission from which pods that are not ready count: at least least, and twice the longest
// of the namespace's last starts, but never more than timing.LongestStart.
func (s *starts) patience(namespace string, least time.Duration) time.Duration {
	took := s.started[namespace].took
	return max(least, min(2*slices.Max(took[:]), timing.LongestStart))
}

// failedStart is a workload that a cluster admitted and whose pods it did not start.
type failedStart struct {
	UID, Namespace string
	// Since is when the cluster admitted it, and At when it ended.
	Since, At time.Time
}

// Doubt is a cluster that starts nothing, or nothing of a namespace, although it admits workloads.
type Doubt struct {
	// Workloads is the number of those that did not start there since the last one that did.
	Workloads int
	// Since is when the cluster admitted the first of them.
	Since time.Time
}

// minFailedStarts is the number of workloads of one namespace that have to fail before the cluster is doubted for
// that namespace, and the number of namespaces with such workloads before it is for all.
const minFailedStarts = 2

// Doubt is the doubt of a cluster for the workloads of a namespace; nil = there is none, or the next workload that
// goes there is a probe:
//   - A start has failed if the pods are not ready timing.HangsAfter after the admission, or later if starts of the
//     namespace take as long there, or if the workload ended before. It counts for timing.StartAvoidance after its end.
//   - A namespace doubts the cluster after minFailedStarts of its own workloads, as its images may be broken. All do
//     after those of as many namespaces.
//   - The first workload that starts ends the doubt of its namespace, and that of all.
//   - A probe may go there timing.ProbePause after the last workload that has not started.
func (v View) Doubt(cluster, namespace string, now time.Time) *Doubt {
	s := v.starts[cluster]
	if s == nil {
		return nil
	}
	d := s.doubt(namespace, now)
	if d == nil || s.mayProbe(now) && !slices.ContainsFunc(v.byCluster[cluster], func(e *Entry) bool { return e.isCurrent() && e.AdmittedAt.IsZero() }) {
		return nil
	}
	return d
}

// IsSlow reports whether a workload of the namespace, or those of minFailedStarts namespaces, have not started on a
// cluster for timing.SlowStart, or for longer if starts of theirs take as long there.
func (v View) IsSlow(cluster, namespace string, now time.Time) bool {
	s := v.starts[cluster]
	if s == nil {
		return false
	}
	namespaces := map[string]bool{}
	for _, r := range s.unstarted {
		if now.Sub(r.Since) >= s.patience(r.Namespace, timing.SlowStart) {
			namespaces[r.Namespace] = true
		}
	}
	return namespaces[namespace] || len(namespaces) >= minFailedStarts
}

// Unstarted returns the number of devices suitable for p of the workloads on a cluster whose pods have not been ready and
// that no longer reserve any there. A sample does not show them if no node can start the pods.
func (v View) Unstarted(cluster string, sampledAt time.Time, p shape.PodSet) (n int64) {
	s := v.starts[cluster]
	if s == nil || len(s.unstarted) == 0 {
		return 0
	}
	reserving := map[string]bool{}
	for e := range v.unmeasured(cluster, sampledAt, "") {
		reserving[e.UID] = true
	}
	for _, r := range s.unstarted {
		if !reserving[r.UID] {
			n += SharedDevices(r.PodSets, p)
		}
	}
	return n
}

// Doubted returns whether any namespace doubts a cluster, for each cluster that has admitted workloads.
func (v View) Doubted(now time.Time) map[string]bool {
	doubted := map[string]bool{}
	for cluster, s := range v.starts {
		doubted[cluster] = false
		for f := range s.failures(now) {
			doubted[cluster] = doubted[cluster] || s.doubt(f.Namespace, now) != nil
		}
	}
	return doubted
}

func (s *starts) doubt(namespace string, now time.Time) *Doubt {
	var last time.Time
	for _, of := range s.started {
		last = later(last, of.last)
	}
	own, all := map[string]time.Time{}, map[string]time.Time{}
	namespaces := map[string]bool{}
	for f := range s.failures(now) {
		if f.Namespace == namespace && f.Since.After(s.started[namespace].last) {
			own[f.UID] = f.Since
		}
		if f.Since.After(last) {
			all[f.UID] = f.Since
			namespaces[f.Namespace] = true
		}
	}
	failed := own
	switch {
	case len(namespaces) >= minFailedStarts:
		failed = all
	case len(own) < minFailedStarts:
		return nil
	}
	return &Doubt{Workloads: len(failed), Since: slices.MinFunc(slices.Collect(maps.Values(failed)), time.Time.Compare)}
}

// failures are the starts that have failed.
func (s *starts) failures(now time.Time) func(func(failedStart) bool) {
	return func(yield func(failedStart) bool) {
		for _, f := range s.failed {
			if now.Sub(f.At) < timing.StartAvoidance && !yield(f) {
				return
			}
		}
		for _, r := range s.unstarted {
			if now.Sub(r.Since) >= s.patience(r.Namespace, timing.HangsAfter) && !yield(failedStart{UID: r.UID, Namespace: r.Namespace, Since: r.Since}) {
				return
			}
		}
	}
}

// mayProbe reports whether the last workload that has not started was admitted long ago.
func (s *starts) mayProbe(now time.Time) bool {
	isYoung := func(since time.Time) bool { return now.Sub(since) < timing.ProbePause }
	return !slices.ContainsFunc(s.unstarted, func(r *Running) bool { return isYoung(r.Since) }) &&
		!slices.ContainsFunc(s.failed, func(f failedStart) bool { return isYoung(f.Since) })
}

// FailStart records that an admitted workload is about to end. Its start has failed if that is certain, or if its pods
// were not ready for timing.HangsAfter, or for longer if starts of its namespace take as long there.
func (l *Ledger) FailStart(uid string, now time.Time, isCertain bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.running[uid]
	if r == nil || r.isStarted() {
		return
	}
	if s := l.starts[r.Cluster]; !isCertain && now.Sub(r.Since) < s.patience(r.Namespace, timing.HangsAfter) {
		return
	}
	l.changeStarts(r.Cluster, func(s *starts) {
		s.failed = slices.DeleteFunc(s.failed, func(old failedStart) bool { return now.Sub(old.At) >= timing.StartAvoidance })
		s.failed = append(s.failed, failedStart{UID: uid, Namespace: r.Namespace, Since: r.Since, At: now})
	})
}

// changeStarts replaces what is known of a cluster.
func (l *Ledger) changeStarts(cluster string, change func(*starts)) {
	next := starts{started: map[string]successes{}}
	if old := l.starts[cluster]; old != nil {
		next = starts{unstarted: slices.Clone(old.unstarted), failed: slices.Clone(old.failed), started: maps.Clone(old.started)}
	}
	change(&next)
	l.starts = maps.Clone(l.starts)
	if l.starts == nil {
		l.starts = map[string]*starts{}
	}
	l.starts[cluster] = &next
	l.invalidate()
}

// isStarted reports whether the pods were ready, or nobody says so.
func (r *Running) isStarted() bool { return !r.StartedAt.IsZero() || !r.ReportsPodsReady }

// admit records a workload that was admitted, and whether its pods were ready.
func (l *Ledger) admit(r *Running) {
	if !r.isStarted() {
		l.changeStarts(r.Cluster, func(s *starts) { s.unstarted = append(s.unstarted, r) })
		return
	}
	l.start(r, r.StartedAt)
}

// start records when the pods of a workload were ready.
func (l *Ledger) start(r *Running, at time.Time) {
	if s := l.starts[r.Cluster]; at.IsZero() || s != nil && !at.After(s.started[r.Namespace].last) {
		return
	}
	l.changeStarts(r.Cluster, func(s *starts) {
		of := s.started[r.Namespace]
		of.last = at
		if took := at.Sub(r.Since); took > 0 {
			copy(of.took[1:], of.took[:])
			of.took[0] = took
		}
		s.started[r.Namespace] = of
	})
}

// leave forgets a workload that was admitted.
func (l *Ledger) leave(r *Running) {
	if !r.isStarted() {
		l.changeStarts(r.Cluster, func(s *starts) {
			s.unstarted = slices.DeleteFunc(s.unstarted, func(other *Running) bool { return other == r })
		})
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
