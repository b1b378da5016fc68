package reclaimpolicy

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/policies/rebalance"
	"plimsoll.dev/plimsoll/operator/internal/policies/reclaim"
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

// possibleMoves are the waiting workloads for which a cluster is held where a candidate runs, and by
// their UIDs the workloads that would make room for them.
type possibleMoves struct {
	waiting []*rebalance.Waiting
	movable map[string][]rebalance.Movable
}

// readMoves reads what gates and metrics show of possible moves. It queries nothing unless a gate holds
// a cluster where a candidate runs. A round that began more than roundLimit ago moves nothing: what it
// measured at first is too old.
func (r *Reconciler) readMoves(ctx context.Context, policy *v1alpha1.ReclaimPolicy, q *queues, measured *measurement, began time.Time) (*possibleMoves, error) {
	mode, isOn := rebalance.ModeOf(&policy.Spec)
	if !isOn || r.gates == nil || measured.querier == nil || measured.failure != "" {
		return nil, nil
	}
	remaining := func() time.Duration { return roundLimit(policy) - r.now().Sub(began) }
	isLate := func() bool { return remaining() < 0 }
	waiting, err := r.readWaiting(ctx, policy, q, measured, isLate)
	if err != nil || len(waiting) == 0 {
		return nil, err
	}
	bounds, err := r.boundsOfMoves(ctx, policy, mode, nil)
	if err != nil {
		return nil, err
	}
	movable, err := r.readMovable(ctx, waiting, q.candidates, r.measureDevices(ctx, remaining(), waiting, measured), bounds, isLate)
	if err != nil || ctx.Err() != nil {
		return nil, err
	}
	if isLate() {
		for _, w := range waiting {
			w.Problem = cmp.Or(w.Problem, problemLate)
		}
	}
	return &possibleMoves{waiting: waiting, movable: movable}, nil
}

// problemLate is why nothing is decided for a waiting workload after responses that took too long.
const problemLate = "the metrics source is too slow: the round takes longer than periodSeconds, or than 240 s"

// decideMoves decides which workloads move, after what the round returns because of idle devices.
func (r *Reconciler) decideMoves(ctx context.Context, policy *v1alpha1.ReclaimPolicy, possible *possibleMoves, idle []reclaim.Decision) ([]rebalance.Decision, error) {
	if possible == nil {
		return nil, nil
	}
	mode, _ := rebalance.ModeOf(&policy.Spec)
	bounds, err := r.boundsOfMoves(ctx, policy, mode, idle)
	if err != nil {
		return nil, err
	}
	return rebalance.Decide(bounds, possible.waiting, possible.movable, r.now()), nil
}

// readWaiting returns the workloads for which a cluster is held where a candidate runs.
func (r *Reconciler) readWaiting(ctx context.Context, policy *v1alpha1.ReclaimPolicy, q *queues, measured *measurement, isLate func() bool) ([]*rebalance.Waiting, error) {
	list := &kueue.WorkloadList{}
	if err := r.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Workloads: %w", err)
	}
	all := list.Items
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
		case isLate():
			w.Problem = problemLate
		default:
			var err error
			if w.Inputs, w.Problem, err = r.gates.Inputs(ctx, client.ObjectKeyFromObject(&all[i])); err != nil {
				return nil, fmt.Errorf("read the room for Workload %s: %w", hold.Workload, err)
			}
		}
		w.Check(policy.Spec.SourceRef.Name, r.now())
		waiting = append(waiting, w)
	}
	return waiting, nil
}

