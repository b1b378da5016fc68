package reclaimpolicy

import (
	"context"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/ledger"
	"plimsoll.dev/plimsoll/operator/internal/query"
	"plimsoll.dev/plimsoll/operator/internal/rebalance"
	"plimsoll.dev/plimsoll/operator/internal/reclaim"
)

// Gates state where workloads fit, and which clusters are held. The controller of Workloads implements
// them.
type Gates interface {
	// Holds returns the clusters that gates hold for waiting workloads.
	Holds() []ledger.Hold
	// Inputs returns what a decision about a workload that waits or runs rests on. problem states why
	// its gate decides nothing; empty = none.
	Inputs(ctx context.Context, key client.ObjectKey) (in *gate.Inputs, problem string, err error)
}

// decideMoves decides which workloads move to other clusters. It queries nothing unless a gate holds a
// cluster where a candidate runs.
func (r *Reconciler) decideMoves(ctx context.Context, policy *v1alpha1.ReclaimPolicy, q *queues, measured *measurement, idle []reclaim.Decision, now time.Time) ([]rebalance.Decision, error) {
	mode, isOn := rebalance.ModeOf(&policy.Spec)
	if !isOn || r.gates == nil || measured.querier == nil || measured.failure != "" {
		return nil, nil
	}
	all := &kueue.WorkloadList{}
	if err := r.client.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Workloads: %w", err)
	}
	waiting, err := r.readWaiting(ctx, policy, q, all.Items, measured, now)
	if err != nil || len(waiting) == 0 {
		return nil, err
	}
	bounds := boundsOfMoves(policy, mode, all.Items, idle, now)
	movable, err := r.readMovable(ctx, waiting, q.candidates, r.measureDevices(ctx, policy, waiting, measured, now), bounds, now)
	if err != nil || ctx.Err() != nil {
		return nil, err
	}
	return rebalance.Decide(bounds, waiting, movable, now), nil
}

// readWaiting returns the workloads for which a cluster is held where a candidate runs.
func (r *Reconciler) readWaiting(ctx context.Context, policy *v1alpha1.ReclaimPolicy, q *queues, all []kueue.Workload, measured *measurement, now time.Time) ([]*rebalance.Waiting, error) {
	var waiting []*rebalance.Waiting
	for _, hold := range r.gates.Holds() {
		if !slices.ContainsFunc(q.candidates, func(c *reclaim.Candidate) bool { return c.Owner.Cluster == hold.Cluster }) {
			continue
		}
		w := &rebalance.Waiting{Hold: hold}
		i := slices.IndexFunc(all, func(wl kueue.Workload) bool { return string(wl.UID) == hold.UID })
		switch {
		case i < 0:
			continue // deleted; the hold ends, too
		case reclaim.WaitsAfterReclaim(&all[i]):
			w.Problem = "it was returned to its queue itself"
		case slices.Contains(measured.stale, hold.Cluster):
			w.Problem = "the samples of " + hold.Cluster + " are missing or too old"
		default:
			var err error
			if w.Inputs, w.Problem, err = r.gates.Inputs(ctx, client.ObjectKeyFromObject(&all[i])); err != nil {
				return nil, fmt.Errorf("read the room for Workload %s: %w", hold.Workload, err)
			}
		}
		w.Check(policy.Spec.SourceRef.Name, now)
		waiting = append(waiting, w)
	}
	return waiting, nil
}

// readMovable returns, by the UID of each waiting workload, the workloads that would make room for it,
// with what their gates know of other clusters.
func (r *Reconciler) readMovable(ctx context.Context, waiting []*rebalance.Waiting, candidates []*reclaim.Candidate, devices *rebalance.Devices, bounds rebalance.Bounds, now time.Time) (map[string][]rebalance.Movable, error) {
	movable := map[string][]rebalance.Movable{}
	for _, w := range waiting {
		for _, c := range rebalance.Shortlist(w, candidates, devices, bounds, now) {
			in, problem, err := r.gates.Inputs(ctx, client.ObjectKey{Namespace: c.Namespace, Name: c.Name})
			if err != nil {
				return nil, fmt.Errorf("read the room for Workload %s/%s: %w", c.Namespace, c.Name, err)
			}
			movable[w.Hold.UID] = append(movable[w.Hold.UID], rebalance.Movable{Candidate: c, Inputs: in, Problem: problem})
		}
	}
	return movable, nil
}

