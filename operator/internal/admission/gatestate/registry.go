package gatestate

import (
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/shadow"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// Registry holds what the controllers share. It is safe for concurrent use.
type Registry struct {
	// Shadow has what gates in mode Shadow would have done.
	Shadow *shadow.Book

	mu        sync.Mutex
	gates     map[string]Gate
	watchers  []func(gateName string)
	waiting   map[string]WaitSummary
	conflicts map[string]dispatcherConflict
	// queryFaults are those of the gates that have any.
	queryFaults map[string]QueryFaults
	// requests are, by gate and cluster, when a workload last needed the cluster.
	requests map[string]map[string]time.Time
	// devices are, by gate, those of each flavor by model; "" = of all models.
	devices map[string]map[FlavorDevices]map[string]Devices
}

// New returns an empty registry.
func New() *Registry {
	return &Registry{Shadow: shadow.NewBook(), gates: map[string]Gate{}, waiting: map[string]WaitSummary{}, conflicts: map[string]dispatcherConflict{},
		requests: map[string]map[string]time.Time{}, devices: map[string]map[FlavorDevices]map[string]Devices{}}
}

// Gate is a PlacementGate with the clusters that its Placement decided.
type Gate struct {
	Name string
	Spec v1alpha1.PlacementGateSpec
	// Problem is the reason why the gate can't decide anything; empty = none.
	Problem string
	// Clusters in the order of the Placement's decisions.
	Clusters []Cluster
	// UID and Generation of the PlacementGate that Spec was read from.
	UID        types.UID
	Generation int64
}

// Cluster is a cluster that the gate's Placement decided.
type Cluster struct {
	Name string
	// Scores of the cluster by gate.ScoreKey.
	Scores map[string]gate.Score
	// Leaving is true if the cluster is about to leave the MultiKueueConfig. No workload may be
	// sent there.
	Leaving bool
}

// Candidate returns the cluster as a candidate of a decision, with what the hub says of it. Metrics are added by
// the caller.
func (c Cluster) Candidate() gate.Candidate { return gate.Candidate{Name: c.Name, Scores: c.Scores} }

// OnChange registers a function that is called after a gate was added, changed or deleted.
// It must not block.
func (r *Registry) OnChange(f func(gateName string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watchers = append(r.watchers, f)
}

// Put adds or replaces a gate. The watchers are called if the gate differs from before in
// more than the age of its scores.
func (r *Registry) Put(g Gate) {
	r.mu.Lock()
	old, ok := r.gates[g.Name]
	r.gates[g.Name] = g
	watchers := r.watchers
	r.mu.Unlock()
	if ok && reflect.DeepEqual(withoutScoreTimes(old), withoutScoreTimes(g)) {
		return
	}
	for _, notify := range watchers {
		notify(g.Name)
	}
}

// withoutScoreTimes returns the gate with nothing but the values of its scores: policies
// renew their scores in every period, mostly with the same value.
func withoutScoreTimes(g Gate) Gate {
	clusters := make([]Cluster, len(g.Clusters))
	for i, c := range g.Clusters {
		clusters[i] = Cluster{Name: c.Name, Scores: map[string]gate.Score{}, Leaving: c.Leaving}
		for key, s := range c.Scores {
			clusters[i].Scores[key] = gate.Score{Value: s.Value}
		}
	}
	g.Clusters = clusters
	return g
}

// Delete removes a gate. Its waiting workloads stay counted until the wait queue removes
// them.
func (r *Registry) Delete(name string) {
	r.mu.Lock()
	delete(r.gates, name)
	delete(r.devices, name)
	watchers := r.watchers
	r.mu.Unlock()
	for _, notify := range watchers {
		notify(name)
	}
}

// Get returns a gate. It returns false if the gate does not exist or the placementgate
// controller has not reconciled it yet.
func (r *Registry) Get(name string) (Gate, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g, ok := r.gates[name]
	return g, ok
}

// GatesOf returns the names of the gates that have decided at least one of the clusters.
func (r *Registry) GatesOf(clusters ...string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for name, g := range r.gates {
		if slices.ContainsFunc(g.Clusters, func(c Cluster) bool { return slices.Contains(clusters, c.Name) }) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// WaitSummary states how many workloads wait at a gate.
type WaitSummary struct {
	Workloads int32
	// Parked is the number of workloads without quota that no cluster could start.
	Parked int32
	// Since is when the first of them started to wait; zero if none waits.
	Since time.Time
}

// DeviceKind names the devices that a workload requests.
type DeviceKind struct {
	// Resource is the name of the device resource, such as nvidia.com/gpu.
	Resource string
	// Model is empty if the workload may use any model.
	Model string
}

// SetWaiting sets the wait summary of a gate.
func (r *Registry) SetWaiting(name string, summary WaitSummary) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if summary.Workloads+summary.Parked == 0 {
		delete(r.waiting, name)
		return
	}
	r.waiting[name] = summary
}

// Waiting returns the number of workloads that wait at a gate.
func (r *Registry) Waiting(name string) int32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiting[name].Workloads
}

// TotalWaiting returns the number of workloads that wait at all gates together.
func (r *Registry) TotalWaiting() int32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	var n int32
	for _, summary := range r.waiting {
		n += summary.Workloads
	}
	return n
}

// WaitSummaries returns the wait summary of each gate by name: of every existing gate, and
// of gates that do not exist but have waiting workloads.
func (r *Registry) WaitSummaries() map[string]WaitSummary {
	r.mu.Lock()
	defer r.mu.Unlock()
	summaries := maps.Clone(r.waiting)
	for name := range r.gates {
		summaries[name] = r.waiting[name]
	}
	return summaries
}

// QueryFaults are what is wrong with the recent results of a gate's queries.
type QueryFaults struct {
	// Failing names the failing or incomplete queries; empty = none.
	Failing string
	// Excluding says which requirements of scope Cluster no cluster meets, or that none meets all together; empty = none.
	Excluding string
}

// SetQueryFaults replaces the faults of all gates. A gate without an entry has none.
func (r *Registry) SetQueryFaults(faults map[string]QueryFaults) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queryFaults = faults
}

