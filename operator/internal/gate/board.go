package gate

import (
	"maps"
	"reflect"
	"sync"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// Cluster as a gate sees it, apart from any workload.
type Cluster struct {
	Name   string
	Scores map[string]Score
}

// Gate is a PlacementGate with what its Placement decided.
type Gate struct {
	Name string
	Spec v1alpha1.PlacementGateSpec
	// Problem that keeps the gate from deciding anything; empty = none.
	Problem  string
	Clusters []Cluster
	// Generation of the PlacementGate that this was read from.
	Generation int64
}

// Board is where the gate's controller leaves what it gathered and the
// workload's controller finds it. It is safe for concurrent use.
type Board struct {
	mu      sync.Mutex
	gates   map[string]Gate
	waiting map[string]Queue
	rivals  map[string]rival
	// unanswered questions by gate.
	unanswered map[string]string
	watch      []func(gate string)
}

// NewBoard without gates.
func NewBoard() *Board {
	return &Board{gates: map[string]Gate{}, waiting: map[string]Queue{}, rivals: map[string]rival{}}
}

// OnChange calls f after a gate changed. f must not block.
func (b *Board) OnChange(f func(gate string)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watch = append(b.watch, f)
}

// Put a gate, and tell the watchers when it differs from before.
func (b *Board) Put(g Gate) {
	b.mu.Lock()
	old, ok := b.gates[g.Name]
	b.gates[g.Name] = g
	watch := b.watch
	b.mu.Unlock()
	if ok && reflect.DeepEqual(steady(old), steady(g)) {
		return
	}
	for _, f := range watch {
		f(g.Name)
	}
}

// steady part of a gate: a score that is merely renewed is no change.
func steady(g Gate) Gate {
	clusters := make([]Cluster, len(g.Clusters))
	for i, c := range g.Clusters {
		clusters[i] = Cluster{Name: c.Name, Scores: map[string]Score{}}
		for key, s := range c.Scores {
			clusters[i].Scores[key] = Score{Value: s.Value}
		}
	}
	g.Clusters = clusters
	return g
}

// Delete a gate.
func (b *Board) Delete(name string) {
	b.mu.Lock()
	delete(b.gates, name)
	watch := b.watch
	b.mu.Unlock()
	for _, f := range watch {
		f(name)
	}
}

// Get a gate; false when it is not there (yet).
func (b *Board) Get(name string) (Gate, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g, ok := b.gates[name]
	return g, ok
}

// Queue at a gate: how many workloads wait there, and since when the first does.
type Queue struct {
	Workloads int32
	Since     time.Time // zero when none waits
}

// SetWaiting records the queue at a gate.
func (b *Board) SetWaiting(name string, q Queue) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if q.Workloads == 0 {
		delete(b.waiting, name)
		return
	}
	b.waiting[name] = q
}

// Waiting workloads at a gate.
func (b *Board) Waiting(name string) int32 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting[name].Workloads
}

// WaitingInAll are the waiting workloads at all gates.
func (b *Board) WaitingInAll() int32 {
	b.mu.Lock()
	defer b.mu.Unlock()
	var n int32
	for _, q := range b.waiting {
		n += q.Workloads
	}
	return n
}

// Queues at every gate, an empty one where nothing waits, and at gates that workloads
// wait for although they do not exist.
func (b *Board) Queues() map[string]Queue {
	b.mu.Lock()
	defer b.mu.Unlock()
	queues := maps.Clone(b.waiting)
	for name := range b.gates {
		queues[name] = b.waiting[name]
	}
	return queues
}

// SetUnanswered records what each gate asks and nobody answers; absent = nothing.
func (b *Board) SetUnanswered(problems map[string]string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unanswered = problems
}

// Unanswered is what nobody answers of late to the gate; empty = nothing.
func (b *Board) Unanswered(name string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.unanswered[name]
}

type rival struct {
	evidence string
	seen     time.Time
}

// SetRival records that somebody else nominated clusters for a gate's workloads at
// that time, or that nobody did where that is left to Kueue. The latest evidence counts.
func (b *Board) SetRival(name, evidence string, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rivals[name].seen.After(at) {
		return
	}
	b.rivals[name] = rival{evidence: evidence, seen: at}
}

// Rival is the evidence that Kueue's dispatcher is not what the operator takes it to be;
// empty = none of late.
func (b *Board) Rival(name string, now time.Time) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.rivals[name]
	if now.Sub(r.seen) > rivalFor {
		return ""
	}
	return r.evidence
}
