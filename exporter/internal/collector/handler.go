package collector

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"
)

const (
	// maxInFlight is how many scrapes are answered at a time.
	maxInFlight = 40
	// writeTimeout is how long a scraper may take to read, so that one that hangs does not stay.
	writeTimeout = 30 * time.Second
)

// Handler serves /metrics, /health and a page that links to both.
func (c *Collector) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.InstrumentMetricHandler(c.cfg.Own, c.metrics()))
	mux.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) {
		if err := c.Healthy(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "OK")
	})
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, `<!doctype html><title>Plimsoll exporter</title><h1>Plimsoll exporter</h1><p><a href="/metrics">Metrics</a> · <a href="/health">Health</a></p>`)
	})
	return mux
}

// metrics limits how many scrapes are answered at a time.
func (c *Collector) metrics() http.HandlerFunc {
	slots := make(chan struct{}, maxInFlight)
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			c.answer(w, r)
		default:
			http.Error(w, fmt.Sprintf("%d scrapes are being answered; try again later", maxInFlight), http.StatusServiceUnavailable)
		}
	}
}

// answer with the last snapshot, which no scrape waits for.
func (c *Collector) answer(w http.ResponseWriter, r *http.Request) {
	format, d := negotiate(r.Header)
	gzipped := takesGzip(r.Header)
	body := c.snapshot.Load().forms[form{d, gzipped}]()
	h := w.Header()
	h.Set("Content-Type", string(format))
	h.Set("Vary", "Accept, Accept-Encoding")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if gzipped {
		h.Set("Content-Encoding", "gzip")
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // where the server has one
	_, _ = w.Write(body)                                                             // an error is a scraper that went away
}

// negotiate the format: OpenMetrics, or plain text for all who do not ask for it.
func negotiate(h http.Header) (expfmt.Format, *dialect) {
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

// takesGzip unless the scraper does not name it, or refuses it by q=0.
func takesGzip(h http.Header) bool {
	for offer := range strings.SplitSeq(h.Get("Accept-Encoding"), ",") {
		name, parameters, _ := strings.Cut(offer, ";")
		if strings.TrimSpace(name) == "gzip" {
			q, found := strings.CutPrefix(strings.TrimSpace(parameters), "q=")
			weight, err := strconv.ParseFloat(q, 64)
			return !found || err == nil && weight > 0
		}
	}
	return false
}
