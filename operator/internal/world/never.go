package world

import (
	"math/rand/v2"
	"regexp"
	"slices"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

const (
	// NeverParked is the invariant that a job which no cluster could start gives its quota back within
	// whenUnplaceable.never.afterSeconds and neverLag.
	NeverParked Invariant = "NeverParked"
	// ParkedReturns is the invariant that a parked job queues again within neverLag of when a cluster could start it.
	ParkedReturns Invariant = "ParkedReturns"
)

// neverLag is how long the gate may take to notice what the nodes could hold: the lag of metrics, and two of its periods.
const neverLag = truthLag + 2*time.Minute

// NodeAdded is a fault for the parked: the cluster gets a node with Amount devices, like those of its first pool.
const NodeAdded FaultKind = "NodeAdded"

// addLarger adds a node with a number of devices.
func (c *cluster) addLarger(devices int64) {
	pool := c.spec.Pools[0]
	pool.Nodes, pool.Devices, pool.Max = 1, devices, 0
	c.spec.Pools = append(slices.Clip(c.spec.Pools), pool)
	c.addNode(&c.spec.Pools[len(c.spec.Pools)-1])
	c.world.note("%s has a node with %d devices", c.spec.Name, devices)
	for _, r := range c.world.order {
		r.findsEnd = nil
	}
	c.schedulePods()
}

// couldStart is a cluster that could start a job if its nodes were empty and no quota reserved there; nil = there is none.
func (w *World) couldStart(j *Job) *cluster {
	for _, c := range w.clusters {
		empty := &cluster{spec: c.spec}
		for _, n := range c.nodes {
			empty.nodes = append(empty.nodes, &node{name: n.name, pool: n.pool, ready: n.ready, unusable: n.unusable})
		}
		pods := j.Pods
		if j.MinPods > 0 {
			pods = j.MinPods
		}
		byDevices := *j // the gate knows no limit of the quota for CPU and memory
		byDevices.CPU, byDevices.InitCPU, byDevices.SidecarCPU, byDevices.Memory = 0, 0, 0, 0
		if empty.placeable(j, pods) >= pods && c.kueue.quota.takes(&byDevices, pods*j.Devices) {
			return c
		}
	}
	return nil
}

// checkNever reports a job that keeps quota although no cluster could start it, and one that stays parked although one
// could.
func (w *World) checkNever(r *Run, isCalm bool) {
	wl := w.kueue.workloads.get(r.Key)
	never := w.settings.Gate.WhenUnplaceable.Never
	if !isCalm || wl == nil || never.Mode != "" && never.Mode != v1alpha1.NeverPark || kueuestate.IsFinished(wl) || w.settings.Gate.Queries.Fit != "" {
		r.neverSince, r.mayReturnSince = time.Time{}, time.Time{}
		return
	}
	record, isParked := parkedRecord(wl)
	isWaiting := r.keepsQuota(wl) && len(wl.Status.NominatedClusterNames) == 0 && !kueuestate.KeepsRetries(wl)
	if placed, _ := w.clusterOfSiblings(r.Key); placed != "" || !isWaiting && !isParked {
		r.neverSince, r.mayReturnSince = time.Time{}, time.Time{}
		return
	}
	job := r.asReturned(record.Returned)
	if isWaiting {
		job = r.asAssigned(wl)
	}
	c := w.couldStart(r.whole(job))
	r.neverSince = w.sinceIf(isWaiting && c == nil, r.neverSince)
	r.mayReturnSince = w.sinceIf(isParked && c != nil, r.mayReturnSince)
	if bound := timing.Seconds(never.AfterSeconds, timing.DefaultNeverAfter) + neverLag; w.isOver(r.neverSince, bound) {
		check := kueuestate.FindCheck(wl, checkName)
		w.broken(NeverParked, r.Name, "%s has kept its quota for %s although no cluster could start it: %s %q", r.Name, bound, check.State, check.Message)
	}
	if w.isOver(r.mayReturnSince, neverLag) {
		w.broken(ParkedReturns, r.Name, "%s is parked although %s could start it since %s: %s", r.Name, c.describe(), neverLag, record.Parked)
	}
}

// parkedRecord is the record of a parked job.
func parkedRecord(wl *kueue.Workload) (record dispatch.Record, isParked bool) {
	if kueuestate.IsActive(wl) {
		return record, false
	}
	record, err := dispatch.Decode(wl.Annotations)
	return record, err == nil && record.Parked != ""
}

// keepsQuota reports whether nothing but the gate keeps the job waiting with quota, or component 0 of its set, or whether
// that is parked.
func (r *Run) keepsQuota(wl *kueue.Workload) bool {
	if r.set == nil || r == r.set.members[0] {
		return r.waitsForGate(wl)
	}
	primary := r.set.members[0]
	first := r.world.kueue.workloads.get(primary.Key)
	if first == nil || !kueuestate.AcceptsCheckUpdate(wl) || awaitsOthers(wl) {
		return false
	}
	_, isParked := parkedRecord(first)
	return isParked || primary.waitsForGate(first)
}

// asReturned is the job on the device model of the flavor that it has given back.
func (r *Run) asReturned(quota *kueue.Admission) *Job {
	if quota == nil {
		return r.Job
	}
	return r.asAssigned(&kueue.Workload{Status: kueue.WorkloadStatus{Admission: quota}})
}

func (w *World) sinceIf(isTrue bool, since time.Time) time.Time {
	switch {
	case !isTrue:
		return time.Time{}
	case since.IsZero():
		return w.loop.Now()
	}
	return since
}

func (w *World) isOver(since time.Time, bound time.Duration) bool {
	return !since.IsZero() && w.loop.Now().Sub(since) > bound
}

// neverStatement is that of a job which no cluster could start.
var neverStatement = statement{regexp.MustCompile(`can (never) start here`), func(w *World, r *Run, _ []string) bool {
	return !w.isCalm() || w.couldStart(r.whole(r.asAssigned(w.kueue.workloads.get(r.Key)))) == nil
}}

// makeNever adds jobs to some worlds that no node could hold, and sometimes a node that could. Their users delete them in
// the end.
func makeNever(s *Spec) {
	g := generator{rand.New(rand.NewPCG(s.Seed, 0x6e657665))} // of its own, so that the rest of a seed's world stays the same
	if !g.chance(.1) || len(s.Jobs) == 0 {
		return
	}
	s.Settings.Gate.WhenUnplaceable.Never.AfterSeconds = oneOf[int32](g, 60, 120, 300, 600)
	last := s.LastPlanned()
	for i := range 1 + g.IntN(4) {
		j := s.Jobs[g.IntN(len(s.Jobs))]
		if j.Kind != "" && j.Kind != KindSet || j.Elastic {
			continue
		}
		j.Name, j.At, j.Pods, j.MinPods = "never"+string(rune('a'+i)), g.seconds(20, int(last/time.Second)), 1, 0
		j.Devices, j.SidecarDevices, j.CPU, j.Memory, j.Topology = 9, 0, 0, 0, ""
		s.Jobs = append(s.Jobs, j)
		s.Faults = append(s.Faults, Fault{Kind: Deleted, Job: j.Name, At: max(j.At, last) + g.seconds(1200, 3600)})
	}
	slices.SortStableFunc(s.Jobs, func(a, b Job) int { return int(a.At - b.At) })
	if g.chance(.5) {
		s.Faults = append(s.Faults, Fault{Kind: NodeAdded, Cluster: s.Clusters[g.IntN(len(s.Clusters))].Name, Amount: 16, At: last + g.seconds(60, 900)})
	}
}
