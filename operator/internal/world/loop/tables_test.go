//go:build !race

package loop

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/world"
)

// The tables of operator/docs and operator/design that compare strategies in worlds. Each benchmark prints one:
//
//	go test ./operator/internal/world/loop -run - -bench Tables -benchtime 1x

// strategy is what a table compares: settings of the product, or decisions in its place.
type strategy struct {
	name   string
	change func(*world.Spec)
	decide gate.Decider
}

// run runs a world under a strategy for a time, or to its end.
func (s strategy) run(spec world.Spec, length time.Duration) *world.World {
	if s.change != nil {
		s.change(&spec)
	}
	o := Options{Decide: s.decide}
	if length > 0 {
		o.Steps = func(d *Driver) { d.Advance(length, nil) }
	}
	return Run(spec, o)
}

// waits of jobs from their submission until all pods run, or until the end of the world.
type waits struct {
	jobs, neverStarted int
	total, longest     time.Duration
	copies             int
}

func waitsOf(w *world.World, counts func(*world.Run) bool) (sum waits) {
	for _, r := range w.Runs() {
		if !counts(r) {
			continue
		}
		end := r.Started
		if end.IsZero() {
			end = start.Add(w.Elapsed())
			sum.neverStarted++
		}
		wait := end.Sub(r.Submitted)
		sum.jobs++
		sum.total += wait
		sum.longest = max(sum.longest, wait)
		if n := len(r.Nominated); n > 0 {
			sum.copies += len(strings.Fields(r.Nominated[n-1]))
		}
	}
	return sum
}

func (w waits) mean() float64 { return w.total.Seconds() / float64(w.jobs) }

func (w waits) copiesPerJob() float64 { return float64(w.copies) / float64(w.jobs) }

func (w waits) String() string {
	return fmt.Sprintf("%d of %d | %.0f | %.0f", w.neverStarted, w.jobs, w.mean(), w.longest.Seconds())
}

// holdWorld has three clusters with 72 devices in nodes of eight. Jobs with eight devices run for half an hour and
// arrive every 25 minutes, until a time; the others have one, two or four devices and run for ten minutes.
func holdWorld(load float64, until time.Duration) world.Spec {
	const devices, largeEvery, largeSeconds, smallSeconds, least = 72, 1500.0, 1800.0, 600.0, 30
	sizes := []int64{1, 1, 1, 1, 1, 1, 2, 2, 4}
	const meanSize = 14.0 / 9
	random := rand.New(rand.NewPCG(20261122, uint64(load*100)))
	s := newWorld(2, 3, 4)
	for i := range s.Clusters {
		s.Clusters[i].Spread = true
	}
	add := func(at float64, size int64, mean float64) {
		s.Jobs = append(s.Jobs, newJob(len(s.Jobs), at, size, least+random.ExpFloat64()*(mean-least)))
	}
	every, large := meanSize*smallSeconds/(load*devices-8*largeSeconds/largeEvery), largeEvery
	for at := 0.0; at < until.Seconds(); at += random.ExpFloat64() * every {
		for ; large <= at; large += largeEvery {
			add(large, 8, largeSeconds)
		}
		add(at, sizes[random.IntN(len(sizes))], smallSeconds)
	}
	return s
}

// newWorld has clusters with a number of nodes each. Jobs wait at the gate: the hub has quota for all of them.
func newWorld(nodes ...int) world.Spec {
	s := world.Spec{Seed: 1, Queues: []world.Queue{{Name: "gpu", Nominal: map[string]int64{"NVIDIA-H100-80GB-HBM3": 1e6}}}}
	s.Settings = world.Settings{WorkerQPS: 500, CheckInterval: 5 * time.Minute, KeepsFinished: 5 * time.Minute, Length: 48 * time.Hour}
	for i, n := range nodes {
		s.Clusters = append(s.Clusters, world.Cluster{Name: fmt.Sprint("cluster", i+1), Pools: []world.Pool{{Nodes: n, Devices: 8}}})
	}
	return s
}

func newJob(number int, at float64, devices int64, runs float64) world.Job {
	return world.Job{Name: fmt.Sprint("j", number), At: time.Duration(at * float64(time.Second)), Devices: devices, Duration: time.Duration(runs * float64(time.Second))}
}

// runHolds runs a world with small and large jobs. Jobs count that are submitted an hour before the end, or earlier.
func (s strategy) runHolds(load float64, length time.Duration) (large, small waits) {
	w := s.run(holdWorld(load, length), length)
	counts := func(isLarge bool) func(*world.Run) bool {
		return func(r *world.Run) bool { return (r.Devices == 8) == isLarge && r.At < length-time.Hour }
	}
	return waitsOf(w, counts(true)), waitsOf(w, counts(false))
}

func hold(mode v1alpha1.HoldMode, after int32) func(*world.Spec) {
	return func(s *world.Spec) { s.Settings.Gate.Hold = v1alpha1.GateHold{Mode: mode, AfterSeconds: after} }
}

