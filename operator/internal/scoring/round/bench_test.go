package round

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// BenchmarkClusters measures rounds of fleets of different sizes, apart from the requests: the
// CPU time of a round, the heap that its results keep and the heap that a round allocates.
func BenchmarkClusters(b *testing.B) {
	for _, clusters := range []int{20, 200, 1000, 10000} {
		for _, scores := range []int{4, 32} {
			b.Run(fmt.Sprintf("clusters=%d/scores=%d", clusters, scores), func(b *testing.B) { benchmarkRound(b, clusters, scores) })
		}
	}
}

func benchmarkRound(b *testing.B, clusters, scores int) {
	names, samples := make([]string, clusters), make([]query.Sample, clusters)
	for i := range names {
		names[i] = fmt.Sprintf("cluster-%05d", i)
		samples[i] = sample(names[i], float64(i%100))
	}
	source, queries := &fakeSource{responses: map[string]query.Result{}}, make([]string, scores)
	for i := range queries {
		queries[i] = fmt.Sprintf("score_%d", i)
		source.responses[queries[i]] = query.Result{Samples: samples}
	}
	req := newRequest(newSpec(queries...), source, names...)
	before := heapBytes()
	report := Run(b.Context(), req)
	req.Previous = report.Result
	kept := heapBytes() - before
	b.ReportAllocs()
	cpu, rounds := cpuSeconds(), 0
	for b.Loop() {
		req.Now = req.Now.Add(30 * time.Second)
		req.Previous = Run(b.Context(), req).Result
		rounds++
	}
	b.ReportMetric((cpuSeconds()-cpu)/float64(rounds)*1000, "cpu-ms/round")
	b.ReportMetric(float64(kept)/(1<<20), "kept-MiB")
	b.ReportMetric(float64(report.Sent), "queries/round")
	b.ReportMetric(0, "ns/op")
	runtime.KeepAlive(report)
}

func heapBytes() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}
