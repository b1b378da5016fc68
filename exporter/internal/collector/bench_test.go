package collector

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// rack is a source of devices that report every field.
type rack struct {
	size  int           // default rackSize
	stall time.Duration // duration of each call
	calls atomic.Int64
}

// rackSize is the number of devices of 8 GPUs with 7 MIG instances each.
const rackSize = 56

func (r *rack) devices() int { return cmp.Or(r.size, rackSize) }

func rackUUID(i int) string {
	return fmt.Sprintf("GPU-%08x-0000-4000-8000-%012x", uint32(i)*2654435761, i)
}

func (r *rack) call() {
	r.calls.Add(1)
	time.Sleep(r.stall)
}

func (r *rack) Devices(context.Context) ([]device.Device, error) {
	r.call()
	out := make([]device.Device, r.devices())
	for i := range out {
		out[i] = device.Device{UUID: rackUUID(i), Index: i, Minor: fmt.Sprintf("nvidia%d", i), PCIBusID: fmt.Sprintf("00000000:%02X:00.0", i),
			Model: "NVIDIA H100 80GB HBM3", Driver: "580.95.05", MemoryMiB: 81559, ReportsXIDs: true, Links: []string{device.NVSwitch}}
	}
	return out, nil
}

func (r *rack) Read(_ context.Context, d device.Device) (device.Reading, error) {
	r.call()
	out := device.Reading{Time: time.Now()}
	for f := range device.FirstTPUField {
		out.Set(f, 1+float64(d.Index)/10000) // plausible for every field
	}
	out.Set(device.RowRemapFailure, 0)
	out.Set(device.VGPULicensed, 1)
	return out, nil
}

func (r *rack) XIDs() []device.XID { r.call(); return nil }
func (r *rack) Close() error       { return nil }

// rackKubelet allocates every device of a rack to a pod of its own.
type rackKubelet struct {
	fakeKubelet
	devices int
}

func (k *rackKubelet) GetAllocatableResources(context.Context, *podresources.AllocatableResourcesRequest) (*podresources.AllocatableResourcesResponse, error) {
	var ids []string
	for i := range k.devices {
		ids = append(ids, rackUUID(i))
	}
	return &podresources.AllocatableResourcesResponse{Devices: []*podresources.ContainerDevices{{ResourceName: "nvidia.com/gpu", DeviceIds: ids}}}, nil
}

// newLoadedCollector returns a collector of a rack after its first collection, and its
// handler with the metrics of the process.
func newLoadedCollector(b *testing.B, r *rack) (*Collector, http.Handler) {
	b.Helper()
	c, handler, _ := newNodeCollector(b, r, r.devices())
	return c, handler
}

// newNodeCollector returns the same for a node with a number of pods. The first ones hold a
// device each.
func newNodeCollector(b *testing.B, r *rack, pods int) (*Collector, http.Handler, *rackKubelet) {
	b.Helper()
	k := &rackKubelet{fakeKubelet{holdings: map[string][]string{}}, r.devices()}
	for i := range pods {
		k.holdings[fmt.Sprintf("team-%d/training-job-worker-%d/main", i%7, i)] = nil
		if i < r.devices() {
			k.holdings[fmt.Sprintf("team-%d/training-job-worker-%d/main", i%7, i)] = []string{rackUUID(i)}
		}
	}
	socket := filepath.Join(b.TempDir(), "k.sock")
	serveKubelet(b, k, socket)
	holders, err := podmap.New(socket, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = holders.Close() })
	c := New(Config{Node: "gpu-node-17.example.com", Interval: 100 * time.Millisecond, Log: slog.New(slog.DiscardHandler), Own: selfMetrics()}, holders, NamedSource{Source: r})
	if err := c.Collect(b.Context()); err != nil {
		b.Fatal(err)
	}
	return c, c.Handler(), k
}

// BenchmarkNode measures nodes of different sizes: the CPU time of a collection and a
// compressed scrape of it, the calls to the driver and to the kubelet, the size of a scrape and
// the heap. The requests of the fake kubelet are part of the CPU time.
func BenchmarkNode(b *testing.B) {
	for _, devices := range []int{8, 16, 56} {
		for _, pods := range []int{10, 110, 250} {
			b.Run(fmt.Sprintf("devices=%d/pods=%d", devices, pods), func(b *testing.B) { benchmarkNode(b, devices, pods) })
		}
	}
}

