package waitqueue

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/order"
	"plimsoll.dev/plimsoll/operator/internal/admission/registry"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// The simulation runs a fleet second by second with metrics that are up to simScrape old. The
// gate's strategies use the product's wait queue, gate.Decide and ledger. On a worker, a pod
// starts on the node with the most free devices, as kube-scheduler spreads pods by default.

const (
	simNodeDevices = 8
	simScrape      = 15
	simHours       = 6
	simSeconds     = (simHours + 1) * 3600
	simWidenAfter  = 30
	simSeed        = 20261122
	simModel       = "NVIDIA-H100-80GB-HBM3"
)

var simStart = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

type simJob struct {
	name     types.NamespacedName
	priority int32
	devices  int64
	arrives  int // second
	duration int // seconds
	sent     int // second
	started  int // second; -1 = not yet
	cluster  *simCluster
	node     int
}

func (j *simJob) facts() shape.Facts {
	return shape.Facts{UID: j.name.Name, Namespace: j.name.Namespace, Name: j.name.Name, Queue: "gpu", PodSets: j.podSets()}
}

func (j *simJob) podSets() []shape.PodSet {
	return []shape.PodSet{{Name: "main", Resource: "nvidia.com/gpu", Model: simModel, DevicesPerPod: j.devices, Pods: 1}}
}

type simCluster struct {
	name string
	free []int64 // devices by node
	// sent jobs that have not started yet.
	sent []*simJob
	// metrics of the last scrape, by devices per pod.
	metrics map[int64]gate.ShapeMetrics
}

func (c *simCluster) scrape() {
	c.metrics = map[int64]gate.ShapeMetrics{}
	for _, devices := range []int64{1, 2, 4, 8} {
		m := gate.ShapeMetrics{Capacity: gate.Known(float64(simNodeDevices * len(c.free)))}
		m.Fit.Known, m.Headroom.Known, m.Largest.Known, m.EmptyFit.Known = true, true, true, true
		for _, free := range c.free {
			m.Fit.Value += float64(free / devices)
			m.Headroom.Value += float64(free)
			m.Largest.Value = math.Max(m.Largest.Value, float64(free))
			m.EmptyFit.Value += float64(simNodeDevices / devices)
		}
		c.metrics[devices] = m
	}
}

// place starts a job if a node has room.
func (c *simCluster) place(j *simJob, second int) bool {
	most := 0
	for i, free := range c.free {
		if free > c.free[most] {
			most = i
		}
	}
	if c.free[most] < j.devices {
		return false
	}
	c.free[most] -= j.devices
	j.started, j.cluster, j.node = second, c, most
	return true
}

func (c *simCluster) totalFree() int64 {
	var n int64
	for _, free := range c.free {
		n += free
	}
	return n
}

// simulation is a fleet under a strategy.
type simulation struct {
	clusters []*simCluster
	second   int
	arrived  []*simJob
	running  []*simJob
	strategy simStrategy
	changed  bool // since the last call of the strategy
}

// simStrategy sends jobs to clusters.
type simStrategy interface {
	arrive(s *simulation, j *simJob)
	started(s *simulation, j *simJob)
	finished(s *simulation, j *simJob)
	// tick is called every second.
	tick(s *simulation)
}

func (s *simulation) now() time.Time { return simStart.Add(time.Duration(s.second) * time.Second) }

func simulate(nodes []int, jobs []*simJob, seconds int, strategy simStrategy) {
	s := &simulation{strategy: strategy}
	for i, n := range nodes {
		c := &simCluster{name: fmt.Sprint("cluster", i+1)}
		for range n {
			c.free = append(c.free, simNodeDevices)
		}
		s.clusters = append(s.clusters, c)
	}
	next := 0
	for ; s.second < seconds; s.second++ {
		if s.second%simScrape == 0 {
			for _, c := range s.clusters {
				c.scrape()
			}
			s.changed = true
		}
		s.running = slices.DeleteFunc(s.running, func(j *simJob) bool {
			if s.second < j.started+j.duration {
				return false
			}
			j.cluster.free[j.node] += j.devices
			strategy.finished(s, j)
			s.changed = true
			return true
		})
		for ; next < len(jobs) && jobs[next].arrives <= s.second; next++ {
			s.arrived = append(s.arrived, jobs[next])
			strategy.arrive(s, jobs[next])
			s.changed = true
		}
		strategy.tick(s)
		s.startSent()
		s.changed = false
	}
}

