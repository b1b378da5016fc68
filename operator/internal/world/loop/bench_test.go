//go:build !race

package loop

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"syscall"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/world"
)

var jobs = flag.Int("jobs", 2000, "number of jobs of the large world")

// BenchmarkLargeWorld runs a fleet of 8 clusters with 1,200 nodes of 8 devices. Jobs request 1, 2, 4 or 8 devices, one
// in ten has several pods, and they run for an hour on average. They use 85 % of the devices.
func BenchmarkLargeWorld(b *testing.B) {
	debug.SetGCPercent(400)
	for b.Loop() {
		began := cpuTime(b)
		w := Run(largeWorld(*jobs), Options{})
		seconds := (cpuTime(b) - began).Seconds()
		b.ReportMetric(w.Elapsed().Hours(), "virtual-h")
		b.ReportMetric(seconds, "s-CPU")
		b.ReportMetric(seconds*1e6/float64(*jobs), "us/job")
		waited, started := time.Duration(0), 0
		for _, r := range w.Runs() {
			if !r.Started.IsZero() {
				waited += r.Started.Sub(r.Submitted)
				started++
			}
		}
		b.ReportMetric(waited.Seconds()/float64(started), "s-wait/job")
		for _, p := range w.Problems {
			b.Error(p)
		}
	}
}

// cpuTime is the CPU time of this process, with that of the garbage collector.
func cpuTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func largeWorld(n int) world.Spec {
	const nodes, load, meanHours = 1200, 0.85, 1.0
	random := rand.New(rand.NewPCG(1, 2))
	s := world.Spec{Name: "large", Seed: 1, Settings: world.Settings{WorkerQPS: 500, CheckInterval: 5 * time.Minute, KeepsFinished: 5 * time.Minute, Length: 48 * time.Hour}}
	for i := range 8 {
		s.Clusters = append(s.Clusters, world.Cluster{Name: fmt.Sprint("cluster", i+1), Pools: []world.Pool{{Nodes: nodes, Devices: 8}}})
	}
	at, devices := 10.0, float64(8*nodes*8)
	for i := range n {
		j := world.Job{Name: fmt.Sprint("j", i), Devices: []int64{1, 1, 1, 1, 2, 2, 4, 8}[random.IntN(8)], At: time.Duration(at * float64(time.Second)), Namespace: []string{"team-a", "team-b", "team-c"}[random.IntN(3)]}
		if j.Pods = 1; random.IntN(10) == 0 {
			j.Pods = 2 + random.Int64N(7)
		}
		const sigma, most = 1.0, 8.0
		j.Duration = time.Duration(min(most, meanHours*math.Exp(random.NormFloat64()*sigma-sigma*sigma/2)) * float64(time.Hour))
		s.Jobs = append(s.Jobs, j)
		const meanDevices = 2.5 * 1.4
		at += random.ExpFloat64() * meanDevices * meanHours * 3600 / (load * devices)
	}
	return s
}
