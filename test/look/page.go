package main

import (
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
)

// page loads the bundle. Grafana's components read the two globals.
const page = `<!doctype html>
<html><head><meta charset="utf-8"><base href="/"><link rel="stylesheet" href="/dist/board.css"><style>body{margin:0}</style></head>
<body><div id="root"></div>
<script>window.grafanaBootData={settings:{buildInfo:{},featureToggles:{}},user:{}};window.__grafana_public_path__="/public/"</script>
<script type="module" src="/dist/board.js"></script></body></html>
`

// newHandler serves the page, the bundle in browserDir, the dashboards and the API of
// Prometheus.
func newHandler(api http.Handler, browserDir, dashboards string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(page)) // the browser has gone
	})
	mux.Handle("/api/", api)
	mux.Handle("/dashboards/", http.StripPrefix("/dashboards/", http.FileServer(http.Dir(dashboards))))
	mux.Handle("/dist/", http.FileServer(http.Dir(browserDir)))
	public := http.FileServer(http.Dir(filepath.Join(browserDir, "node_modules", "@grafana", "ui", "dist", "public")))
	mux.Handle("/public/build/", http.StripPrefix("/public/build/", public))
	mux.Handle("/public/", http.StripPrefix("/public/", public))
	return mux
}

// proxy forwards queries to a Prometheus.
func proxy(base string) (http.Handler, error) {
	target, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	return &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}, nil
}
