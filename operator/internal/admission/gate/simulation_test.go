package gate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// The simulation runs a small fleet under load, second by second, with metrics that are up
// to 30 s old by default. The gate's strategy uses the product's functions: Decide, the ledger,
// dispatch.Record. The strategies to compare with use the same metrics, without a ledger.

const (
	scrapeSeconds  = 30  // by default
	meanSeconds    = 600 // of a job's run, by default
	devicesPerNode = 8
	simulationSeed = 20261121
)

type simJob struct {
	facts    shape.Facts
	arrives  int // second
	duration int // seconds
	started  int // second, or -1
	node     *simNode
	record   dispatch.Record
	copies   int
}

func (j *simJob) devices() int64 { return j.facts.PodSets[0].DevicesPerPod }

type simNode struct {
	cluster string
	free    int64 // devices
}

type simCluster struct {
	name  string
	nodes []*simNode
	queue []*simJob
}

// bestFit returns the node with the fewest free devices that are enough, or nil.
func (c *simCluster) bestFit(devices int64) *simNode {
	var best *simNode
	for _, n := range c.nodes {
		if n.free >= devices && (best == nil || n.free < best.free) {
			best = n
		}
	}
	return best
}

// measure returns what the recording rules would for pods of this size.
func (c *simCluster) measure(devices int64) ShapeMetrics {
	m := ShapeMetrics{Fit: Known(0), Headroom: Known(0), Capacity: Known(float64(devicesPerNode * len(c.nodes)))}
	for _, n := range c.nodes {
		m.Fit.Value += math.Floor(float64(n.free) / float64(devices))
		m.Headroom.Value += float64(n.free)
	}
	return m
}

// start starts queued jobs in order. Small jobs pass large ones that do not fit.
func (c *simCluster) start(s *simulation) {
	c.queue = slices.DeleteFunc(c.queue, func(j *simJob) bool {
		if j.started >= 0 { // on another cluster
			return true
		}
		node := c.bestFit(j.devices())
		if node == nil {
			return false
		}
		node.free -= j.devices()
		j.started, j.node = s.second, node
		s.ledger.MarkAdmitted(j.facts.UID, c.name, s.now(), false)
		s.running = append(s.running, j)
		return true
	})
}

// newSimFleet returns clusters with that many free nodes each.
func newSimFleet(nodes ...int) []*simCluster {
	var fleet []*simCluster
	for i, n := range nodes {
		c := &simCluster{name: fmt.Sprint("cluster", i+1)}
		for range n {
			c.nodes = append(c.nodes, &simNode{cluster: c.name, free: devicesPerNode})
		}
		fleet = append(fleet, c)
	}
	return fleet
}

// newSimJobs returns n jobs that arrive in bursts, run meanSeconds on average, and together use about
// 95 % of the devices.
func newSimJobs(n, devices int, meanSeconds float64) []*simJob {
	random := rand.New(rand.NewPCG(simulationSeed, 1))
	sizes := []int64{1, 1, 1, 1, 1, 2, 2, 4, 4, 8}
	const meanDevices, meanBurst = 2.5, 5.5
	var jobs []*simJob
	at := 0.0
	for len(jobs) < n {
		at += random.ExpFloat64() * meanBurst * meanDevices * meanSeconds / (0.90 * float64(devices))
		for range 1 + random.IntN(10) {
			size := sizes[random.IntN(len(sizes))]
			jobs = append(jobs, &simJob{facts: job(fmt.Sprint("job-", len(jobs)), size, 1), arrives: int(at),
				duration: 1 + int(random.ExpFloat64()*meanSeconds), started: -1})
		}
	}
	return jobs
}

// strategy returns the clusters for a job, best first, or none if the job has to wait.
type strategy func(j *simJob, candidates []Candidate, now time.Time) []string

// simResult holds means over all jobs.
type simResult struct{ waitSeconds, copies float64 }

type simulation struct {
	fleet    []*simCluster
	jobs     []*simJob
	ledger   *ledger.Ledger
	strategy strategy
	scrapes  int // seconds between two scrapes

	second    int
	sampledAt map[string]time.Time
	metrics   map[string]map[int64]ShapeMetrics // by cluster and devices per pod
	arrived   int
	finished  int
	waiting   []*simJob
	sent      []*simJob // nominated, not started
	running   []*simJob
}

