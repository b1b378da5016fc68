package collector

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"

	"plimsoll.dev/plimsoll/exporter/internal/device"
)

func TestHandlerNegotiatesFormatAndEncoding(t *testing.T) {
	f := setup(t)
	f.collect(t)
	for _, tc := range []struct{ accept, encoding, format, compressed string }{
		{"", "", "text/plain; version=0.0.4; charset=utf-8", ""},
		{"*/*", "gzip, deflate", "text/plain; version=0.0.4; charset=utf-8", "gzip"},
		{"application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5", "zstd,gzip;q=0.5", "application/openmetrics-text; version=1.0.0; charset=utf-8", "gzip"},
		{"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited", "gzip;q=0", "text/plain; version=0.0.4; charset=utf-8", ""},
		{"text/plain", "identity", "text/plain; version=0.0.4; charset=utf-8", ""},
		{"text/plain", "GZIP", "text/plain; version=0.0.4; charset=utf-8", "gzip"},
		{"text/plain", "gzip;Q=0", "text/plain; version=0.0.4; charset=utf-8", ""},
		{"text/plain", "gzip; q=0.000", "text/plain; version=0.0.4; charset=utf-8", ""},
		{"text/plain", "br, gzip ; q=0.001", "text/plain; version=0.0.4; charset=utf-8", "gzip"},
		{"text/plain", "gzip;q=NaN", "text/plain; version=0.0.4; charset=utf-8", ""},
		{"text/plain", "gzipped, x-gzip-2", "text/plain; version=0.0.4; charset=utf-8", ""},
		{"no/such;;;q==, \"", ",;,", "text/plain; version=0.0.4; charset=utf-8", ""},
		{"application/openmetrics-text;version=9.9.9", "", "text/plain; version=0.0.4; charset=utf-8", ""},
		{"text/plain", "gzip;q=x", "text/plain; version=0.0.4; charset=utf-8", ""},
		{"application/openmetrics-text;version=1.0.0," + strings.Repeat("*;c=d,", 1000), "", "text/plain; version=0.0.4; charset=utf-8", ""},
	} {
		t.Run(fmt.Sprintf("%.100s %s", tc.accept, tc.encoding), func(t *testing.T) {
			response := f.get(tc.accept, tc.encoding)
			if got := response.Header().Get("Content-Type"); !strings.HasPrefix(got, tc.format) {
				t.Errorf("Accept %.100q: %s", tc.accept, got)
			}
			if got := response.Header().Get("Content-Encoding"); got != tc.compressed {
				t.Errorf("Accept-Encoding %q: %q", tc.encoding, got)
			}
			if got := response.Header().Get("Content-Length"); got != strconv.Itoa(response.Body.Len()) {
				t.Errorf("Content-Length %s of %d bytes", got, response.Body.Len())
			}
		})
	}
}

func TestHandlerReadsAllHeaders(t *testing.T) {
	f := setup(t)
	f.collect(t)
	request := httptest.NewRequest(http.MethodHead, "/metrics", nil)
	request.Header["Accept-Encoding"] = []string{"br", "gzip"}
	response := httptest.NewRecorder()
	f.Handler().ServeHTTP(response, request)
	if got := response.Header().Get("Content-Encoding"); got != "gzip" {
		t.Errorf("the second header is ignored: %q", got)
	}
}

// Some clients read only the first member of a gzip stream, so there must be exactly one.
func TestHandlerGzipIsOneStream(t *testing.T) {
	f := setup(t)
	f.cfg.CountScrapes = true
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
			t.Errorf("%s: %d bytes after the end of the stream", accept, compressed.Len())
		}
		want := f.get(accept, "").Body.String()
		if diff := cmp.Diff(want, string(got)); diff != "" || !strings.Contains(want, "DCGM_FI_DEV_GPU_UTIL{") || !strings.Contains(want, "promhttp_metric_handler_requests_total{") {
			t.Errorf("%s: %s", accept, diff)
		}
	}
}

// countingSource reports the number of the collection as the utilization of every device.
type countingSource struct {
	fakeSource
	n float64
}

func (s *countingSource) Devices(ctx context.Context) ([]device.Device, error) {
	s.n++
	return s.fakeSource.Devices(ctx)
}

