package world

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/world/hub"
	"plimsoll.dev/plimsoll/operator/internal/world/metrics"
)

// State is what a user sees of a job.
type State struct {
	Exists, HoldsQuota, Finished bool
	// Cluster that admitted the job, clusters with a copy, and clusters on which all its pods run.
	Cluster         string
	Copies, Running []string
	// CheckState and CheckMessage are those of the gate's check.
	CheckState   kueue.CheckState
	CheckMessage string
}

// StateOf returns the state of a job by its name.
func (w *World) StateOf(job string) State {
	var s State
	run := w.runOf(job)
	if run == nil {
		return s
	}
	if wl := w.kueue.workloads.get(run.Key); wl != nil {
		s.Exists, s.HoldsQuota, s.Finished = true, kueuestate.HoldsQuota(wl), kueuestate.IsFinished(wl)
		if wl.Status.ClusterName != nil {
			s.Cluster = *wl.Status.ClusterName
		}
		if c := kueuestate.FindCheck(wl, checkName); c != nil {
			s.CheckState, s.CheckMessage = c.State, c.Message
		}
	}
	for _, c := range w.clusters {
		if slices.ContainsFunc(run.keys(), func(key types.NamespacedName) bool {
			wl := c.kueue.workloads.get(key)
			return wl != nil && !isReplaced(wl)
		}) {
			s.Copies = append(s.Copies, c.spec.Name)
		}
		if j := c.jobFor(run.Key); j != nil && !j.endsAt.IsZero() {
			s.Running = append(s.Running, c.spec.Name)
		}
	}
	return s
}

// SubmitNow submits a job that the spec does not have.
func (w *World) SubmitNow(j Job) {
	added := complete(Spec{Jobs: []Job{j}}).Jobs[0]
	w.submit(&added)
}

// DeleteJob deletes a job as its user does.
func (w *World) DeleteJob(job string) {
	if run := w.runOf(job); run != nil {
		w.removeJob(run)
	}
}

// Begin starts a fault that End ends.
func (w *World) Begin(f Fault) {
	w.note("fault %s %s%s", f.Kind, f.Cluster, f.Job)
	w.undo[f.Kind+"/"+FaultKind(f.Cluster)] = w.apply(&f)
}

// End ends a fault of a cluster.
func (w *World) End(kind FaultKind, cluster string) {
	w.note("end of fault %s %s", kind, cluster)
	if undo := w.undo[kind+"/"+FaultKind(cluster)]; undo != nil {
		undo()
	}
}

// SetUnusable makes devices of the first node of a model unusable.
func (w *World) SetUnusable(cluster, model string, devices int64) {
	c := w.clusterOf(cluster)
	if i := slices.IndexFunc(c.nodes, func(n *node) bool { return n.pool.Model == model }); i >= 0 {
		c.nodes[i].unusable = devices
		c.schedulePods()
	}
}

// SetCPU changes the CPU of the nodes of a model, in milli-cores, and returns what it was.
func (w *World) SetCPU(cluster, model string, cpu int64) (before int64) {
	c := w.clusterOf(cluster)
	for _, n := range c.nodes {
		if n.pool.Model == model && n.pool.CPU != cpu {
			before, n.pool.CPU = n.pool.CPU, cpu
		}
	}
	c.schedulePods()
	return before
}

// AddSecret creates a Secret in the namespace of jobs on a cluster.
func (w *World) AddSecret(cluster, name string) {
	c := w.clusterOf(cluster)
	c.objects = append(c.objects, metrics.Object{Kind: metrics.KindSecret, Namespace: defaultTenant, Name: name})
}

// UpdateGate changes the spec of the PlacementGate, as its administrator does.
func (w *World) UpdateGate(change func(*v1alpha1.PlacementGateSpec)) error {
	_, err := hub.Update(w.objects, types.NamespacedName{Name: gateName}, "admin", func(g *v1alpha1.PlacementGate) bool {
		change(&g.Spec)
		return true
	})
	return err
}

// Connected reports whether MultiKueue is connected to a cluster.
func (w *World) Connected(cluster string) bool { return w.multiKueue.remotes[cluster].connected }

// IsStale reports whether no gate trusts the samples of a cluster any more.
func (w *World) IsStale(cluster string) bool {
	const trusted = 120 * time.Second
	return w.loop.Now().Sub(w.clusterOf(cluster).scrapedAt) > trusted+w.settings.ScrapeInterval
}

// Note adds a line to the world's log.
func (w *World) Note(format string, args ...any) { w.note(format, args...) }

// key is the name of the Workload of a job.
func key(j *Job) types.NamespacedName {
	return types.NamespacedName{Namespace: j.Namespace, Name: "job-" + j.Name}
}
