package registry

import (
	"maps"
	"reflect"
	"sync"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// Cluster as a gate sees it, apart from any workload.
type Cluster struct {
	Name   string
	Scores map[string]gate.Score
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
type Registry struct {
	mu        sync.Mutex
	gates     map[string]Gate
	waiting   map[string]WaitSummary
	conflicts map[string]dispatcherConflict
	// unanswered questions by gate.
	failingQueries map[string]string
	watchers       []func(gate string)
}

// NewBoard without gates.
func New() *Registry {
	return &Registry{gates: map[string]Gate{}, waiting: map[string]WaitSummary{}, conflicts: map[string]dispatcherConflict{}}
}

// OnChange calls f after a gate changed. f must not block.
func (b *Registry) OnChange(f func(gate string)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watchers = append(b.watchers, f)
}

// Put a gate, and tell the watchers when it differs from before.
func (b *Registry) Put(g Gate) {
	b.mu.Lock()
	old, ok := b.gates[g.Name]
	b.gates[g.Name] = g
	watch := b.watchers
	b.mu.Unlock()
	if ok && reflect.DeepEqual(withoutTimestamps(old), withoutTimestamps(g)) {
		return
	}
	for _, f := range watch {
		f(g.Name)
	}
}

// steady part of a gate: a score that is merely renewed is no change.
func withoutTimestamps(g Gate) Gate {
	clusters := make([]Cluster, len(g.Clusters))
	for i, c := range g.Clusters {
		clusters[i] = Cluster{Name: c.Name, Scores: map[string]gate.Score{}}
		for key, s := range c.Scores {
			clusters[i].Scores[key] = gate.Score{Value: s.Value}
		}
	}
	g.Clusters = clusters
	return g
}

// Delete a gate.
func (b *Registry) Delete(name string) {
	b.mu.Lock()
	delete(b.gates, name)
	watch := b.watchers
	b.mu.Unlock()
	for _, f := range watch {
		f(name)
	}
}

// Get a gate; false when it is not there (yet).
func (b *Registry) Get(name string) (Gate, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g, ok := b.gates[name]
	return g, ok
}

// Queue at a gate: how many workloads wait there, and since when the first does.
type WaitSummary struct {
	Workloads int32
	Since     time.Time // zero when none waits
}

// SetWaiting records the queue at a gate.
func (b *Registry) SetWaiting(name string, q WaitSummary) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if q.Workloads == 0 {
		delete(b.waiting, name)
		return
	}
	b.waiting[name] = q
}

// Waiting workloads at a gate.
func (b *Registry) Waiting(name string) int32 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting[name].Workloads
}

// WaitingInAll are the waiting workloads at all gates.
func (b *Registry) TotalWaiting() int32 {
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
func (b *Registry) WaitSummaries() map[string]WaitSummary {
	b.mu.Lock()
	defer b.mu.Unlock()
	queues := maps.Clone(b.waiting)
	for name := range b.gates {
		queues[name] = b.waiting[name]
	}
	return queues
}

// SetUnanswered records what each gate asks and nobody answers; absent = nothing.
func (b *Registry) SetFailingQueries(problems map[string]string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failingQueries = problems
}

// Unanswered is what nobody answers of late to the gate; empty = nothing.
func (b *Registry) FailingQueries(name string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failingQueries[name]
}

type dispatcherConflict struct {
	evidence string
	seenAt   time.Time
}

// SetRival records that somebody else nominated clusters for a gate's workloads at
// that time, or that nobody did where that is left to Kueue. The latest evidence counts.
func (b *Registry) ReportConflict(name, evidence string, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conflicts[name].seenAt.After(at) {
		return
	}
	b.conflicts[name] = dispatcherConflict{evidence: evidence, seenAt: at}
}

// Rival is the evidence that Kueue's dispatcher is not what the operator takes it to be;
// empty = none of late.
func (b *Registry) Conflict(name string, now time.Time) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.conflicts[name]
	if now.Sub(r.seenAt) > timing.ConflictTTL {
		return ""
	}
	return r.evidence
}