func benchmarkNode(b *testing.B, devices, pods int) {
	before := heapBytes()
	r := &rack{size: devices}
	c, handler, kubelet := newNodeCollector(b, r, pods)
	plain, compressed := scrapeSize(b, handler, "identity"), scrapeSize(b, handler, "gzip")
	var text strings.Builder
	if err := c.WriteText(&text); err != nil {
		b.Fatal(err)
	}
	series := 0
	for line := range strings.Lines(text.String()) {
		if !strings.HasPrefix(line, "#") {
			series++
		}
	}
	calls, lists, collections, cpu := r.calls.Load(), kubelet.lists.Load(), 0, cpuTime()
	for b.Loop() {
		if err := c.Collect(b.Context()); err != nil {
			b.Fatal(err)
		}
		scrapeSize(b, handler, "gzip")
		collections++
	}
	per := func(n int64) float64 { return float64(n) / float64(collections) }
	b.ReportMetric((cpuTime()-cpu).Seconds()*1000/float64(collections), "cpu-ms")
	b.ReportMetric(per(r.calls.Load()-calls), "driver-calls")
	b.ReportMetric(per(kubelet.lists.Load()-lists), "kubelet-lists")
	b.ReportMetric(float64(series), "series")
	b.ReportMetric(float64(plain)/1024, "KiB")
	b.ReportMetric(float64(compressed)/1024, "gzip-KiB")
	b.ReportMetric(float64(heapBytes()-before)/(1<<20), "heap-MiB")
	b.ReportMetric(0, "ns/op")
}

func heapBytes() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

func selfMetrics() *prometheus.Registry {
	own := prometheus.NewRegistry()
	own.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return own
}

var encodings = map[string]string{"plain": "identity", "gzip": "gzip"}

// sink is a scraper that only counts bytes.
type sink struct {
	header http.Header
	bytes  int
	status int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(status int)      { s.status = status }
func (s *sink) Write(b []byte) (int, error) { s.bytes += len(b); return len(b), nil }

// scrapeSize scrapes once and returns the size of the response.
func scrapeSize(b *testing.B, h http.Handler, encoding string) int {
	b.Helper()
	request, err := http.NewRequest(http.MethodGet, "/metrics", nil)
	if err != nil {
		b.Fatal(err)
	}
	request.Header.Set("Accept-Encoding", encoding)
	s := &sink{header: http.Header{}}
	h.ServeHTTP(s, request)
	if s.status != http.StatusOK && s.status != 0 {
		b.Fatalf("a scrape returns %d", s.status)
	}
	return s.bytes
}

// BenchmarkScrape measures a scrape of a collection that was scraped before, including the
// metrics of the process.
func BenchmarkScrape(b *testing.B) {
	for name, encoding := range encodings {
		b.Run(name, func(b *testing.B) {
			_, handler := newLoadedCollector(b, &rack{})
			size := scrapeSize(b, handler, encoding)
			b.ReportAllocs()
			for b.Loop() {
				scrapeSize(b, handler, encoding)
			}
			b.ReportMetric(float64(size), "bytes/scrape")
		})
	}
}

// republish accounts and renders the last readings again.
func republish(c *Collector) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.publish(time.Now())
}

// BenchmarkRender measures a collection without its calls to devices.
func BenchmarkRender(b *testing.B) {
	c, _ := newLoadedCollector(b, &rack{})
	b.ReportAllocs()
	for b.Loop() {
		republish(c)
	}
}

// BenchmarkTenScrapersWhileCallsStall measures ten scrapers in parallel while every call
// to the driver takes 50 ms and collections follow one another.
func BenchmarkTenScrapersWhileCallsStall(b *testing.B) {
	for name, encoding := range encodings {
		b.Run(name, func(b *testing.B) {
			r := &rack{}
			c, handler := newLoadedCollector(b, r)
			server := httptest.NewServer(handler)
			defer server.Close()
			r.stall = 50 * time.Millisecond
			ctx, stop := context.WithCancel(b.Context())
			collected := make(chan error)
			go func() { collected <- c.Run(ctx) }()
			took := make([]time.Duration, b.N)
			var next atomic.Int64
			var scrapers sync.WaitGroup
			b.ResetTimer()
			for range 10 {
				scrapers.Go(func() {
					for i := next.Add(1) - 1; i < int64(b.N); i = next.Add(1) - 1 {
						took[i] = fetch(b, server.URL+"/metrics", encoding)
					}
				})
			}
			scrapers.Wait()
			b.StopTimer()
			stop()
			if err := <-collected; err != nil {
				b.Error(err)
			}
			slices.Sort(took)
			b.ReportMetric(took[b.N/2].Seconds()*1000, "p50-ms")
			b.ReportMetric(took[b.N*99/100].Seconds()*1000, "p99-ms")
		})
	}
}