func simulate(fleet []*simCluster, jobs []*simJob, l *ledger.Ledger, choose strategy, scrapes int) simResult {
	s := &simulation{fleet: fleet, jobs: jobs, ledger: l, strategy: choose, scrapes: scrapes,
		sampledAt: map[string]time.Time{}, metrics: map[string]map[int64]ShapeMetrics{}}
	for ; s.finished < len(jobs); s.second++ {
		s.step()
	}
	var result simResult
	for _, j := range jobs {
		result.waitSeconds += float64(j.started-j.arrives) / float64(len(jobs))
		result.copies += float64(j.copies) / float64(len(jobs))
	}
	return result
}

func (s *simulation) now() time.Time { return t0.Add(time.Duration(s.second) * time.Second) }

func (s *simulation) step() {
	isScrape := s.second%s.scrapes == 0
	if isScrape {
		s.scrape()
	}
	anyFinished, anyArrived := s.finish(), s.arrive()
	if isScrape || anyFinished || anyArrived {
		s.nominateWaiting()
	}
	s.widen()
	for _, c := range s.fleet {
		c.start(s)
	}
	s.sent = slices.DeleteFunc(s.sent, func(j *simJob) bool { return j.started >= 0 })
}

func (s *simulation) scrape() {
	times := map[string]ledger.SampleTimes{}
	for _, c := range s.fleet {
		s.sampledAt[c.name], times[c.name] = s.now(), ledger.SampleTimes{Devices: s.now()}
		s.metrics[c.name] = map[int64]ShapeMetrics{1: c.measure(1), 2: c.measure(2), 4: c.measure(4), 8: c.measure(8)}
	}
	s.ledger.Expire(times, s.now())
}

func (s *simulation) finish() bool {
	before := len(s.running)
	s.running = slices.DeleteFunc(s.running, func(j *simJob) bool {
		if s.second < j.started+j.duration {
			return false
		}
		j.node.free += j.devices()
		s.ledger.Release(j.facts.UID)
		s.ledger.Credit(ledger.Credit{Cluster: j.node.cluster, PodSets: j.facts.PodSets, FinishedAt: s.now()})
		s.finished++
		return true
	})
	return len(s.running) < before
}

func (s *simulation) arrive() bool {
	before := s.arrived
	for ; s.arrived < len(s.jobs) && s.jobs[s.arrived].arrives <= s.second; s.arrived++ {
		s.waiting = append(s.waiting, s.jobs[s.arrived])
	}
	return s.arrived > before
}

func (s *simulation) candidates(j *simJob) []Candidate {
	var list []Candidate
	for _, c := range s.fleet {
		list = append(list, Candidate{Name: c.name, SampledAt: s.sampledAt[c.name], Shapes: []ShapeMetrics{s.metrics[c.name][j.devices()]}})
	}
	return list
}

func (s *simulation) nominateWaiting() {
	s.waiting = slices.DeleteFunc(s.waiting, func(j *simJob) bool {
		order := s.strategy(j, s.candidates(j), s.now())
		if len(order) == 0 {
			return false
		}
		j.record = j.record.Begin(order[:1], time.Time{}, "", s.now())
		s.nominate(j, order[:1])
		s.sent = append(s.sent, j)
		return true
	})
}

func (s *simulation) widen() {
	var usable []string
	for _, c := range s.fleet {
		usable = append(usable, c.name)
	}
	for _, j := range s.sent {
		stage, _ := j.record.Stage(dispatch.Pace{}, s.now())
		if stage == dispatch.StageWait {
			continue
		}
		order := s.strategy(j, s.candidates(j), s.now())
		wider := dispatch.WidenedList(stage, j.record.Nominated, dispatch.Clusters{WithRoom: order, Usable: usable})
		s.nominate(j, wider[len(j.record.Nominated):])
		j.record = j.record.Widen(wider, "", s.now())
	}
}

