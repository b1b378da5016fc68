package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/operator/internal/metrics/promengine"
)

// fakePrometheus serves the series of a file in the notation of promqltest. They start one
// day before the scripts' now. Like the engine of promqltest's loader, it rejects queries
// of more than 10,000 samples.
type fakePrometheus struct {
	file string
	mu   sync.Mutex
	*promqltest.LazyLoader
}

func (p *fakePrometheus) load() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.LazyLoader != nil {
		return nil
	}
	content, err := os.ReadFile(p.file)
	if err != nil {
		return err
	}
	start := now.Add(-24 * time.Hour)
	loader, err := promqltest.NewLazyLoader(string(content), promqltest.LazyLoaderOpts{EnableAtModifier: true, EnableNegativeOffset: true, StartTime: start})
	for at := start; err == nil && !at.After(now); at = at.Add(time.Minute) { // a TSDB head accepts samples in order of time
		loader.WithSamplesTill(at, func(failed error) { err = failed })
	}
	if err == nil {
		p.LazyLoader = loader
	}
	return err
}

func (p *fakePrometheus) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	data, code, err := any(nil), http.StatusInternalServerError, p.load()
	switch {
	case err != nil:
	case req.URL.Path == "/api/v1/query":
		data, err = p.queryInstant(req)
	case req.URL.Path == "/api/v1/query_range":
		data, code, err = p.queryRange(req)
	default:
		data, err = p.labelValues(req)
	}
	if err != nil {
		writeJSON(w, code, map[string]any{"status": "error", "errorType": "execution", "error": err.Error()})
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"status": "success", "data": data})
}

func (p *fakePrometheus) queryRange(req *http.Request) (any, int, error) {
	start, end := timeParameter(req, "start"), timeParameter(req, "end")
	step := time.Duration(timeParameter(req, "step").UnixMilli()) * time.Millisecond
	if end.Sub(start)/step > 11000 {
		return nil, http.StatusBadRequest, fmt.Errorf("exceeded maximum resolution of 11,000 points per timeseries")
	}
	q, err := p.QueryEngine().NewRangeQuery(context.Background(), p.Queryable(), nil, req.FormValue("query"), start, end, step)
	if err != nil {
		return nil, http.StatusBadRequest, err
	}
	defer q.Close()
	result := q.Exec(context.Background())
	if result.Err != nil {
		return nil, http.StatusUnprocessableEntity, result.Err
	}
	found := []any{}
	for _, s := range result.Value.(promql.Matrix) {
		values := []any{}
		for _, f := range s.Floats {
			values = append(values, []any{float64(f.T) / 1000, strconv.FormatFloat(f.F, 'f', -1, 64)})
		}
		found = append(found, map[string]any{"metric": s.Metric.Map(), "values": values})
	}
	return map[string]any{"resultType": "matrix", "result": found}, http.StatusOK, nil
}

func (p *fakePrometheus) queryInstant(req *http.Request) (any, error) {
	samples, err := promengine.Query(context.Background(), p.QueryEngine(), p.Queryable(), req.FormValue("query"), timeParameter(req, "time"))
	result := []any{}
	for _, s := range samples.Samples {
		result = append(result, map[string]any{"metric": s.Labels, "value": []any{now.Unix(), strconv.FormatFloat(s.Value, 'f', -1, 64)}})
	}
	return map[string]any{"resultType": "vector", "result": result}, err
}

// labelValues returns the label values of the series that the selectors match.
func (p *fakePrometheus) labelValues(req *http.Request) (any, error) {
	label := strings.Split(req.URL.Path, "/")[4]
	querier, err := p.Storage().Querier(timeParameter(req, "start").UnixMilli(), timeParameter(req, "end").UnixMilli())
	if err != nil {
		return nil, err
	}
	values := []string{}
	if err := req.ParseForm(); err != nil {
		return nil, err
	}
	for _, selector := range req.Form["match[]"] {
		matchers, err := parser.NewParser(parser.Options{}).ParseMetricSelector(selector)
		if err != nil {
			return nil, err
		}
		more, _, err := querier.LabelValues(context.Background(), label, nil, matchers...)
		if err != nil {
			return nil, err
		}
		values = append(values, more...)
	}
	return values, querier.Close()
}

func timeParameter(req *http.Request, name string) time.Time {
	v, _ := strconv.ParseFloat(req.FormValue(name), 64) // invalid values become the Unix epoch
	return time.UnixMilli(int64(v * 1000)).UTC()
}

// prometheusHandler serves a Prometheus, and one for each cluster below a folder of the cluster's
// name. All have the same series. Those of the clusters in the file "down" fail. The text in the
// file "partial" becomes a warning of each response.
func prometheusHandler(dir string) http.Handler {
	server := queryHandler(dir)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		at := max(strings.Index(req.URL.Path, "/api/"), 0)
		cluster := strings.Trim(req.URL.Path[:at], "/")
		req.URL.Path = req.URL.Path[at:]
		down, err := os.ReadFile(filepath.Join(dir, "down"))
		if err == nil && slices.Contains(strings.Fields(string(down)), cluster) {
			writeJSON(w, http.StatusUnauthorized, map[string]any{"status": "error", "error": "wrong token"})
			return
		}
		warning, err := os.ReadFile(filepath.Join(dir, "partial"))
		if err != nil {
			server.ServeHTTP(w, req)
			return
		}
		recorded, response := httptest.NewRecorder(), map[string]any{}
		server.ServeHTTP(recorded, req)
		if err := json.Unmarshal(recorded.Body.Bytes(), &response); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		response["warnings"] = []string{strings.TrimSpace(string(warning))}
		writeJSON(w, recorded.Code, response)
	})
}

// queryHandler serves instant queries from the file prometheus.yaml, which maps expressions to
// samples. Without this file, and for all other requests, it evaluates the series in history.txt.
func queryHandler(dir string) http.Handler {
	file := filepath.Join(dir, "prometheus.yaml")
	history := &fakePrometheus{file: filepath.Join(dir, "history.txt")}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if _, err := os.Stat(file); req.URL.Path != "/api/v1/query" || err != nil {
			history.ServeHTTP(w, req)
			return
		}
		var results map[string][]struct {
			Metric map[string]string `json:"metric"`
			Value  string            `json:"value"`
		}
		content, err := os.ReadFile(file)
		if err == nil {
			err = yaml.Unmarshal(content, &results)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		expr := req.FormValue("query")
		result := []any{}
		for _, s := range results[expr] {
			result = append(result, map[string]any{"metric": s.Metric, "value": []any{now.Unix(), s.Value}})
		}
		if _, ok := results[expr]; !ok {
			writeJSON(w, http.StatusBadRequest, map[string]any{"status": "error", "errorType": "bad_data", "error": "unexpected query " + expr})
			return
		}
		response := map[string]any{"status": "success", "data": map[string]any{"resultType": "vector", "result": result}}
		if echo := w.Header().Get("X-Warning"); echo != "" {
			response["warnings"], response["infos"] = []string{"PromQL warning: " + echo}, []string{"metric might not be a counter"}
		}
		writeJSON(w, http.StatusOK, response)
	})
}
