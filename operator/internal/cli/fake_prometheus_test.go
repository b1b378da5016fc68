package cli

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"

	"plimsoll.dev/plimsoll/operator/internal/promengine"
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