// startSent starts what the clusters received, in the order of priority and arrival.
func (s *simulation) startSent() {
	for _, c := range s.clusters {
		slices.SortStableFunc(c.sent, func(a, b *simJob) int { return cmp.Compare(b.priority, a.priority) })
		c.sent = slices.DeleteFunc(c.sent, func(j *simJob) bool {
			if !c.place(j, s.second) {
				return false
			}
			s.running = append(s.running, j)
			s.strategy.started(s, j)
			return true
		})
	}
}

// gateStrategy is the product: wait queue, gate and ledger.
type gateStrategy struct {
	hold      gate.HoldRules
	durations bool // known to the gate
	// inOrder is false for the gate before it had an order: every wake-up decides every waiting
	// job, in random order.
	inOrder bool

	queue     *Queue
	ledger    *ledger.Ledger
	clock     time.Time
	waiting   map[types.NamespacedName]*simJob
	woken     []types.NamespacedName
	refreshes []refresh
	sampledAt time.Time
	random    *rand.Rand
	decisions int
}

func newGateStrategy(mode v1alpha1.HoldMode, after, aging time.Duration, inOrder, durations bool) *gateStrategy {
	g := &gateStrategy{hold: gate.HoldRules{Gate: "gpu", Mode: mode, After: after, Aging: aging}, inOrder: inOrder, durations: durations,
		ledger: ledger.New(0, 10*time.Minute), waiting: map[types.NamespacedName]*simJob{}, random: rand.New(rand.NewPCG(simSeed, 7))}
	gates := registry.New()
	gates.Put(registry.Gate{Name: "gpu", Spec: v1alpha1.PlacementGateSpec{PeriodSeconds: simScrape}})
	g.queue = New(gates, func() time.Time { return g.clock }, func(key registry.QueryKey, newerThan time.Time) {
		g.refreshes = append(g.refreshes, refresh{key, newerThan})
	})
	g.queue.SetEnqueuer(func(w types.NamespacedName) { g.woken = append(g.woken, w) })
	return g
}

func (g *gateStrategy) arrive(s *simulation, j *simJob) {
	g.clock = s.now()
	g.waiting[j.name] = j
	g.decide(s, j)
}

func (g *gateStrategy) started(s *simulation, j *simJob) {
	g.ledger.MarkAdmitted(j.name.Name, j.cluster.name, s.now(), false)
	running := ledger.Running{UID: j.name.Name, Cluster: j.cluster.name, Priority: j.priority, PodSets: j.podSets()}
	if g.durations {
		running.EndsBy = s.now().Add(time.Duration(j.duration) * time.Second)
	}
	g.ledger.PutRunning(running)
}

func (g *gateStrategy) finished(s *simulation, j *simJob) {
	g.ledger.Release(j.name.Name)
	g.ledger.Credit(ledger.Credit{Cluster: j.cluster.name, PodSets: j.podSets(), FinishedAt: s.now()})
	g.queue.MarkDirty("gpu")
}

func (g *gateStrategy) tick(s *simulation) {
	g.clock = s.now()
	if s.second%simScrape == 0 {
		g.sampledAt = s.now()
		sampled := map[string]ledger.SampleTimes{}
		for _, c := range s.clusters {
			sampled[c.name] = ledger.SampleTimes{Devices: g.sampledAt}
		}
		g.ledger.Expire(sampled, s.now())
		g.widen(s)
		g.queue.MarkDirty("gpu")
	}
	if !g.inOrder {
		if s.changed {
			for _, name := range shuffled(g.waiting, g.random) {
				g.decide(s, g.waiting[name])
			}
		}
		return
	}
	g.queue.StartWakeUps()
	for len(g.refreshes) > 0 || len(g.woken) > 0 {
		refreshes, woken := g.refreshes, g.woken
		g.refreshes, g.woken = nil, nil
		for _, r := range refreshes {
			g.queue.Refreshed(r.key, r.newerThan)
		}
		for _, name := range woken {
			if j := g.waiting[name]; j != nil {
				g.decide(s, j)
			}
		}
	}
}

