package collector

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"
)

// Handler returns a handler for /metrics, /health and a page with links to both.
func (c *Collector) Handler() http.Handler {
	mux := http.NewServeMux()
	metrics := http.Handler(c.limitScrapes())
	if c.cfg.CountScrapes {
		metrics = promhttp.InstrumentMetricHandler(c.cfg.Own, metrics)
	}
	mux.Handle("/metrics", metrics)
	mux.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) {
		if err := c.Healthy(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "OK")
		if _, err := c.kubeletError(); err != nil {
			fmt.Fprintln(w, "degraded: the kubelet does not report the allocation of devices:", err)
		}
	})
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, `<!doctype html><title>Plimsoll exporter</title><h1>Plimsoll exporter</h1><p><a href="/metrics">Metrics</a> · <a href="/health">Health</a></p>`)
	})
	return mux
}

// unreadPerScrape limits the responses that clients read at the same time, as a multiple of
// MaxScrapes. The web server ends each after its write timeout.
const unreadPerScrape = 64

// limitScrapes encodes at most MaxScrapes scrapes at a time and rejects others. A response that a
// client reads slowly does not count: its bytes are shared, and a few such clients could end the
// monitoring of the node.
func (c *Collector) limitScrapes() http.HandlerFunc {
	encoding, responses := newLimit(c.cfg.MaxScrapes), newLimit(unreadPerScrape*c.cfg.MaxScrapes)
	return func(w http.ResponseWriter, r *http.Request) {
		isServed := false
		responses.do(func() {
			var body []byte
			if isServed = encoding.do(func() { body = c.encode(w.Header(), r.Header) }); isServed {
				_, _ = w.Write(body) // fails if the scraper disconnects
			}
		})
		if !isServed {
			http.Error(w, "too many scrapes are in progress; try again later", http.StatusServiceUnavailable)
		}
	}
}

// limit is the number of calls that may be in progress.
type limit chan struct{}

func newLimit(n int) limit { return make(limit, n) }

// do calls f, or returns false if too many calls are in progress.
func (l limit) do(f func()) bool {
	select {
	case l <- struct{}{}:
		defer func() { <-l }()
		f()
		return true
	default:
		return false
	}
}

// encode returns the last exposition and sets the headers of the response. It does not wait for a
// collection.
func (c *Collector) encode(response, request http.Header) []byte {
	contentType, format := negotiateFormat(request)
	gzipped := acceptsGzip(request)
	body := c.exposition.Load().encoded[encodingKey{format, gzipped}]()
	response.Set("Content-Type", string(contentType))
	response.Set("Vary", "Accept, Accept-Encoding")
	response.Set("Content-Length", strconv.Itoa(len(body)))
	if gzipped {
		response.Set("Content-Encoding", "gzip")
	}
	return body
}

// maxAccept is the size in bytes above which a header Accept is ignored. Parsing it takes 64 times
// its size.
const maxAccept = 4 << 10

// negotiateFormat returns OpenMetrics if the scraper requests it, otherwise the plain
// text format.
func negotiateFormat(h http.Header) (expfmt.Format, *textFormat) {
	if len(h.Get("Accept")) > maxAccept {
		return expfmt.NewFormat(expfmt.TypeTextPlain), plainText
	}
	format := expfmt.NegotiateIncludingOpenMetrics(h)
	switch format.FormatType() {
	case expfmt.TypeOpenMetrics:
		return format, openMetrics
	case expfmt.TypeTextPlain:
		return format, plainText
	default:
		return expfmt.NewFormat(expfmt.TypeTextPlain), plainText
	}
}

// acceptsGzip reports whether the scraper accepts gzip. A weight of q=0 rejects it. Names are
// not case-sensitive, and a list may be divided into several headers.
func acceptsGzip(h http.Header) bool {
	for offer := range strings.SplitSeq(strings.ToLower(strings.Join(h.Values("Accept-Encoding"), ",")), ",") {
		name, parameters, _ := strings.Cut(offer, ";")
		if strings.TrimSpace(name) == "gzip" {
			q, found := strings.CutPrefix(strings.TrimSpace(parameters), "q=")
			weight, err := strconv.ParseFloat(q, 64)
			return !found || err == nil && weight > 0
		}
	}
	return false
}