// readMovable returns, by the UID of each waiting workload, the workloads that would make room for it,
// with what their gates know of other clusters.
func (r *Reconciler) readMovable(ctx context.Context, waiting []*rebalance.Waiting, candidates []*reclaim.Candidate, devices *rebalance.Devices, bounds rebalance.Bounds, isLate func() bool) (map[string][]rebalance.Movable, error) {
	movable := map[string][]rebalance.Movable{}
	for _, w := range waiting {
		for _, c := range rebalance.Shortlist(w, candidates, devices, bounds, r.now()) {
			if isLate() {
				return movable, nil
			}
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
func (r *Reconciler) boundsOfMoves(ctx context.Context, policy *v1alpha1.ReclaimPolicy, mode v1alpha1.Mode, idle []reclaim.Decision) (rebalance.Bounds, error) {
	own := reclaim.BoundsOf(&policy.Spec)
	b := rebalance.Bounds{Mode: mode, MinRun: own.MinRun, History: policy.Status.History, Unplaced: map[string]bool{},
		Remaining: reclaim.Remaining(own.MaxPerHour, policy.Status.History, mode, r.now())}
	for i := range idle {
		if d := &idle[i]; d.State == v1alpha1.IdleSelected && own.Mode == mode {
			b.Idle = cmp.Or(b.Idle, d.Namespace+"/"+d.Name)
			b.Remaining--
		}
	}
	policies, workloads := &v1alpha1.ReclaimPolicyList{}, &kueue.WorkloadList{}
	if err := r.client.List(ctx, policies, client.UnsafeDisableDeepCopy); err != nil {
		return b, fmt.Errorf("list ReclaimPolicies: %w", err)
	}
	if err := r.client.List(ctx, workloads, client.UnsafeDisableDeepCopy); err != nil {
		return b, fmt.Errorf("list Workloads: %w", err)
	}
	b.Moves = rebalance.MovesOf(policies.Items)
	moved := map[string]bool{}
	for i := range b.Moves {
		moved[b.Moves[i].UID] = true
	}
	for i := range workloads.Items {
		wl := &workloads.Items[i]
		runsAgain := kueuestate.IsAdmitted(wl) && kueuestate.IsActive(wl)
		if moved[string(wl.UID)] && !runsAgain && !kueuestate.IsFinished(wl) {
			b.Unplaced[string(wl.UID)] = true
		}
	}
	return b, nil
}

// measureDevices returns the devices by node, within the limit. If it has no complete response, that is the problem of each
// waiting workload.
func (r *Reconciler) measureDevices(ctx context.Context, limit time.Duration, waiting []*rebalance.Waiting, measured *measurement) *rebalance.Devices {
	devices := &rebalance.Devices{Free: map[string]map[rebalance.Node]int64{}, Allocated: map[reclaim.Owner]map[rebalance.Node]int64{},
		Unrequested: map[string]map[rebalance.Node]int64{}}
	if !slices.ContainsFunc(waiting, func(w *rebalance.Waiting) bool { return w.Problem == "" }) {
		return devices
	}
	mapping := measured.mapping
	ctx, cancel := context.WithTimeout(query.WithAllLabels(query.ForClusters(ctx, mapping.Names())), limit)
	defer cancel()
	m := &measurement{}
	free, isComplete := m.query(ctx, measured.querier, "free devices", rebalance.FreeQuery(mapping.Label()), r.now())
	var held, unrequested []query.Sample
	if isComplete {
		unrequested, isComplete = m.query(ctx, measured.querier, "requests of the nodes", rebalance.UnrequestedQuery(mapping.Label()), r.now())
	}
	if isComplete {
		held, isComplete = m.query(ctx, measured.querier, "held devices", rebalance.AllocatedQuery(mapping.Label()), r.now())
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
			addCount(devices.Free, s.Label(rebalance.LabelResource), nodeOf(cluster, s), s, maxDevices)
		}
	}
	for _, s := range unrequested {
		if cluster, ok := mapping.Cluster(s.Label(mapping.Label())); ok {
			addCount(devices.Unrequested, s.Label(rebalance.LabelResource), nodeOf(cluster, s), s, maxAmount)
		}
	}
	for _, s := range held {
		if cluster, ok := mapping.Cluster(s.Label(mapping.Label())); ok {
			owner := reclaim.Owner{Cluster: cluster, Namespace: s.Label(reclaim.LabelNamespace), Kind: s.Label(reclaim.LabelOwnerKind), Name: s.Label(reclaim.LabelOwnerName)}
			addCount(devices.Allocated, owner, nodeOf(cluster, s), s, maxDevices)
		}
	}
	return devices
}

func nodeOf(cluster string, s query.Sample) rebalance.Node {
	return rebalance.Node{Cluster: cluster, Name: s.Label(rebalance.LabelNode), Model: s.Label(rebalance.LabelModel)}
}

// Largest numbers that count of a node: devices, and thousandths of cores or bytes.
const (
	maxDevices = 1 << 20
	maxAmount  = 1 << 50
)

// addCount sets an amount. A value that is no such number is not known. Of two samples for the
// same node, the smaller one counts.
func addCount[K comparable](counts map[K]map[rebalance.Node]int64, key K, node rebalance.Node, s query.Sample, limit float64) {
	if counts[key] == nil {
		counts[key] = map[rebalance.Node]int64{}
	}
	if !(s.Value >= 0 && s.Value <= limit) || node.Name == "" { // also false for NaN
		return
	}
	n := int64(s.Value)
	if known, ok := counts[key][node]; ok {
		n = min(n, known)
	}
	counts[key][node] = n
}