// likeKueue gives the hub's queue as much quota as the workers have devices, so that Kueue orders the jobs.
func likeKueue(strictFIFO bool) func(*world.Spec) {
	return func(s *world.Spec) { s.Queues = []world.Queue{{Name: "gpu", StrictFIFO: strictFIFO}} }
}

// anyCluster sends a job to any cluster, and to all others if that one does not admit it.
func anyCluster(in *gate.Inputs, _ time.Time) gate.Decision {
	d := gate.Decision{State: gate.Ready, Reason: gate.ReasonPlaceable, Message: "without metrics"}
	for _, c := range in.Candidates {
		d.Order = append(d.Order, c.Name)
	}
	slices.SortFunc(d.Order, func(a, b string) int { return cmp.Compare(hashOf(in.Facts.UID+a), hashOf(in.Facts.UID+b)) })
	return d
}

func hashOf(s string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(s))
	return h.Sum32()
}

// outOfOrder decides as the product does, but lets no job wait for its turn.
func outOfOrder(in *gate.Inputs, now time.Time) gate.Decision { return in.Decide(now) }

// withoutLedger decides as the product does on the metrics alone, without order and holds.
func withoutLedger(in *gate.Inputs, now time.Time) gate.Decision {
	stateless := *in
	stateless.View = ledger.View{}
	return stateless.Decide(now)
}

// largestFreePart decides like withoutLedger, and ranks by free devices over all devices.
func largestFreePart(in *gate.Inputs, now time.Time) gate.Decision {
	d, part := withoutLedger(in, now), map[string]float64{}
	for _, c := range in.Candidates {
		part[c.Name] = c.Shapes[0].Headroom.Value / c.Shapes[0].Capacity.Value
	}
	slices.SortStableFunc(d.Order, func(a, b string) int { return cmp.Compare(part[b], part[a]) })
	return d
}

var (
	holdsOff     = strategy{name: "gate, hold off", change: hold(v1alpha1.HoldOff, 0)}
	holdDefaults = strategy{name: "gate, hold after 300 s", change: hold(v1alpha1.HoldEnforce, 300)}
	noOrder      = strategy{"gate without order and hold", hold(v1alpha1.HoldOff, 0), outOfOrder}
)

// holdStrategies are the rows of the table in operator/docs/order.md.
var holdStrategies = []strategy{
	{"Kueue, StrictFIFO", likeKueue(true), anyCluster},
	{"Kueue, BestEffortFIFO", likeKueue(false), anyCluster},
	noOrder,
	holdsOff,
	{name: "gate, hold after 1 s", change: hold(v1alpha1.HoldEnforce, 1)},
	{name: "gate, hold after 60 s", change: hold(v1alpha1.HoldEnforce, 60)},
	holdDefaults,
	{name: "gate, hold after 900 s", change: hold(v1alpha1.HoldEnforce, 900)},
	{name: "gate, hold after 300 s, time limits", change: func(s *world.Spec) {
		holdDefaults.change(s)
		for i := range s.Jobs {
			s.Jobs[i].Limit = true
		}
	}},
}

// BenchmarkTablesHolds prints the table of operator/docs/order.md.
func BenchmarkTablesHolds(b *testing.B) {
	for b.Loop() {
		fmt.Print("\n| load | strategy | 8 devices: never started | mean wait | longest | others: never started | mean wait | longest |\n|---|---|---|---|---|---|---|---|\n")
		for _, load := range []float64{0.85, 0.95} {
			for _, s := range holdStrategies {
				large, small := s.runHolds(load, 7*time.Hour)
				fmt.Printf("| %.2f | %s | %s | %s |\n", load, s.name, large, small)
			}
		}
	}
}

// With small jobs flowing at a load of 0.85, few jobs that need a whole node start without order and hold. With them,
// all do.
func TestHoldsPreventStarvation(t *testing.T) {
	if testing.Short() {
		t.Skip("runs hours of jobs")
	}
	if large, _ := noOrder.runHolds(0.85, 4*time.Hour); large.neverStarted < large.jobs/2 {
		t.Errorf("without order and hold, whole nodes: %s: the world does not show starvation", large)
	}
	large, small := holdDefaults.runHolds(0.85, 4*time.Hour)
	if large.neverStarted > 0 || large.longest > time.Hour {
		t.Errorf("whole nodes: %s, want that all start within an hour", large)
	}
	if small.mean() > 180 {
		t.Errorf("the others: %s, want at most 180 s on average", small)
	}
}

