package gate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/ledger"
	"plimsoll.dev/plimsoll/operator/internal/shape"
)

// A small fleet under load, second by second, whose metrics are up to 30 s old. The
// decisions are the product's: Decide, the ledger, Phase and Wider. What they are
// measured against ranks by the same metrics and remembers nothing.

const (
	lag     = 30 // seconds between samples
	perNode = 8
	simSeed = 20261121
)

type simJob struct {
	facts    shape.Facts
	arrives  int
	duration int
	started  int
	on       string // cluster that runs it
	dispatch dispatch.Record
	copies   int
}

type simCluster struct {
	name  string
	nodes []int64 // free devices
	queue []*simJob
}

// nodeFor the devices: the tightest that holds them, or -1.
func (c *simCluster) nodeFor(devices int64) int {
	best := -1
	for i, free := range c.nodes {
		if free >= devices && (best < 0 || free < c.nodes[best]) {
			best = i
		}
	}
	return best
}

// fit of every size, headroom and capacity, as the recording rules tell them.
func (c *simCluster) measure(devices int64) ShapeMetrics {
	var a ShapeMetrics
	a.Fit, a.Headroom, a.Capacity, a.Queued = Known(0), Known(0), Known(float64(perNode*len(c.nodes))), Known(0)
	for _, free := range c.nodes {
		a.Fit.Value += math.Floor(float64(free) / float64(devices))
		a.Headroom.Value += float64(free)
	}
	return a
}

// fleetOf clusters with so many nodes each, all free.
func fleetOf(sizes ...int) []*simCluster {
	var fleet []*simCluster
	for i, n := range sizes {
		c := &simCluster{name: fmt.Sprint("cluster", i+1)}
		for range n {
			c.nodes = append(c.nodes, perNode)
		}
		fleet = append(fleet, c)
	}
	return fleet
}