func fetch(b *testing.B, url, encoding string) time.Duration {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		b.Error(err)
		return 0
	}
	request.Header.Set("Accept-Encoding", encoding)
	start := time.Now()
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		b.Error(err)
		return 0
	}
	_, err = io.Copy(io.Discard, response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		b.Errorf("%s: %v", response.Status, err)
	}
	_ = response.Body.Close()
	return time.Since(start)
}

// BenchmarkDeviceCalls counts the calls to devices of a thousand scrapes and of a collection.
func BenchmarkDeviceCalls(b *testing.B) {
	r := &rack{}
	c, handler := newLoadedCollector(b, r)
	scrapes, collections := int64(0), int64(0)
	for b.Loop() {
		before := r.calls.Load()
		for range 1000 {
			scrapeSize(b, handler, "gzip")
		}
		scrapes += r.calls.Load() - before
		before = r.calls.Load()
		if err := c.Collect(b.Context()); err != nil {
			b.Fatal(err)
		}
		collections += r.calls.Load() - before
	}
	b.ReportMetric(float64(scrapes)/float64(b.N), "calls/1000-scrapes")
	b.ReportMetric(float64(collections)/float64(b.N), "calls/collection")
}

// naiveCollector builds every metric at each scrape, as most exporters do.
type naiveCollector []naiveSeries

type naiveSeries struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	value  float64
	values []string
}

func (naiveCollector) Describe(chan<- *prometheus.Desc) {}

func (n naiveCollector) Collect(metrics chan<- prometheus.Metric) {
	for _, s := range n {
		metrics <- prometheus.MustNewConstMetric(s.desc, s.kind, s.value, s.values...)
	}
}

// newNaiveHandler returns a handler that serves the metrics of c with naiveCollector.
func newNaiveHandler(b *testing.B, c *Collector) (h http.Handler, series int) {
	b.Helper()
	var text strings.Builder
	if err := c.WriteText(&text); err != nil {
		b.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text.String()))
	if err != nil {
		b.Fatal(err)
	}
	var n naiveCollector
	for _, f := range families {
		descs := map[string]*prometheus.Desc{}
		for _, m := range f.Metric {
			s := naiveSeries{kind: prometheus.GaugeValue, value: m.GetGauge().GetValue() + m.GetCounter().GetValue()}
			if m.Counter != nil {
				s.kind = prometheus.CounterValue
			}
			var names []string
			for _, l := range m.Label {
				names, s.values = append(names, l.GetName()), append(s.values, l.GetValue())
			}
			key := strings.Join(names, " ")
			if descs[key] == nil {
				descs[key] = prometheus.NewDesc(f.GetName(), f.GetHelp(), names, nil)
			}
			s.desc = descs[key]
			n = append(n, s)
		}
	}
	own := selfMetrics()
	own.MustRegister(n)
	return promhttp.InstrumentMetricHandler(own, promhttp.HandlerFor(own, promhttp.HandlerOpts{EnableOpenMetrics: true})), len(n)
}

// BenchmarkAgainstNaive compares the CPU time per scrape with a naive collector of the same
// series, in turns, and reports medians. The time of this collector includes accounting,
// rendering and encoding each collection.
func BenchmarkAgainstNaive(b *testing.B) {
	for name, encoding := range encodings {
		for _, perCollection := range []int{1, 2, 10} {
			b.Run(fmt.Sprintf("%s/%d-scrapes-per-collection", name, perCollection), func(b *testing.B) {
				c, handler := newLoadedCollector(b, &rack{})
				reference, series := newNaiveHandler(b, c)
				const scrapes = 40
				var ours, theirs, ratios []float64
				for b.Loop() {
					o := cpuMilliseconds(func() {
						for i := range scrapes {
							if i%perCollection == 0 {
								republish(c)
							}
							scrapeSize(b, handler, encoding)
						}
					})
					n := cpuMilliseconds(func() {
						for range scrapes {
							scrapeSize(b, reference, encoding)
						}
					})
					ours, theirs, ratios = append(ours, o/scrapes), append(theirs, n/scrapes), append(ratios, n/o)
				}
				b.ReportMetric(median(ours), "cpu-ms/scrape")
				b.ReportMetric(median(theirs), "naive-cpu-ms/scrape")
				b.ReportMetric(median(ratios), "times-less")
				b.ReportMetric(float64(series), "series")
			})
		}
	}
}

// cpuMilliseconds returns the CPU time that the process spends on f, including garbage
// collection.
func cpuMilliseconds(f func()) float64 {
	runtime.GC()
	before := cpuTime()
	f()
	return (cpuTime() - before).Seconds() * 1000
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}