// decide does for a job what a reconciliation does.
func (g *gateStrategy) decide(s *simulation, j *simJob) {
	g.decisions++
	facts := j.facts()
	rules := gate.RulesOf(&v1alpha1.PlacementGateSpec{})
	rules.Hold, rules.Rank = g.hold, order.Rank{Priority: j.priority, Since: simStart.Add(time.Duration(j.arrives) * time.Second), Name: j.name.String()}
	if g.durations {
		rules.RunsFor = time.Duration(j.duration) * time.Second
	}
	entry := Entry{Workload: j.name, Key: registry.QueryKey{Gate: "gpu", Facts: facts.EquivalenceKey()}, Rank: rules.Rank, Aging: g.hold.Aging, PodSets: facts.PodSets}
	var candidates []gate.Candidate
	for _, c := range s.clusters {
		candidates = append(candidates, gate.Candidate{Name: c.name, SampledAt: g.sampledAt, Shapes: []gate.ShapeMetrics{c.metrics[j.devices]}})
	}
	hasTurn, view := g.queue.HasTurn(j.name), g.ledger.View()
	d := gate.Decide(facts, candidates, gate.Fleet{}, view, rules, 1, s.now())
	if d.State == gate.Ready && g.inOrder && !hasTurn && g.queue.Preceding(entry).Name != "" {
		d.State, d.Reason = gate.Pending, gate.ReasonQueued
		entry.HasRoom = true
	}
	if d.State != gate.Ready {
		g.ledger.Commit(view, facts.UID, nil, nil, d.Hold)
		if g.inOrder {
			g.queue.Add(entry)
			g.queue.Decided(j.name, d.Reason)
		}
		return
	}
	g.ledger.Commit(view, facts.UID, nil, []ledger.Entry{{UID: facts.UID, Cluster: d.Order[0], PodSets: facts.PodSets, DebitedAt: s.now()}}, nil)
	delete(g.waiting, j.name)
	i := slices.IndexFunc(s.clusters, func(c *simCluster) bool { return c.name == d.Order[0] })
	s.clusters[i].sent = append(s.clusters[i].sent, j)
	j.sent = s.second
	g.queue.Remove(j.name)
}

// widen takes jobs back that their cluster did not start in time, so that they are decided
// again. The product sends a copy elsewhere and keeps the first one.
func (g *gateStrategy) widen(s *simulation) {
	var late []*simJob
	for _, c := range s.clusters {
		c.sent = slices.DeleteFunc(c.sent, func(j *simJob) bool {
			isLate := s.second-j.sent >= simWidenAfter
			if isLate {
				late = append(late, j)
			}
			return isLate
		})
	}
	for _, j := range late {
		g.ledger.Release(j.name.Name)
		g.arrive(s, j)
	}
}

func shuffled(waiting map[types.NamespacedName]*simJob, random *rand.Rand) []types.NamespacedName {
	var names []types.NamespacedName
	for name := range waiting {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b types.NamespacedName) int { return cmp.Compare(a.Name, b.Name) })
	random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names
}

// fifoStrategy starts jobs in the order of arrival, on current data. A job that fits nowhere
// blocks all others.
type fifoStrategy struct{ queue []*simJob }

func (f *fifoStrategy) arrive(_ *simulation, j *simJob) { f.queue = append(f.queue, j) }
func (f *fifoStrategy) started(*simulation, *simJob)    {}
func (f *fifoStrategy) finished(*simulation, *simJob)   {}
func (f *fifoStrategy) tick(s *simulation) {
	for len(f.queue) > 0 {
		i := slices.IndexFunc(s.clusters, func(c *simCluster) bool { return c.place(f.queue[0], s.second) })
		if i < 0 {
			return
		}
		s.running = append(s.running, f.queue[0])
		f.queue = f.queue[1:]
	}
}

// kueueStrategy is Kueue alone: queues ordered by priority and arrival whose first jobs may be
// passed (BestEffortFIFO), and workers that admit by quota. The quota of a worker is its number
// of devices; nodes do not count.
type kueueStrategy struct{ queue []*simJob }

func (k *kueueStrategy) arrive(_ *simulation, j *simJob) {
	k.queue = append(k.queue, j)
	slices.SortStableFunc(k.queue, func(a, b *simJob) int { return cmp.Compare(b.priority, a.priority) })
}
func (k *kueueStrategy) started(*simulation, *simJob)  {}
func (k *kueueStrategy) finished(*simulation, *simJob) {}
func (k *kueueStrategy) tick(s *simulation) {
	if !s.changed {
		return
	}
	k.queue = slices.DeleteFunc(k.queue, func(j *simJob) bool {
		for _, c := range s.clusters {
			quota := c.totalFree()
			for _, sent := range c.sent {
				quota -= sent.devices
			}
			if quota >= j.devices {
				c.sent = append(c.sent, j)
				return true
			}
		}
		return false
	})
}