// load of n jobs in bursts, in all at 95 % of the devices.
func load(n, devices int) []*simJob {
	random := rand.New(rand.NewPCG(simSeed, 1))
	sizes := []int64{1, 1, 1, 1, 1, 2, 2, 4, 4, 8}
	const meanDevices, meanSeconds, meanBurst = 2.5, 600, 5.5
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

// chooser decides where a waiting job goes: the clusters in order, or none.
type chooser func(j *simJob, candidates []Candidate, now time.Time) []string

// outcome of a simulation: mean wait in seconds, and copies made per job.
type simOutcome struct{ wait, copies float64 }

func simulate(fleet []*simCluster, jobs []*simJob, l *ledger.Ledger, choose chooser) simOutcome {
	sampled := map[string]time.Time{}
	sizes := map[*simCluster]map[int64]ShapeMetrics{}
	var waiting, sent, running []*simJob
	next, finished := 0, 0
	for second := 0; finished < len(jobs); second++ {
		now := t0.Add(time.Duration(second) * time.Second)
		if second%lag == 0 {
			for _, c := range fleet {
				sampled[c.name], sizes[c] = now, map[int64]ShapeMetrics{1: c.measure(1), 2: c.measure(2), 4: c.measure(4), 8: c.measure(8)}
			}
			l.Expire(sampled, now)
		}
		seen := func(j *simJob) []Candidate {
			var list []Candidate
			for _, c := range fleet {
				list = append(list, Candidate{Name: c.name, SampledAt: sampled[c.name], Shapes: []ShapeMetrics{sizes[c][j.facts.PodSets[0].DevicesPerPod]}})
			}
			return list
		}
		before := finished
		running = slices.DeleteFunc(running, func(j *simJob) bool { return end(fleet, l, j, second, now, &finished) })
		for ; next < len(jobs) && jobs[next].arrives <= second; next++ {
			waiting = append(waiting, jobs[next])
		}
		if second%lag == 0 || finished > before || next > 0 && jobs[next-1].arrives == second {
			waiting = slices.DeleteFunc(waiting, func(j *simJob) bool {
				order := choose(j, seen(j), now)
				if len(order) == 0 {
					return false
				}
				j.dispatch = j.dispatch.Begin(order[:1], "", now)
				nominate(fleet, j, order[:1])
				sent = append(sent, j)
				return true
			})
		}
		for _, j := range sent {
			if phase, _ := j.dispatch.Stage(v1alpha1.Widen{}, now); phase != dispatch.StageWait {
				order := choose(j, seen(j), now)
				var usable []string
				for _, c := range fleet {
					usable = append(usable, c.name)
				}
				wider := j.dispatch.WidenedList(phase, j.dispatch.Nominated, order, usable, v1alpha1.Widen{})
				nominate(fleet, j, wider[len(j.dispatch.Nominated):])
				j.dispatch = j.dispatch.Widen(wider, "", now)
			}
		}
		for _, c := range fleet {
			running = append(running, start(c, l, second, now)...)
		}
		sent = slices.DeleteFunc(sent, func(j *simJob) bool { return j.started >= 0 })
	}
	var out simOutcome
	for _, j := range jobs {
		out.wait += float64(j.started-j.arrives) / float64(len(jobs))
		out.copies += float64(j.copies) / float64(len(jobs))
	}
	return out
}

func nominate(fleet []*simCluster, j *simJob, clusters []string) {
	for _, c := range fleet {
		if slices.Contains(clusters, c.name) {
			c.queue = append(c.queue, j)
			j.copies++
		}
	}
}

// start what fits, in order, the small ones passing those that do not fit.
func start(c *simCluster, l *ledger.Ledger, second int, now time.Time) (started []*simJob) {
	c.queue = slices.DeleteFunc(c.queue, func(j *simJob) bool {
		if j.started >= 0 {
			return true
		}
		devices := j.facts.PodSets[0].DevicesPerPod
		node := c.nodeFor(devices)
		if node < 0 {
			return false
		}
		c.nodes[node] -= devices
		j.started, j.on = second, fmt.Sprint(c.name, "/", node)
		l.MarkAdmitted(j.facts.UID, c.name, now, false)
		started = append(started, j)
		return true
	})
	return started
}

func end(fleet []*simCluster, l *ledger.Ledger, j *simJob, second int, now time.Time, finished *int) bool {
	if second < j.started+j.duration {
		return false
	}
	*finished++
	l.Release(j.facts.UID)
	for _, c := range fleet {
		for node := range c.nodes {
			if j.on == fmt.Sprint(c.name, "/", node) {
				c.nodes[node] += j.facts.PodSets[0].DevicesPerPod
				l.Credit(ledger.Credit{Cluster: c.name, PodSets: j.facts.PodSets, FinishedAt: now})
			}
		}
	}
	return true
}

// ours is the product: it sees what it has sent, and draws two.
func ours(l *ledger.Ledger) chooser {
	return func(j *simJob, candidates []Candidate, now time.Time) (order []string) {
		l.Reserve(j.facts.UID, j.dispatch.Nominated, func(view ledger.View) []ledger.Entry {
			order = Decide(j.facts, candidates, Fleet{}, view, rules(), j.dispatch.Attempt+1, now).Order
			if len(order) == 0 || len(j.dispatch.Nominated) > 0 {
				return nil
			}
			return []ledger.Entry{{UID: j.facts.UID, Workload: j.facts.Key(), Cluster: order[0], PodSets: j.facts.PodSets, DebitedAt: now}}
		})
		return order
	}
}

// plain ranking: of those that fit, the one with the largest free part.
func plain(_ *simJob, candidates []Candidate, _ time.Time) []string {
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

// forgetful is the product without its ledger.
func forgetful(j *simJob, candidates []Candidate, now time.Time) []string {
	return Decide(j.facts, candidates, Fleet{}, ledger.View{}, rules(), j.dispatch.Attempt+1, now).Order
}

func TestDecisionsBeatPlainRankingOnLaggedMetrics(t *testing.T) {
	sizes := []int{2, 2, 4, 8, 16, 32, 32, 32}
	const n, devices = 3000, perNode * 128
	l := ledger.New(0, 10*time.Minute)
	got := simulate(fleetOf(sizes...), load(n, devices), l, ours(l))
	if len(l.DevicesByCluster()) > 0 {
		t.Errorf("the ledger still holds %v after the last job", l.DevicesByCluster())
	}
	for name, other := range map[string]chooser{"plain ranking": plain, "without the ledger": forgetful} {
		than := simulate(fleetOf(sizes...), load(n, devices), ledger.New(0, 0), other)
		t.Logf("mean wait: ours %.1f s with %.2f copies a job, %s %.1f s with %.2f", got.wait, got.copies, name, than.wait, than.copies)
		if got.wait > 0.85*than.wait || got.copies > 0.8*than.copies {
			t.Errorf("ours waits %.1f s and makes %.2f copies a job, %s %.1f s and %.2f", got.wait, got.copies, name, than.wait, than.copies)
		}
	}
}
