package collector

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
func (c *Collector) Handler(own *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.InstrumentMetricHandler(own, c.metrics(own)))
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
func (c *Collector) metrics(own prometheus.Gatherer) http.HandlerFunc {
	slots := make(chan struct{}, maxInFlight)
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			c.answer(w, r, own)
		default:
			http.Error(w, fmt.Sprintf("%d scrapes are being answered; try again later", maxInFlight), http.StatusServiceUnavailable)
		}
	}
}

// answer with the last snapshot as it is encoded, and then with what is of this moment.
func (c *Collector) answer(w http.ResponseWriter, r *http.Request, own prometheus.Gatherer) {
	format, d := negotiate(r.Header)
	s, now := c.snapshot.Load(), c.now(own, format, d)
	h := w.Header()
	h.Set("Content-Type", string(format))
	h.Set("Vary", "Accept, Accept-Encoding")
	var head, tail []byte
	if takesGzip(r.Header) {
		h.Set("Content-Encoding", "gzip")
		begun := s.deflated[d]()
		head, tail = begun.bytes, begun.end(now)
	} else {
		head, tail = s.plain[d](), now
	}
	h.Set("Content-Length", strconv.Itoa(len(head)+len(tail)))
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // where the server has one
	if _, err := w.Write(head); err == nil {
		_, _ = w.Write(tail) // an error is a scraper that went away
	}
}

// now is what can be told without a collection, and the process's own metrics.
// Where some of these can't be had the others are.
func (c *Collector) now(own prometheus.Gatherer, format expfmt.Format, d *dialect) []byte {
	var b bytes.Buffer
	c.writeState(&b, d)
	families, err := own.Gather()
	encoder := expfmt.NewEncoder(&b, format)
	for _, f := range families {
		err = errors.Join(err, encoder.Encode(f))
	}
	if end, ok := encoder.(expfmt.Closer); ok {
		err = errors.Join(err, end.Close())
	}
	if err != nil {
		c.cfg.Log.Warn("the exporter's own metrics are not complete", "err", err)
	}
	return b.Bytes()
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
