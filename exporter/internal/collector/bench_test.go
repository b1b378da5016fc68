package collector

import (
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

// rack is 8 devices in 7 instances each that tell everything; a pod holds each.
type rack struct {
	stall time.Duration // of each call
	calls atomic.Int64
}

const rackSize = 56

func rackUUID(i int) string { return fmt.Sprintf("GPU-%08x-0000-4000-8000-%012x", i*2654435761, i) }

func (r *rack) call() {
	r.calls.Add(1)
	time.Sleep(r.stall)
}

func (r *rack) Devices(context.Context) ([]device.Device, error) {
	r.call()
	out := make([]device.Device, rackSize)
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
		out.Set(f, 1+float64(d.Index)/10000) // plausible as whatever it is
	}
	out.Set(device.RowRemapFailure, 0)
	out.Set(device.VGPULicensed, 1)
	return out, nil
}

func (r *rack) XIDs() []device.XID { r.call(); return nil }
func (r *rack) Close() error       { return nil }

// rackKubelet hands every device to a pod of its own.
type rackKubelet struct{ kubelet }

func (*rackKubelet) GetAllocatableResources(context.Context, *podresources.AllocatableResourcesRequest) (*podresources.AllocatableResourcesResponse, error) {
	var ids []string
	for i := range rackSize {
		ids = append(ids, rackUUID(i))
	}
	return &podresources.AllocatableResourcesResponse{Devices: []*podresources.ContainerDevices{{ResourceName: "nvidia.com/gpu", DeviceIds: ids}}}, nil
}

// loaded collector over a rack, after its first collection, and its handler with
// the process's own metrics.
func loaded(b *testing.B, r *rack) (*Collector, http.Handler) {
	b.Helper()
	k := &rackKubelet{kubelet{held: map[string][]string{}}}
	for i := range rackSize {
		k.held[fmt.Sprintf("team-%d/training-job-worker-%d/main", i%7, i)] = []string{rackUUID(i)}
	}
	socket := filepath.Join(b.TempDir(), "k.sock")
	serveKubelet(b, k, socket)
	pods, err := podmap.New(socket, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = pods.Close() })
	c := New(Config{Node: "gpu-node-17.example.com", Interval: 100 * time.Millisecond, Log: slog.New(slog.DiscardHandler), Own: selfMetrics()}, r, pods)
	if err := c.Collect(b.Context()); err != nil {
		b.Fatal(err)
	}
	return c, c.Handler()
}

func selfMetrics() *prometheus.Registry {
	own := prometheus.NewRegistry()
	own.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return own
}

var encodings = map[string]string{"plain": "identity", "gzip": "gzip"}

// sink is a scraper that only counts.
type sink struct {
	header http.Header
	bytes  int
	status int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(status int)      { s.status = status }
func (s *sink) Write(b []byte) (int, error) { s.bytes += len(b); return len(b), nil }

func ask(b *testing.B, h http.Handler, encoding string) int {
	b.Helper()
	request, err := http.NewRequest(http.MethodGet, "/metrics", http.NoBody)
	if err != nil {
		b.Fatal(err)
	}
	request.Header.Set("Accept-Encoding", encoding)
	s := &sink{header: http.Header{}}
	h.ServeHTTP(s, request)
	if s.status != http.StatusOK && s.status != 0 {
		b.Fatalf("a scrape answers %d", s.status)
	}
	return s.bytes
}

// A scrape of a collection that another has scraped before, self-metrics included.
func BenchmarkScrape(b *testing.B) {
	for name, encoding := range encodings {
		b.Run(name, func(b *testing.B) {
			_, handler := loaded(b, &rack{})
			size := ask(b, handler, encoding)
			b.ReportAllocs()
			for b.Loop() {
				ask(b, handler, encoding)
			}
			b.ReportMetric(float64(size), "bytes/scrape")
		})
	}
}

// republish what was read before.
func republish(c *Collector) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.publish(time.Now())
}

// What a collection costs beside its calls to devices: labels, values, checks.
func BenchmarkRender(b *testing.B) {
	c, _ := loaded(b, &rack{})
	b.ReportAllocs()
	for b.Loop() {
		republish(c)
	}
}

// Ten scrapers, each asking again as soon as it is answered, while every call to
// the driver takes 50 ms and collections follow one another.
func BenchmarkTenScrapersWhileCallsStall(b *testing.B) {
	for name, encoding := range encodings {
		b.Run(name, func(b *testing.B) {
			r := &rack{}
			c, handler := loaded(b, r)
			server := httptest.NewServer(handler)
			defer server.Close()
			r.stall = 50 * time.Millisecond
			ctx, stop := context.WithCancel(b.Context())
			collected := make(chan struct{})
			go func() { defer close(collected); c.Run(ctx) }()
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
			<-collected
			slices.Sort(took)
			b.ReportMetric(took[b.N/2].Seconds()*1000, "p50-ms")
			b.ReportMetric(took[b.N*99/100].Seconds()*1000, "p99-ms")
		})
	}
}

func fetch(b *testing.B, url, encoding string) time.Duration {
	request, err := http.NewRequest(http.MethodGet, url, http.NoBody)
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

// Device calls, counted: those of a thousand scrapes, and those of a collection.
func BenchmarkDeviceCalls(b *testing.B) {
	r := &rack{}
	c, handler := loaded(b, r)
	scrapes, collections := int64(0), int64(0)
	for b.Loop() {
		before := r.calls.Load()
		for range 1000 {
			ask(b, handler, "gzip")
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

// naive builds every metric at each scrape, as most exporters do.
type naive []naiveSeries

type naiveSeries struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	value  float64
	values []string
}

func (naive) Describe(chan<- *prometheus.Desc) {}

func (n naive) Collect(metrics chan<- prometheus.Metric) {
	for _, s := range n {
		metrics <- prometheus.MustNewConstMetric(s.desc, s.kind, s.value, s.values...)
	}
}

// naively exposes what c does.
func naively(b *testing.B, c *Collector) (h http.Handler, series int) {
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
	var n naive
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

// CPU per scrape against a naive collector over the same series, in turns; the
// cost of rendering and encoding each collection is in ours. Medians of pairs.
func BenchmarkAgainstNaive(b *testing.B) {
	for name, encoding := range encodings {
		for _, perCollection := range []int{1, 2, 10} {
			b.Run(fmt.Sprintf("%s/%d-scrapes-per-collection", name, perCollection), func(b *testing.B) {
				c, handler := loaded(b, &rack{})
				reference, series := naively(b, c)
				const scrapes = 40
				var ours, theirs, ratios []float64
				for b.Loop() {
					o := cpu(func() {
						for i := range scrapes {
							if i%perCollection == 0 {
								republish(c)
							}
							ask(b, handler, encoding)
						}
					})
					n := cpu(func() {
						for range scrapes {
							ask(b, reference, encoding)
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

// cpu in milliseconds that the process spends on f, and on collecting garbage meanwhile.
func cpu(f func()) float64 {
	runtime.GC()
	before := spent()
	f()
	return (spent() - before).Seconds() * 1000
}

func spent() time.Duration {
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
