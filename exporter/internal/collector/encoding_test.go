package collector

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"google.golang.org/protobuf/proto"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

// odd families: every kind of number, and texts that need escaping.
var odd = []*family{
	{name: "a_ratio", help: "A \\ \"quoted\"\nhelp.", kind: gauge, series: func() (out []series) {
		for i, v := range []float64{0, 1, -1, 0.1, 42, 1e6, 1e21, 123456789, 1e-9, math.Pi, math.MaxFloat64, math.NaN(), math.Inf(1), math.Inf(-1)} {
			out = append(out, series{text([]label{{"n", strconv.Itoa(i)}, {"odd", "a\"b\\c\nd é, {}=#"}}), v})
		}
		return out
	}()},
	{name: "b_total", help: "Counts.", kind: counter, series: []series{{text([]label{{"n", "0"}}), 3}}},
	{name: "c_bare", help: "No labels.", kind: gauge, series: []series{{text(nil), 7}}},
}

// asPrometheus encodes the families with Prometheus' own library.
func asPrometheus(t *testing.T, families []*family, format expfmt.Format) string {
	t.Helper()
	var b bytes.Buffer
	encoder := expfmt.NewEncoder(&b, format)
	for _, f := range families {
		out := &dto.MetricFamily{Name: &f.name, Help: &f.help, Type: f.kind.Enum()}
		for i, s := range f.series {
			m := &dto.Metric{}
			if f.name == "a_ratio" {
				m.Label = []*dto.LabelPair{{Name: proto.String("n"), Value: proto.String(strconv.Itoa(i))}, {Name: proto.String("odd"), Value: proto.String("a\"b\\c\nd é, {}=#")}}
			}
			if f.name == "b_total" {
				m.Label = []*dto.LabelPair{{Name: proto.String("n"), Value: proto.String(strconv.Itoa(i))}}
			}
			if f.kind == counter {
				m.Counter = &dto.Counter{Value: &s.value}
			} else {
				m.Gauge = &dto.Gauge{Value: &s.value}
			}
			out.Metric = append(out.Metric, m)
		}
		if err := encoder.Encode(out); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func TestBothFormatsAreWhatPrometheusLibraryWrites(t *testing.T) {
	for format, d := range map[expfmt.Format]*dialect{expfmt.NewFormat(expfmt.TypeTextPlain): plainText, expfmt.NewFormat(expfmt.TypeOpenMetrics): openMetrics} {
		var got bytes.Buffer
		d.write(&got, odd)
		if diff := cmp.Diff(asPrometheus(t, odd, format), got.String()); diff != "" {
			t.Errorf("%s:\n%s", format, diff)
		}
	}
}

// In OpenMetrics a counter would be renamed to …_total, and every panel over
// dcgm-exporter's name would be empty.
func TestACounterOfDCGMExporterKeepsItsNameInOpenMetrics(t *testing.T) {
	var got bytes.Buffer
	openMetrics.write(&got, []*family{{name: "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", help: "Retries.", kind: counter, series: []series{{`{gpu="0"}`, 2}}}})
	want := "# HELP DCGM_FI_DEV_PCIE_REPLAY_COUNTER Retries.\n# TYPE DCGM_FI_DEV_PCIE_REPLAY_COUNTER unknown\nDCGM_FI_DEV_PCIE_REPLAY_COUNTER{gpu=\"0\"} 2.0\n"
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Error(diff)
	}
}

func TestBytesThatAreNoTextDoNotCostTheScrape(t *testing.T) {
	if got := text([]label{{"modelName", "Tesla\xff T4"}}); got != "{modelName=\"Tesla\uFFFD T4\"}" {
		t.Errorf("%s", got)
	}
}

func TestASeriesThatComesTwiceIsExposedOnceAndNamed(t *testing.T) {
	families := []*family{{name: "a", series: []series{{`{x="1"}`, 1}, {`{x="2"}`, 2}, {`{x="1"}`, 3}}}, {name: "b", series: []series{{`{x="1"}`, 1}}}}
	twice := unique(families)
	if diff := cmp.Diff([]string{"a"}, twice); diff != "" {
		t.Error(diff)
	}
	if len(families[0].series) != 2 || families[0].series[0].value != 1 || len(families[1].series) != 1 {
		t.Errorf("%v %v", families[0].series, families[1].series)
	}
}

func (f *fixture) get(accept, encoding string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	request.Header.Set("Accept", accept)
	request.Header.Set("Accept-Encoding", encoding)
	response := httptest.NewRecorder()
	f.Handler().ServeHTTP(response, request)
	return response
}

func TestFormatAndEncodingAreNegotiated(t *testing.T) {
	f := setup(t)
	f.collect(t)
	for _, c := range []struct{ accept, encoding, format, compressed string }{
		{"", "", "text/plain; version=0.0.4; charset=utf-8", ""},
		{"*/*", "gzip, deflate", "text/plain; version=0.0.4; charset=utf-8", "gzip"},
		{"application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5", "zstd,gzip;q=0.5", "application/openmetrics-text; version=1.0.0; charset=utf-8", "gzip"},
		{"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited", "gzip;q=0", "text/plain; version=0.0.4; charset=utf-8", ""},
		{"text/plain", "identity", "text/plain; version=0.0.4; charset=utf-8", ""},
		{"text/plain", "gzip;q=x", "text/plain; version=0.0.4; charset=utf-8", ""},
	} {
		response := f.get(c.accept, c.encoding)
		if got := response.Header().Get("Content-Type"); !strings.HasPrefix(got, c.format) {
			t.Errorf("Accept %q: %s", c.accept, got)
		}
		if got := response.Header().Get("Content-Encoding"); got != c.compressed {
			t.Errorf("Accept-Encoding %q: %q", c.encoding, got)
		}
		if got := response.Header().Get("Content-Length"); got != strconv.Itoa(response.Body.Len()) {
			t.Errorf("Content-Length %s of %d bytes", got, response.Body.Len())
		}
	}
}

// Some clients read only the first member of a gzip stream: there is one.
func TestGzipIsOneStreamWithTheSameText(t *testing.T) {
	f := setup(t)
	f.collect(t)
	for _, accept := range []string{"text/plain", "application/openmetrics-text;version=1.0.0"} {
		compressed := f.get(accept, "gzip").Body
		reader, err := gzip.NewReader(compressed)
		if err != nil {
			t.Fatal(err)
		}
		reader.Multistream(false)
		got, err := io.ReadAll(reader)
		if err != nil {
			t.Fatalf("%s: %v", accept, err)
		}
		if compressed.Len() != 0 {
			t.Errorf("%s: %d bytes after the stream's end", accept, compressed.Len())
		}
		want := f.get(accept, "").Body.String()
		if diff := cmp.Diff(want, string(got)); diff != "" || !strings.Contains(want, "DCGM_FI_DEV_GPU_UTIL{") || !strings.Contains(want, "promhttp_metric_handler_requests_total{") {
			t.Errorf("%s: %s", accept, diff)
		}
	}
}

// wave tells the number of the collection as every device's utilization.
type wave struct {
	box
	n float64
}

func (w *wave) Devices(ctx context.Context) ([]device.Device, error) {
	w.n++
	return w.box.Devices(ctx)
}

func (w *wave) Read(context.Context, device.Device) (device.Reading, error) {
	var r device.Reading
	r.Set(device.GPUUtil, w.n)
	return r, nil
}

func TestAScrapeIsOfOneCollection(t *testing.T) {
	f := setup(t)
	f.vendors[0].Source, f.cfg.Deadline = &wave{}, time.Minute
	f.collect(t)
	ctx, stop := context.WithCancel(t.Context())
	var scrapers sync.WaitGroup
	for i := range 10 {
		scrapers.Go(func() {
			for ctx.Err() == nil {
				response := f.get("text/plain", []string{"", "gzip"}[i%2])
				body, seen := io.Reader(response.Body), map[string]bool{}
				if i%2 == 1 {
					var err error
					if body, err = gzip.NewReader(body); err != nil {
						t.Error(err)
						return
					}
				}
				all, err := io.ReadAll(body)
				for _, m := range regexp.MustCompile(`(?m)^DCGM_FI_DEV_GPU_UTIL.* (\S+)$`).FindAllStringSubmatch(string(all), -1) {
					seen[m[1]] = true
				}
				if err != nil || len(seen) != 1 {
					t.Errorf("a scrape of collections %v: %v", seen, err)
				}
			}
		})
	}
	for range 50 {
		if err := f.Collect(t.Context()); err != nil {
			t.Error(err)
		}
	}
	stop()
	scrapers.Wait()
}

// slow is a scraper that does not read until it is told to.
type slow struct {
	*httptest.ResponseRecorder
	writing chan<- bool
	read    <-chan struct{}
}

func (s slow) Write(b []byte) (int, error) {
	s.writing <- true
	<-s.read
	return s.ResponseRecorder.Write(b)
}

func TestScrapersThatHangAreNotJoinedByMore(t *testing.T) {
	f := setup(t)
	f.collect(t)
	handler := f.Handler()
	writing, read := make(chan bool, 3*maxInFlight), make(chan struct{})
	var scrapers sync.WaitGroup
	scrape := func(w http.ResponseWriter) {
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	}
	for range maxInFlight {
		scrapers.Go(func() { scrape(slow{httptest.NewRecorder(), writing, read}) })
	}
	for range maxInFlight {
		<-writing
	}
	more := httptest.NewRecorder()
	scrape(more)
	if more.Code != http.StatusServiceUnavailable || !strings.Contains(more.Body.String(), "try again later") {
		t.Errorf("%d %s", more.Code, more.Body)
	}
	close(read)
	scrapers.Wait()
	if again := f.get("", ""); again.Code != http.StatusOK {
		t.Errorf("%d although nobody scrapes", again.Code)
	}
}
