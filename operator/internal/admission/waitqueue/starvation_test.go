package waitqueue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// starvationFleet is three clusters with 72 devices.
var starvationFleet = []int{2, 3, 4}

// starvationJobs returns jobs that use load of the devices. Jobs with eight devices are a
// quarter of the load or less, run for half an hour, and arrive every 25 minutes; the others
// have one, two or four devices and run for ten minutes.
func starvationJobs(load float64) []*simJob {
	random := rand.New(rand.NewPCG(simSeed, uint64(load*100)))
	const devices, bigEvery, bigSeconds, smallSeconds = 72, 1500, 1800, 600
	sizes := []int64{1, 1, 1, 1, 1, 1, 2, 2, 4}
	const meanSize = 14.0 / 9
	smallLoad := load - 8*bigSeconds/float64(bigEvery)/devices
	every := meanSize * smallSeconds / (smallLoad * devices)
	var jobs []*simJob
	add := func(at float64, size int64, mean float64) {
		jobs = append(jobs, &simJob{name: types.NamespacedName{Namespace: "team-a", Name: fmt.Sprintf("job-%05d", len(jobs))}, devices: size,
			arrives: int(at), duration: 30 + int(random.ExpFloat64()*(mean-30)), started: -1})
	}
	big := float64(bigEvery)
	for at := 0.0; at < simSeconds; at += random.ExpFloat64() * every {
		for ; big <= at; big += bigEvery {
			add(big, 8, bigSeconds)
		}
		add(at, sizes[random.IntN(len(sizes))], smallSeconds)
	}
	return jobs
}

// waits are the waiting times in seconds of jobs that arrived in the first simHours hours. A job
// that did not start waits until the end of the simulation, an hour later.
type waits struct{ jobs, neverStarted, total, longest int }

func waitsOf(jobs []*simJob, big bool) waits {
	var w waits
	for _, j := range jobs {
		if (j.devices == simNodeDevices) != big || j.arrives >= simHours*3600 {
			continue
		}
		end := j.started
		if end < 0 {
			end = simSeconds
			w.neverStarted++
		}
		w.jobs++
		w.total += end - j.arrives
		w.longest = max(w.longest, end-j.arrives)
	}
	return w
}

func (w waits) String() string {
	return fmt.Sprintf("%d of %d | %d | %d", w.neverStarted, w.jobs, w.total/max(w.jobs, 1), w.longest)
}

type starvationCase struct {
	name     string
	strategy func() simStrategy
}

func enforce(after time.Duration, durations bool) func() simStrategy {
	return func() simStrategy { return newGateStrategy(v1alpha1.HoldEnforce, after, 4*time.Hour, true, durations) }
}

var (
	withoutOrder = starvationCase{"gate without order and hold", func() simStrategy { return newGateStrategy(v1alpha1.HoldOff, 0, 0, false, false) }}
	withDefaults = starvationCase{"gate, hold after 300 s", enforce(300*time.Second, false)}
)

var starvationCases = []starvationCase{
	{"FIFO", func() simStrategy { return &fifoStrategy{} }},
	{"Kueue alone", func() simStrategy { return &kueueStrategy{} }},
	withoutOrder,
	{"gate, hold off", func() simStrategy { return newGateStrategy(v1alpha1.HoldOff, 0, 4*time.Hour, true, false) }},
	{"gate, hold after 0 s", enforce(0, false)},
	{"gate, hold after 60 s", enforce(time.Minute, false)},
	withDefaults,
	{"gate, hold after 900 s", enforce(900*time.Second, false)},
	{"gate, hold after 300 s, known durations", enforce(300*time.Second, true)},
}

// BenchmarkStarvation prints the table of operator/docs/order.md. Run it once:
//
//	go test ./operator/internal/admission/waitqueue -run '^$' -bench Starvation -benchtime 1x
func BenchmarkStarvation(b *testing.B) {
	for b.Loop() {
		var table strings.Builder
		table.WriteString("\n| load | strategy | 8 devices: never started | mean wait | longest | others: never started | mean wait | longest |\n|---|---|---|---|---|---|---|---|\n")
		for _, load := range []float64{0.85, 0.95, 1.1} {
			for _, c := range starvationCases {
				jobs := starvationJobs(load)
				simulate(starvationFleet, jobs, simSeconds, c.strategy())
				fmt.Fprintf(&table, "| %.2f | %s | %s | %s |\n", load, c.name, waitsOf(jobs, true), waitsOf(jobs, false))
			}
		}
		fmt.Println(table.String())
	}
}

// One node with eight devices, forty jobs of priority 1 with one device, and one job of priority
// 1000 with eight. Sixteen small jobs are submitted before it, and 24 later.
func TestUrgentJobDoesNotStartLast(t *testing.T) {
	trace := func() (jobs []*simJob, urgent *simJob) {
		for i := range 40 {
			jobs = append(jobs, &simJob{name: types.NamespacedName{Namespace: "team-a", Name: fmt.Sprintf("small-%02d", i)}, priority: 1, devices: 1,
				arrives: i * 20, duration: 300 + 7*i, started: -1})
		}
		urgent = &simJob{name: types.NamespacedName{Namespace: "team-a", Name: "urgent"}, priority: 1000, devices: 8, arrives: 310, duration: 300, started: -1}
		return slices.Insert(jobs, 16, urgent), urgent
	}
	startedBefore := func(c starvationCase) (n int) {
		jobs, urgent := trace()
		simulate([]int{1}, jobs, simSeconds, c.strategy())
		if urgent.started < 0 {
			t.Fatalf("%s: the urgent job never starts", c.name)
		}
		for _, j := range jobs {
			if j != urgent && j.started >= 0 && j.started < urgent.started {
				n++
			}
		}
		return n
	}
	if n := startedBefore(withoutOrder); n < 35 {
		t.Errorf("without order and hold %d small jobs start before the urgent one: the trace does not show starvation", n)
	}
	n := startedBefore(withDefaults)
	t.Logf("%d of 40 small jobs start before the urgent one", n)
	if n > 24 {
		t.Errorf("%d small jobs start before the urgent one, want at most 24", n)
	}
}
