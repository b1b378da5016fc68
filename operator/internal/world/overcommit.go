package world

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// placed is called when MultiKueue records that a cluster admitted a job.
func (w *World) placed(key types.NamespacedName, on string) {
	r := w.runs[key]
	w.note("%s is admitted on %s", r.Name, on)
	if r.Elastic && r.isOn(on) {
		return // a new slice of the job, which Kueue sends there itself
	}
	w.checkReturn(r, on)
	r.placements = append(r.placements, placement{cluster: on, at: w.loop.Now()})
	w.componentPlaced(r)
	w.checkOvercommit(r, w.clusterOf(on))
}

// isOn reports whether the cluster admitted the job, and has not ended it.
func (r *Run) isOn(cluster string) bool {
	_, runs := r.running[cluster]
	n := len(r.placements)
	return runs || n > 0 && r.placements[n-1].cluster == cluster && r.placements[n-1].endedAt.IsZero()
}

// failedToStart reports whether the cluster is to blame that the pods did not start. It is not if the hub ended the job, or
// if the worker did so soon: it preempts the job, or another component of it has no quota. Without an operator, nobody saw it.
func (p placement) failedToStart() bool {
	switch {
	case !p.startedAt.IsZero() || p.endedAt.IsZero() || p.unseen:
		return false
	case p.why == kueue.WorkloadEvictedByAdmissionCheck:
		return p.endedAt.Sub(p.at) >= timing.SlowStart
	}
	return p.why == kueue.WorkloadEvictedByPodsReadyTimeout
}

// checkReturn reports a job that is sent again to the cluster where it could not start, although it fits on another.
func (w *World) checkReturn(r *Run, on string) {
	if len(r.placements) == 0 {
		return
	}
	last := r.placements[len(r.placements)-1]
	since := w.loop.Now().Sub(last.endedAt)
	if last.cluster != on || !last.failedToStart() || since >= returnBound {
		return
	}
	failedOn := func(cluster string) bool {
		return slices.ContainsFunc(r.placements, func(p placement) bool {
			return p.cluster == cluster && p.failedToStart() && w.loop.Now().Sub(p.endedAt) < returnBound
		})
	}
	for _, c := range w.clusters {
		if job := r.mayGoTo(c, r.Job); !failedOn(c.spec.Name) && job != nil && w.isQuiet(c) && c.takes(job) {
			w.broken(NoVainReturn, r.Name, "%s is sent to %s again %s after it could not start there (%s), although it fits on %s", r.Name, on, since.Round(time.Second), last.why, c.spec.Name)
		}
	}
}

// checkOvercommit reports a cluster whose jobs request more devices than it has once it has admitted r.
func (w *World) checkOvercommit(r *Run, c *cluster) {
	total, sent := int64(0), int64(0)
	for _, n := range c.nodes {
		if n.pool.Model == r.Model || r.Model == "" && n.pool.Resource == r.Resource {
			total += n.pool.Devices
		}
	}
	if c.devicesAdmitted()+r.Devices*r.Pods <= total {
		return
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
		w.broken(NoOvercommit, r.Name, "%s is sent to %s, where jobs then request %d devices of %d", r.Name, c.spec.Name, sent, total)
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
	if r.placements[n-1].at.Before(c.world.leaderlessAt) || c.bound.isEmpty() {
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
	// ledgerTTL is the age at which the operator's ledger drops an entry that nothing else released.
	ledgerTTL = 10 * time.Minute
	// unownedTTL is 4 times the operator's --ledger-settle.
	unownedTTL = time.Minute
)

// devicesAdmitted are the devices that the cluster's Kueue has given away.
func (c *cluster) devicesAdmitted() int64 {
	sum := int64(0)
	for _, byFlavor := range c.kueue.workloads.usage() {
		for _, n := range byFlavor {
			sum += n
		}
	}
	return sum
}

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