func (s *simulation) nominate(j *simJob, clusters []string) {
	for _, c := range s.fleet {
		if slices.Contains(clusters, c.name) {
			c.queue = append(c.queue, j)
			j.copies++
		}
	}
}

// withLedger is the product's strategy.
func withLedger(l *ledger.Ledger) strategy {
	return func(j *simJob, candidates []Candidate, now time.Time) []string {
		view := l.View()
		order := Decide(j.facts, candidates, Fleet{}, view, rules(), j.record.Attempt+1, now).Order
		var entries []ledger.Entry
		if len(order) > 0 && len(j.record.Nominated) == 0 {
			entries = []ledger.Entry{{UID: j.facts.UID, Workload: j.facts.Key(), Cluster: order[0], PodSets: j.facts.PodSets, DebitedAt: now}}
		}
		l.Commit(view, j.facts.UID, j.record.Nominated, entries, nil)
		return order
	}
}

// withoutLedger is the product's strategy with an empty ledger.
func withoutLedger(j *simJob, candidates []Candidate, now time.Time) []string {
	return Decide(j.facts, candidates, Fleet{}, ledger.View{}, rules(), j.record.Attempt+1, now).Order
}

// largestFreePart ranks the clusters where the job fits by free devices over all devices.
func largestFreePart(_ *simJob, candidates []Candidate, _ time.Time) []string {
	fits := slices.DeleteFunc(candidates, func(c Candidate) bool { return c.Shapes[0].Fit.Value < 1 })
	slices.SortStableFunc(fits, func(a, b Candidate) int {
		part := func(c Candidate) float64 { return c.Shapes[0].Headroom.Value / c.Shapes[0].Capacity.Value }
		return -int(math.Copysign(1, part(a)-part(b)))
	})
	var order []string
	for _, c := range fits {
		order = append(order, c.Name)
	}
	return order
}

func TestGateBeatsStatelessRankingOnLaggingMetrics(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates many cases")
	}
	nodes := []int{2, 2, 4, 8, 16, 32, 32, 32}
	const n, devices = 3000, devicesPerNode * 128
	l := ledger.New(0, 10*time.Minute)
	got := simulate(newSimFleet(nodes...), newSimJobs(n, devices, meanSeconds), l, withLedger(l), scrapeSeconds)
	if len(l.DevicesByCluster()) > 0 {
		t.Errorf("the ledger holds %v after the last job, want nothing", l.DevicesByCluster())
	}
	for _, tc := range []struct {
		name     string
		strategy strategy
	}{{"largest free part", largestFreePart}, {"without ledger", withoutLedger}} {
		t.Run(tc.name, func(t *testing.T) {
			other := simulate(newSimFleet(nodes...), newSimJobs(n, devices, meanSeconds), ledger.New(0, 0), tc.strategy, scrapeSeconds)
			t.Logf("gate: mean wait %.1f s, %.2f copies per job; %s: %.1f s, %.2f", got.waitSeconds, got.copies, tc.name, other.waitSeconds, other.copies)
			if got.waitSeconds > 0.85*other.waitSeconds {
				t.Errorf("the gate waits %.1f s, want at most 85 %% of %.1f s", got.waitSeconds, other.waitSeconds)
			}
			if got.copies > 0.8*other.copies {
				t.Errorf("the gate makes %.2f copies per job, want at most 80 %% of %.2f", got.copies, other.copies)
			}
		})
	}
}

// BenchmarkLag measures what the age of metrics costs: the mean wait of jobs if the clusters are
// scraped every second, and less often.
func BenchmarkLag(b *testing.B) {
	for _, mean := range []float64{60, 600, 3600} {
		for _, scrapes := range []int{1, 15, 30} {
			b.Run(fmt.Sprintf("run=%.0fs/scrapes=%ds", mean, scrapes), func(b *testing.B) {
				for b.Loop() {
					l := ledger.New(0, 10*time.Minute)
					got := simulate(newSimFleet(2, 2, 4, 8, 16, 32, 32, 32), newSimJobs(3000, devicesPerNode*128, mean), l, withLedger(l), scrapes)
					b.ReportMetric(got.waitSeconds, "s-wait/job")
				}
			})
		}
	}
}