// QueryFaults returns those of a gate.
func (r *Registry) QueryFaults(name string) QueryFaults {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.queryFaults[name]
}

// RequestCluster records that a workload needs a cluster that the gate's MultiKueueConfig does not
// contain.
func (r *Registry) RequestCluster(gateName, cluster string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.requests[gateName] == nil {
		r.requests[gateName] = map[string]time.Time{}
	}
	r.requests[gateName][cluster] = now
}

// RequestedClusters returns the clusters that workloads needed in the last
// timing.ClusterRequestTTL, sorted.
func (r *Registry) RequestedClusters(gateName string, now time.Time) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.requests[gateName], func(_ string, at time.Time) bool { return now.Sub(at) > timing.ClusterRequestTTL })
	return slices.Sorted(maps.Keys(r.requests[gateName]))
}

// dispatcherConflict is the latest evidence of a conflict.
type dispatcherConflict struct {
	evidence string
	seenAt   time.Time
}

// ReportConflict records evidence that Kueue's dispatcher is not the expected one: another
// component nominated clusters for a workload of the gate, or Kueue did not nominate any
// although dispatching is left to Kueue. The evidence with the latest time counts.
func (r *Registry) ReportConflict(name, evidence string, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conflicts[name].seenAt.After(at) {
		return
	}
	r.conflicts[name] = dispatcherConflict{evidence: evidence, seenAt: at}
}

// Conflict returns the latest evidence of a conflicting dispatcher; empty = none in the
// last timing.ConflictTTL.
func (r *Registry) Conflict(name string, now time.Time) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	conflict := r.conflicts[name]
	if now.Sub(conflict.seenAt) > timing.ConflictTTL {
		return ""
	}
	return conflict.evidence
}