func (s *countingSource) Read(context.Context, device.Device) (device.Reading, error) {
	var r device.Reading
	r.Set(device.GPUUtil, s.n)
	return r, nil
}

func TestScrapeIsOfOneCollection(t *testing.T) {
	f := setup(t)
	f.vendors[0].Source = &countingSource{}
	f.collect(t)
	ctx, stop := context.WithCancel(t.Context())
	var scrapers sync.WaitGroup
	for i := range 4 {
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
	for range 25 {
		if err := f.Collect(t.Context()); err != nil {
			t.Error(err)
		}
	}
	stop()
	scrapers.Wait()
}

// blockedWriter is a scraper that reads nothing until read is closed.
type blockedWriter struct {
	*httptest.ResponseRecorder
	writing chan<- bool
	read    <-chan struct{}
}

func (w blockedWriter) Write(b []byte) (int, error) {
	w.writing <- true
	<-w.read
	return w.ResponseRecorder.Write(b)
}

// Clients that read slowly, such as any pod of the cluster, do not end the scrapes of Prometheus.
func TestHandlerServesBesideSlowReaders(t *testing.T) {
	f := setup(t)
	f.cfg.MaxScrapes = 2
	f.collect(t)
	handler := f.Handler()
	writing, read := make(chan bool, 3*unreadPerScrape*f.cfg.MaxScrapes), make(chan struct{})
	var scrapers sync.WaitGroup
	scrape := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return w
	}
	readSlowly := func() {
		scrapers.Go(func() {
			handler.ServeHTTP(blockedWriter{httptest.NewRecorder(), writing, read}, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		})
		<-writing
	}
	for range unreadPerScrape*f.cfg.MaxScrapes - 1 {
		readSlowly()
	}
	if got := scrape(); got.Code != http.StatusOK || got.Body.Len() == 0 {
		t.Errorf("%d beside slow readers: %s", got.Code, got.Body)
	}
	readSlowly()
	if got := scrape(); got.Code != http.StatusServiceUnavailable || !strings.Contains(got.Body.String(), "try again later") {
		t.Errorf("%d without a limit of slow readers", got.Code)
	}
	close(read)
	scrapers.Wait()
	if got := scrape(); got.Code != http.StatusOK {
		t.Errorf("%d without any scrape in progress", got.Code)
	}
}

func TestHandlerLimitsEncoding(t *testing.T) {
	f := setup(t)
	f.cfg.MaxScrapes = 2
	f.collect(t)
	encoding, encoded := make(chan bool), make(chan struct{})
	f.exposition.Store(&exposition{encoded: map[encodingKey]func() []byte{{plainText, false}: func() []byte {
		encoding <- true
		<-encoded
		return []byte("text")
	}}})
	handler := f.Handler()
	var scrapers sync.WaitGroup
	for range f.cfg.MaxScrapes {
		scrapers.Go(func() {
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", nil))
		})
		<-encoding
	}
	more := httptest.NewRecorder()
	handler.ServeHTTP(more, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if more.Code != http.StatusServiceUnavailable || !strings.Contains(more.Body.String(), "try again later") {
		t.Errorf("%d %s", more.Code, more.Body)
	}
	close(encoded)
	scrapers.Wait()
}

func TestHandlerServesValidOpenMetrics(t *testing.T) {
	f := setup(t)
	f.kubelet.holdings[`team-a/tr"a\in/main`] = []string{uuid(0)}
	_, plain := f.collect(t)
	request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	request.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	response := httptest.NewRecorder()
	f.Handler().ServeHTTP(response, request)
	parser := textparse.NewOpenMetricsParser(response.Body.Bytes(), labels.NewSymbolTable())
	series, pods := 0, map[string]bool{}
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("after %d series: %v", series, err)
		}
		if entry == textparse.EntrySeries {
			var l labels.Labels
			parser.Labels(&l)
			series++
			pods[l.Get("pod")] = true
		}
	}
	if want := len(regexp.MustCompile(`(?m)^[a-zA-Z]`).FindAllString(plain, -1)); series != want {
		t.Errorf("%d series, and %d in the plain format", series, want)
	}
	if !pods[`tr"a\in`] {
		t.Errorf("the pod's name was lost: %v", pods)
	}
}
