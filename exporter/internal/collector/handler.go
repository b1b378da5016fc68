package collector

import (
	"fmt"
	"net/http"
	"sort"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
)

// gatherer joins the snapshot with the process's own metrics. The registry
// checks only the latter: the snapshot is consistent by construction, and tested.
type gatherer struct {
	collector *Collector
	own       prometheus.Gatherer
}

// Gather for promhttp; nothing needs to be given back.
func (g gatherer) Gather() ([]*dto.MetricFamily, func(), error) {
	own, err := g.own.Gather()
	families := append(append([]*dto.MetricFamily(nil), g.collector.Gather()...), own...)
	sort.Slice(families, func(i, j int) bool { return families[i].GetName() < families[j].GetName() })
	return families, func() {}, err
}

// Handler serves /metrics, /health and a page that links to both.
func (c *Collector) Handler(own *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerForTransactional(gatherer{c, own}, promhttp.HandlerOpts{
		EnableOpenMetrics: true, MaxRequestsInFlight: 40, Registry: own, ErrorHandling: promhttp.HTTPErrorOnError,
		OfferedCompressions: []promhttp.Compression{promhttp.Identity, promhttp.Gzip},
	}))
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
