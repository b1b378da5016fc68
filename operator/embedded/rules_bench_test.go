package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/timestamp"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"

	"plimsoll.dev/plimsoll/operator/internal/metrics/promengine"
)

// BenchmarkRules measures one evaluation of all recording rules of a worker, for workers of
// different sizes. Each node has the eight simulated GPUs of the exporter, without pods.
func BenchmarkRules(b *testing.B) {
	exposition := exposeNode(b)
	for _, nodes := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) { benchmarkRules(b, exposition, nodes) })
	}
}

func benchmarkRules(b *testing.B, exposition string, nodes int) {
	before := heapMiB()
	db, err := tsdb.Open(b.TempDir(), slog.New(slog.DiscardHandler), nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	// Prometheus's default limits.
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 50_000_000, Timeout: 2 * time.Minute, Parser: parser.NewParser(parser.Options{})})
	recorder := promengine.NewRecorder(engine, tsdbStorage{db}, workerRules(b))
	at := time.Now()
	scrape := func() {
		app := db.AppenderV2(b.Context())
		for i := range nodes {
			target := Target{Cluster: "worker", Address: fmt.Sprintf("node-%d", i)}
			err := eachSample([]byte(renameNode(exposition, i)), target, func(series labels.Labels, value float64) error {
				return appendSample(app, series, at, value)
			})
			if err != nil {
				b.Fatal(err)
			}
		}
		if err := app.Commit(); err != nil {
			b.Fatal(err)
		}
	}
	evaluate := func() {
		if err := recorder.Evaluate(b.Context(), at); err != nil {
			b.Fatal(err)
		}
	}
	scrape()
	scraped, heapScraped := db.Head().NumSeries(), heapMiB()-before
	evaluate()
	evaluated, heapEvaluated := db.Head().NumSeries(), heapMiB()-before
	cpu, n := time.Duration(0), 0
	for b.Loop() {
		at = at.Add(30 * time.Second)
		scrape()
		start := cpuTime()
		evaluate()
		cpu += cpuTime() - start
		n++
	}
	b.ReportMetric(cpu.Seconds()/float64(n), "cpu-s/evaluation")
	b.ReportMetric(float64(scraped), "series-exporters")
	b.ReportMetric(float64(evaluated-scraped), "series-rules")
	b.ReportMetric(heapScraped, "heap-MiB-exporters")
	b.ReportMetric(heapEvaluated-heapScraped, "heap-MiB-rules")
	b.ReportMetric(0, "ns/op")
}

// tsdbStorage stores the samples of recording rules in the database of a Prometheus.
type tsdbStorage struct{ *tsdb.DB }

// Store implements promengine.Storage.
func (s tsdbStorage) Store(ctx context.Context, at time.Time, samples []promengine.Sample) error {
	app := s.AppenderV2(ctx)
	for _, sample := range samples {
		if err := appendSample(app, sample.Series, at, sample.Value); err != nil {
			return errors.Join(err, app.Rollback())
		}
	}
	return app.Commit()
}

func appendSample(app storage.AppenderV2, series labels.Labels, at time.Time, value float64) error {
	_, err := app.Append(0, series, 0, timestamp.FromTime(at), value, nil, nil, storage.AOptions{})
	return err
}

func workerRules(b *testing.B) []promengine.Rule {
	b.Helper()
	var rules []promengine.Rule
	for _, name := range []string{"nodes", "devices", "owners", "queues"} {
		file := filepath.Join("..", "..", "rules", "recording-"+name+".yaml")
		content, err := os.ReadFile(file)
		if err != nil {
			b.Fatal(err)
		}
		decoded, err := promengine.DecodeRules(file, content)
		if err != nil {
			b.Fatal(err)
		}
		rules = append(rules, decoded...)
	}
	return rules
}

// Series that the exporter reads from the kubelet, and those of kube-state-metrics.
const nodeSeries = `
plimsoll_node_devices{node="node-0",resource="nvidia.com/gpu",model="NVIDIA-H100-80GB-HBM3",state="free"} 2
plimsoll_node_devices{node="node-0",resource="nvidia.com/gpu",model="NVIDIA-H100-80GB-HBM3",state="allocatable"} 8
plimsoll_node_devices{node="node-0",resource="nvidia.com/gpu",model="NVIDIA-H100-80GB-HBM3",state="unhealthy"} 0
kube_node_status_condition{node="node-0",condition="Ready",status="true"} 1
kube_node_spec_unschedulable{node="node-0"} 0
kube_node_status_capacity{node="node-0",resource="nvidia_com_gpu"} 8
`

// exposeNode returns the metrics of one simulated node.
func exposeNode(b *testing.B) string {
	b.Helper()
	bin := filepath.Join(b.TempDir(), "plimsoll-exporter")
	build := exec.Command("go", "build", "-o", bin, "../../exporter/cmd/plimsoll-exporter")
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	out, err := exec.Command(bin, "--source=sim", "--once", "--node-name=node-0").Output()
	if err != nil {
		b.Fatal(err)
	}
	return string(out) + nodeSeries
}

var deviceID = regexp.MustCompile(`GPU-[0-9a-f]{8}`)

// renameNode returns the exposition of another node with other devices.
func renameNode(exposition string, i int) string {
	text := strings.ReplaceAll(exposition, "node-0", fmt.Sprintf("node-%d", i))
	return deviceID.ReplaceAllStringFunc(text, func(id string) string { return fmt.Sprintf("%s%06x", id[:6], i*0x11+int(id[11])) })
}

func heapMiB() float64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc) / (1 << 20)
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
