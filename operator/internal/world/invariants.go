package world

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/kueuestate"
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
	// StartsInTime: a job with quota that fits on a cluster which is free for it is sent there within
	// startBound.
	StartsInTime Invariant = "StartsInTime"
	// NoOvercommit: when a cluster admits a job, the jobs that it has admitted request no more devices than
	// it has, those left out that hang for longer than --ledger-ttl, or than a minute if no pod runs there or
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
	// Drains: after the last job, nothing of it is left in the operator.
	Drains Invariant = "Drains"
)

// Bounds of the invariants.
const (
	checkInterval       = 5 * time.Second
	startBound          = 3 * time.Minute
	vainBound           = 10 * time.Minute
	returnBound         = 15 * time.Minute
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
	p := Problem{Invariant: i, At: w.Elapsed(), Job: job, Text: fmt.Sprintf(format, args...)}
	if slices.ContainsFunc(w.Problems, func(other Problem) bool { return other.Invariant == i && other.Job == job }) {
		return
	}
	w.Problems = append(w.Problems, p)
	w.note("BROKEN %s", p)
}

// check tests the invariants of the present.
func (w *World) check() {
	w.loop.After(checkInterval, w.check)
	w.checkVainKills()
	disturbed := w.disturbed()
	if disturbed {
		w.calmSince = w.loop.Now()
	}
	if !w.Operator.Running() {
		w.leaderlessAt = w.loop.Now()
	}
	holds := w.Operator.Holds()
	for _, r := range w.order {
		if !r.Done.IsZero() || r.Deleted {
			continue
		}
		w.checkCopies(r)
		w.checkTogether(r)
		if disturbed {
			r.fitsSince, r.falseSince = time.Time{}, nil
			continue
		}
		w.checkStart(r, holds)
		w.checkMessage(r)
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

// checkStart reports a job that waits although a cluster is free for it.
func (w *World) checkStart(r *Run, holds map[string]string) {
	wl := w.kueue.workloads.get(r.Key)
	if wl == nil || !kueuestate.HoldsQuota(wl) || !kueuestate.IsActive(wl) || kueuestate.IsEvicted(wl) || wl.Status.ClusterName != nil || len(wl.Status.NominatedClusterNames) > 0 {
		r.fitsSince = time.Time{}
		return
	}
	if other := kueuestate.FindCheck(wl, "other"); other != nil && other.State != kueue.CheckStateReady {
		return
	}
	if r.set != nil && r != r.set.members[0] {
		return // others of its set may wait for the same devices, and it could not run without them
	}
	if r.MinPods > 0 {
		return // the number of pods that start depends on the worker's quota
	}
	where := ""
	for _, c := range w.clusters {
		if held, isHeld := holds[c.spec.Name]; isHeld && held != r.Key.String() || w.faults.lost[c.spec.Name] != "" {
			continue
		}
		if job := r.mayGoTo(c, r.asAssigned(wl)); job != nil && w.isQuiet(c) && w.settled(c) && c.takes(job) {
			where = c.spec.Name
			break
		}
	}
	switch {
	case where == "":
		r.fitsSince = time.Time{}
	case r.fitsSince.IsZero():
		r.fitsSince = w.loop.Now()
	case w.loop.Now().Sub(r.fitsSince) > startBound:
		check := kueuestate.FindCheck(wl, checkName)
		w.broken(StartsInTime, r.Name, "%s has waited for %s although it fits on %s: %s %q", r.Name, w.loop.Now().Sub(r.fitsSince).Round(time.Second), w.clusterOf(where).describe(), check.State, check.Message)
	}
}

// describe is the cluster with the free devices of its nodes and the quota that its queues have left.
func (c *cluster) describe() string {
	var nodes, queues []string
	for _, n := range c.nodes {
		nodes = append(nodes, fmt.Sprintf("%d/%d", n.free(), n.pool.Devices))
	}
	used := c.kueue.usage()
	for _, name := range slices.Sorted(maps.Keys(c.kueue.quota.queues)) {
		for _, f := range c.kueue.quota.flavors {
			queues = append(queues, fmt.Sprintf("%s/%s %d", name, f.name, c.kueue.quota.available(name, f.name, used)))
		}
	}
	return fmt.Sprintf("%s (free %s; quota %s)", c.spec.Name, strings.Join(nodes, " "), strings.Join(queues, ", "))
}

// asAssigned is the job on the device model of the flavor that Kueue on the hub assigned. The gate looks for
// that model only.
func (r *Run) asAssigned(wl *kueue.Workload) *Job {
	j := *r.Job
	for _, a := range wl.Status.Admission.PodSetAssignments {
		for _, f := range r.world.kueue.quota.flavors {
			if string(a.Flavors[corev1.ResourceName(f.resource)]) == f.name {
				j.Model = f.model
			}
		}
		if a.Count != nil {
			j.Pods = int64(*a.Count)
		}
	}
	return &j
}

// settled reports whether the metrics of a cluster have been right for long enough to be believed.
func (w *World) settled(c *cluster) bool {
	return w.faults.lost[c.spec.Name] == "" && w.loop.Now().Sub(c.metricsFoundAt) > truthLag && w.loop.Now().Sub(w.calmSince) > truthLag
}

// isQuiet reports whether the cluster is connected, decided, and no job is on its way to it.
func (w *World) isQuiet(c *cluster) bool {
	r := w.multiKueue.remotes[c.spec.Name]
	if !c.reachable || r == nil || !r.connected || !slices.Contains(w.ocm.decided, c.spec.Name) || c.schedulerDead || c.startsFail {
		return false
	}
	for _, key := range w.kueue.workloads.keys() {
		wl := w.kueue.workloads.get(key)
		if kueuestate.IsFinished(wl) {
			continue
		}
		isSent := slices.Contains(wl.Status.NominatedClusterNames, c.spec.Name) || wl.Status.ClusterName != nil && *wl.Status.ClusterName == c.spec.Name
		if j := c.jobFor(key); isSent && (j == nil || w.isGrowing(c, key) || !j.podsReady() && j.spec.Behavior != NeverReady) {
			return false
		}
	}
	return true
}

// takes reports whether all pods of a job fit on the cluster now, by nodes and by the worker's quota.
func (c *cluster) takes(j *Job) bool {
	if !c.hasQuota(j, j.Devices*j.Pods) {
		return false
	}
	return c.placeable(j, j.Pods) >= j.Pods
}

func (c *cluster) hasQuota(j *Job, devices int64) bool {
	used := c.kueue.usage()
	for _, f := range c.kueue.quota.flavors {
		if f.resource == j.Resource && (j.Model == "" || j.Model == f.model) && c.kueue.quota.available(j.Queue, f.name, used) >= devices {
			return true
		}
	}
	return false
}

// placeable is the number of pods of a job that the scheduler could place at once, up to a limit.
func (c *cluster) placeable(j *Job, limit int64) int64 {
	n := int64(0)
	for _, node := range c.nodes {
		var extra []*pod
		for n < limit && node.fits(j) {
			p := &pod{devices: j.Devices, cpu: effectiveCPU(j), memory: j.Memory}
			node.pods = append(node.pods, p)
			extra = append(extra, p)
			n++
		}
		node.pods = node.pods[:len(node.pods)-len(extra)]
	}
	if quota := c.spec.ResourceQuota; quota > 0 {
		for _, p := range c.pods {
			if p.node != nil {
				quota -= p.devices
			}
		}
		n = min(n, max(0, quota)/j.Devices)
	}
	return n
}

// placed is called when MultiKueue records that a cluster admitted a job.
func (w *World) placed(key types.NamespacedName, on string) {
	r := w.runs[key]
	now := w.loop.Now()
	w.note("%s is admitted on %s", r.Name, on)
	if _, runs := r.running[on]; runs && r.Elastic {
		return // a new slice of a running job
	}
	if n := len(r.placements); n > 0 {
		last := &r.placements[n-1]
		if last.cluster == on && last.startedAt.IsZero() && !last.endedAt.IsZero() && now.Sub(last.endedAt) < returnBound {
			for _, c := range w.clusters {
				if job := r.mayGoTo(c, r.Job); c.spec.Name != on && job != nil && w.isQuiet(c) && c.takes(job) {
					w.broken(NoVainReturn, r.Name, "%s is sent to %s again %s after it could not start there (%s), although it fits on %s", r.Name, on, now.Sub(last.endedAt).Round(time.Second), last.why, c.spec.Name)
				}
			}
		}
	}
	r.placements = append(r.placements, placement{cluster: on, at: now})
	w.componentPlaced(r)
	c := w.clusterOf(on)
	total, sent := int64(0), int64(0)
	for _, n := range c.nodes {
		if n.pool.Model == r.Model || r.Model == "" && n.pool.Resource == r.Resource {
			total += n.pool.Devices
		}
	}
	for _, other := range w.order {
		wl := w.kueue.workloads.get(other.Key)
		if wl == nil || kueuestate.IsFinished(wl) || other.ended || other.Resource != r.Resource || r.Model != "" && other.Model != r.Model {
			continue
		}
		if other == r || c.holds(other) {
			sent += c.admitted(other)
		}
	}
	if sent > total && !r.misled && !w.excusesOvercommit() {
		w.broken(NoOvercommit, r.Name, "%s is sent to %s, where jobs then request %d devices of %d", r.Name, on, sent, total)
	}
}

// holds reports whether the cluster has admitted a job that runs or may still start. Kueue deletes a copy of a job that
// another cluster, which was unreachable, admitted before. The gate no longer counts a job that ran and
// lost its nodes, nor one that hangs for ledgerTTL, or for unownedTTL while the exporters of the cluster show no
// owner of any pod, or if it was sent by an operator that no longer leads.
func (c *cluster) holds(r *Run) bool {
	n := len(r.placements)
	if c.copyOf(r) == nil || n == 0 {
		return false
	}
	limit := ledgerTTL
	if r.placements[n-1].at.Before(c.world.leaderlessAt) || !slices.ContainsFunc(c.pods, func(p *pod) bool { return p.node != nil }) {
		limit = unownedTTL
	}
	p, now := &r.placements[n-1], c.world.loop.Now()
	_, runs := r.running[c.spec.Name]
	switch {
	case p.startedAt.IsZero():
		return now.Sub(p.at) < limit
	case p.startedAt.Sub(p.at) > limit:
		return runs && now.Sub(p.startedAt) > truthLag // it hung until the metrics showed its pods
	default:
		return runs
	}
}

const (
	// ledgerTTL is the operator's --ledger-ttl.
	ledgerTTL = 10 * time.Minute
	// unownedTTL is 4 times the operator's --ledger-settle.
	unownedTTL = time.Minute
)

// admitted are the devices that the cluster's Kueue has admitted for a job, which may be fewer than it requests.
func (c *cluster) admitted(r *Run) int64 {
	if wl := c.copyOf(r); wl != nil {
		sum := int64(0)
		for _, n := range requestOf(wl) {
			sum += n
		}
		return sum
	}
	return r.Devices * r.Pods
}

// lies reports whether the metrics of a cluster are wrong, or were until recently.
func (w *World) lies(cluster string) bool {
	return w.faults.lies[cluster] != 0 || w.loop.Now().Sub(w.clusterOf(cluster).metricsFoundAt) < truthLag
}

func (w *World) excusesOvercommit() bool {
	if w.settings.Gate.Freshness.OnStale == "Open" {
		return true
	}
	return slices.ContainsFunc(w.Spec.Queues, func(q Queue) bool { return q.WithinQueue != "" || q.ReclaimCohort != "" })
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
		w.broken(NoVainKill, r.Name, "%s ran and was preempted %d times by %s, which never started", r.Name, r.killers[p.Name], p.Name)
	}
	if p.killedAt.IsZero() && p.Started.IsZero() {
		p.killedAt = w.loop.Now()
		p.killed = r.Name
	}
}

func (w *World) checkVainKills() {
	for _, r := range w.order {
		if r.killedAt.IsZero() || r.vainReported {
			continue
		}
		switch {
		case !r.Started.IsZero() || r.Deleted:
			r.killedAt = time.Time{}
		case w.loop.Now().Sub(r.killedAt) > vainBound:
			r.vainReported = true
			w.broken(NoVainKill, r.Name, "%s was preempted for %s, which has not started %s later", r.killed, r.Name, vainBound)
		}
	}
}

// workloadChanged follows the state of a job that the hub shows.
func (w *World) workloadChanged(key types.NamespacedName, e hub.Event) {
	r := w.runs[key]
	wl, _ := e.New.(*kueue.Workload)
	if r == nil || wl == nil || e.Type == hub.Deleted {
		return
	}
	if kueuestate.IsFinished(wl) && !isReplaced(wl) && r.Done.IsZero() {
		r.Done = w.loop.Now()
		w.expire(r)
		w.note("%s is done", r.Name)
	}
	if old, _ := e.Old.(*kueue.Workload); old != nil {
		was, is := kueuestate.FindCheck(old, checkName), kueuestate.FindCheck(wl, checkName)
		if was != nil && is != nil && was.Message != is.Message {
			w.note("gate on %s: %s %q", r.Name, is.State, is.Message)
		}
		if !slices.Equal(old.Status.NominatedClusterNames, wl.Status.NominatedClusterNames) {
			w.note("%s is nominated to %v", r.Name, wl.Status.NominatedClusterNames)
			if len(wl.Status.NominatedClusterNames) > 0 {
				r.misled = slices.ContainsFunc(wl.Status.NominatedClusterNames, w.lies)
			}
		}
		if n := len(r.placements); n > 0 && old.Status.ClusterName != nil && wl.Status.ClusterName == nil {
			r.placements[n-1].endedAt = w.loop.Now()
			r.placements[n-1].why = evictionReason(wl)
		}
		if old.Status.Admission == nil && wl.Status.Admission != nil {
			r.attempts++
		}
		if c := kueuestate.FindCheck(wl, "other"); c != nil && wl.Status.Admission != nil && c.State == kueue.CheckStatePending && (old.Status.Admission == nil || kueuestate.FindCheck(old, "other") == nil || kueuestate.FindCheck(old, "other").State != kueue.CheckStatePending) {
			w.passOtherCheck(key, r)
		}
	}
	if strings.HasPrefix(e.Manager, "plimsoll") || e.Manager == dispatchManager {
		r.writes++
		waited := int(w.loop.Now().Sub(r.Submitted) / (15 * time.Second)) // the message of a waiting job may change
		if limit := maxWrites + maxWritesPerAttempt*max(0, r.attempts-1) + waited; r.writes > limit && w.faults.writesFail == 0 {
			w.broken(FewWrites, r.Name, "%s was written %d times in %d attempts", r.Name, r.writes, r.attempts)
		}
	}
}

// dispatchManager writes nominations.
const dispatchManager = "plimsoll-dispatch"

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
	return len(w.order) == w.Spec.workloads() && !slices.ContainsFunc(w.order, func(r *Run) bool { return r.Done.IsZero() && !r.Deleted && r.mayEnd() })
}

// mayEnd reports whether the job can end in this world: its pods succeed, an empty cluster takes them, and an
// empty queue on the hub does.
func (r *Run) mayEnd() bool {
	if r.Behavior == Crashes || r.Behavior == NeverReady || !r.world.kueue.quota.takes(r.Job, cmp.Or(r.MinPods, r.allPods())*r.Devices) {
		return false
	}
	for _, c := range r.world.clusters {
		if wl := r.world.kueue.workloads.get(r.Key); r.Elastic && wl != nil && ptr.Deref(wl.Status.ClusterName, c.spec.Name) != c.spec.Name {
			continue // its slices stay where it runs
		}
		if emptyCluster(c.spec).placeable(r.Job, r.allPods()) >= r.allPods() && c.kueue.quota.takes(r.Job, r.allPods()*r.Devices) {
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
