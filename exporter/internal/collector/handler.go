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

// limitScrapes serves at most MaxScrapes scrapes at a time and rejects others.
func (c *Collector) limitScrapes() http.HandlerFunc {
	slots := make(chan struct{}, c.cfg.MaxScrapes)
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			c.serveMetrics(w, r)
		default:
			http.Error(w, fmt.Sprintf("%d scrapes are in progress; try again later", c.cfg.MaxScrapes), http.StatusServiceUnavailable)
		}
	}
}

// serveMetrics writes the last exposition. It does not wait for a collection.
func (c *Collector) serveMetrics(w http.ResponseWriter, r *http.Request) {
	contentType, format := negotiateFormat(r.Header)
	gzipped := acceptsGzip(r.Header)
	body := c.exposition.Load().encoded[encodingKey{format, gzipped}]()
	h := w.Header()
	h.Set("Content-Type", string(contentType))
	h.Set("Vary", "Accept, Accept-Encoding")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if gzipped {
		h.Set("Content-Encoding", "gzip")
	}
	_, _ = w.Write(body) // fails if the scraper disconnects
}

// negotiateFormat returns OpenMetrics if the scraper requests it, otherwise the plain
// text format.
func negotiateFormat(h http.Header) (expfmt.Format, *textFormat) {
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
