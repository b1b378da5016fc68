package scripted

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

// executed runs a query. The query is not closed, because that would recycle its result.
// Without series, the result is an empty list in JSON, not null.
func executed(ctx context.Context, q promql.Query) (parser.Value, error) {
	result := q.Exec(ctx)
	if m, ok := result.Value.(promql.Matrix); ok && m == nil {
		return promql.Matrix{}, result.Err
	}
	return result.Value, result.Err
}

// ServeHTTP serves /api/v1/query and /api/v1/query_range like Prometheus.
func (p *Prometheus) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	result, err := p.result(r)
	response := map[string]any{"status": "success"}
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		response = map[string]any{"status": "error", "error": err.Error()}
	} else {
		response["data"] = map[string]any{"resultType": result.Type(), "result": result}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(response) // the browser has gone
}

func (p *Prometheus) result(r *http.Request) (parser.Value, error) {
	expr := r.FormValue("query")
	switch r.URL.Path {
	case "/api/v1/query":
		at, err := parseTime(r.FormValue("time"))
		if err != nil {
			return nil, err
		}
		return p.instant(r.Context(), expr, at)
	case "/api/v1/query_range":
		start, err := parseTime(r.FormValue("start"))
		if err != nil {
			return nil, err
		}
		end, err := parseTime(r.FormValue("end"))
		if err != nil {
			return nil, err
		}
		interval, err := parseDuration(r.FormValue("step"))
		if err != nil {
			return nil, err
		}
		q, err := p.engine.NewRangeQuery(r.Context(), p.db, nil, expr, start, end, interval)
		if err != nil {
			return nil, err
		}
		return executed(r.Context(), q)
	default:
		return nil, fmt.Errorf("%s is not served", r.URL.Path)
	}
}

func parseTime(s string) (time.Time, error) {
	seconds, err := strconv.ParseFloat(s, 64)
	return time.UnixMilli(int64(seconds * 1000)), err
}

// parseDuration parses seconds or a duration such as 15s.
func parseDuration(s string) (time.Duration, error) {
	if seconds, err := strconv.ParseFloat(s, 64); err == nil {
		return time.Duration(seconds * float64(time.Second)), nil
	}
	d, err := model.ParseDuration(s)
	return time.Duration(d), err
}