// boundsOfMoves returns the limits of a round, after what it returns because of idle devices.
func boundsOfMoves(policy *v1alpha1.ReclaimPolicy, mode v1alpha1.ReclaimMode, all []kueue.Workload, idle []reclaim.Decision, now time.Time) rebalance.Bounds {
	own := reclaim.BoundsOf(&policy.Spec)
	b := rebalance.Bounds{Mode: mode, MinRun: own.MinRun, History: policy.Status.History, Busy: map[string]string{}, Unplaced: map[string]bool{},
		Remaining: reclaim.Remaining(own.MaxPerHour, policy.Status.History, mode, now)}
	for i := range idle {
		if d := &idle[i]; d.State == v1alpha1.IdleSelected && own.Mode == mode {
			b.Busy[d.Group] = d.Namespace + "/" + d.Name
			b.Remaining--
		}
	}
	for i := range all {
		wl := &all[i]
		isMoved := slices.ContainsFunc(policy.Status.History, func(record v1alpha1.ReclaimRecord) bool { return record.Move != nil && record.UID == string(wl.UID) })
		runsAgain := kueuestate.IsAdmitted(wl) && kueuestate.IsActive(wl)
		if isMoved && !runsAgain && !kueuestate.IsFinished(wl) {
			b.Unplaced[string(wl.UID)] = true
		}
	}
	return b
}

// measureDevices returns the devices by node. If it has no complete response, that is the problem of each
// waiting workload.
func (r *Reconciler) measureDevices(ctx context.Context, policy *v1alpha1.ReclaimPolicy, waiting []*rebalance.Waiting, measured *measurement, now time.Time) *rebalance.Devices {
	devices := &rebalance.Devices{Free: map[string]map[rebalance.Node]int64{}, Allocated: map[reclaim.Owner]map[rebalance.Node]int64{}}
	if !slices.ContainsFunc(waiting, func(w *rebalance.Waiting) bool { return w.Problem == "" }) {
		return devices
	}
	mapping := measured.mapping
	ctx, cancel := context.WithTimeout(query.WithAllLabels(query.ForClusters(ctx, mapping.Names())), periodOf(policy))
	defer cancel()
	m := &measurement{}
	free, isComplete := m.query(ctx, measured.querier, "free devices", rebalance.FreeQuery(mapping.Label()), now)
	var held []query.Sample
	if isComplete {
		held, isComplete = m.query(ctx, measured.querier, "held devices", rebalance.AllocatedQuery(mapping.Label()), now)
	}
	if !isComplete {
		for _, w := range waiting {
			if w.Problem == "" {
				w.Problem = "the devices of the nodes were not measured: " + m.failure
			}
		}
		return devices
	}
	for _, s := range free {
		if cluster, ok := mapping.Cluster(s.Label(mapping.Label())); ok {
			addCount(devices.Free, s.Label(rebalance.LabelResource), nodeOf(cluster, s), s)
		}
	}
	for _, s := range held {
		if cluster, ok := mapping.Cluster(s.Label(mapping.Label())); ok {
			owner := reclaim.Owner{Cluster: cluster, Namespace: s.Label(reclaim.LabelNamespace), Kind: s.Label(reclaim.LabelOwnerKind), Name: s.Label(reclaim.LabelOwnerName)}
			addCount(devices.Allocated, owner, nodeOf(cluster, s), s)
		}
	}
	return devices
}

func nodeOf(cluster string, s query.Sample) rebalance.Node {
	return rebalance.Node{Cluster: cluster, Name: s.Label(rebalance.LabelNode), Model: s.Label(rebalance.LabelModel)}
}

// maxDevices is the largest number of devices of a node that counts.
const maxDevices = 1 << 20

// addCount sets a number of devices. A value that is no such number is not known. Of two samples for the
// same node, the smaller one counts.
func addCount[K comparable](counts map[K]map[rebalance.Node]int64, key K, node rebalance.Node, s query.Sample) {
	if counts[key] == nil {
		counts[key] = map[rebalance.Node]int64{}
	}
	if !(s.Value >= 0 && s.Value <= maxDevices) || node.Name == "" { // also false for NaN
		return
	}
	n := int64(s.Value)
	if known, ok := counts[key][node]; ok {
		n = min(n, known)
	}
	counts[key][node] = n
}