// One node with eight devices, forty jobs of priority 1 with one device, and one job of priority 1000 with eight.
// Sixteen small jobs are submitted before it, and 24 later.
func TestUrgentJobDoesNotStartLast(t *testing.T) {
	startedBefore := func(s strategy) (n int) {
		spec := newWorld(1)
		for i := range 40 {
			j := newJob(i, float64(60+20*i), 1, float64(300+7*i))
			j.Priority = 1
			spec.Jobs = append(spec.Jobs, j)
		}
		spec.Jobs = append(spec.Jobs, world.Job{Name: "urgent", At: 370 * time.Second, Priority: 1000, Devices: 8, Duration: 5 * time.Minute})
		runs := s.run(spec, 0).Runs()
		urgent := runs[slices.IndexFunc(runs, func(r *world.Run) bool { return r.Name == "urgent" })]
		for _, r := range runs {
			if r.Started.Before(urgent.Started) {
				n++
			}
		}
		return n
	}
	if n := startedBefore(noOrder); n < 35 {
		t.Errorf("without order and hold, %d small jobs start before the urgent one: the world does not show starvation", n)
	}
	if n := startedBefore(holdDefaults); n > 24 {
		t.Errorf("%d small jobs start before the urgent one, want at most 24", n)
	}
}

// fleet has 1,024 devices in clusters of very different sizes.
var fleet = []int{2, 2, 4, 8, 16, 32, 32, 32}

// burstWorld has clusters with a number of nodes each. Jobs arrive in bursts and run for meanSeconds on average. They
// use 90 % of the devices.
func burstWorld(jobs int, meanSeconds float64, nodes ...int) world.Spec {
	const meanDevices, meanBurst, load = 2.5, 5.5, 0.9
	sizes := []int64{1, 1, 1, 1, 1, 2, 2, 4, 4, 8}
	random := rand.New(rand.NewPCG(20261121, 1))
	s, devices := newWorld(nodes...), 0.0
	for _, n := range nodes {
		devices += 8 * float64(n)
	}
	s.Settings.ScrapeInterval = 30 * time.Second
	for at := 60.0; len(s.Jobs) < jobs; at += random.ExpFloat64() * meanBurst * meanDevices * meanSeconds / (load * devices) {
		for range 1 + random.IntN(10) {
			s.Jobs = append(s.Jobs, newJob(len(s.Jobs), at, sizes[random.IntN(len(sizes))], 1+random.ExpFloat64()*meanSeconds))
		}
	}
	return s
}

func all(*world.Run) bool { return true }

// ledgerStrategies are the rows of the table of the ledger in operator/docs/admission.md.
var ledgerStrategies = []strategy{{name: "the gate"}, {name: "without ledger", decide: withoutLedger}, {name: "largest free part", decide: largestFreePart}}

// BenchmarkTablesLedger prints the table of the ledger in operator/docs/admission.md.
func BenchmarkTablesLedger(b *testing.B) {
	for b.Loop() {
		fmt.Print("\n| strategy | mean wait | longest | copies per job |\n|---|---|---|---|\n")
		for _, s := range ledgerStrategies {
			got := waitsOf(s.run(burstWorld(3000, 600, fleet...), 0), all)
			fmt.Printf("| %s | %.1f | %.0f | %.2f |\n", s.name, got.mean(), got.longest.Seconds(), got.copiesPerJob())
		}
	}
}

// On metrics that lag, the gate's jobs wait less than those of strategies without a ledger, and have fewer copies.
func TestLedgerShortensWaits(t *testing.T) {
	if testing.Short() {
		t.Skip("runs hundreds of jobs")
	}
	w := ledgerStrategies[0].run(burstWorld(500, 600, 1, 1, 2, 4, 8), 0)
	for _, p := range w.Problems {
		if p.Invariant == world.Drains {
			t.Error(p)
		}
	}
	got := waitsOf(w, all)
	for _, s := range ledgerStrategies[1:] {
		other := waitsOf(s.run(burstWorld(500, 600, 1, 1, 2, 4, 8), 0), all)
		t.Logf("the gate: %.1f s, %.2f copies; %s: %.1f s, %.2f copies", got.mean(), got.copiesPerJob(), s.name, other.mean(), other.copiesPerJob())
		if got.mean() > 0.9*other.mean() || got.copiesPerJob() > 0.8*other.copiesPerJob() {
			t.Errorf("want at most 90 %% of the wait and 80 %% of the copies of %s", s.name)
		}
	}
}

// BenchmarkTablesLag prints the table of operator/design/0201: what the age of metrics costs.
func BenchmarkTablesLag(b *testing.B) {
	for b.Loop() {
		fmt.Print("\n| mean run time | scrapes every 1 s | 15 s | 30 s |\n|---|---|---|---|\n")
		for _, mean := range []float64{60, 600, 3600} {
			fmt.Printf("| %.0f s |", mean)
			for _, scrapes := range []time.Duration{1, 15, 30} {
				spec := burstWorld(2000, mean, fleet...)
				spec.Settings.ScrapeInterval, spec.Settings.Gate.PeriodSeconds = scrapes*time.Second, int32(scrapes)
				fmt.Printf(" %.1f |", waitsOf(strategy{}.run(spec, 0), all).mean())
			}
			fmt.Println()
		}
	}
}
