package metrics

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"

	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// version is what the server reports as its version.
const version = "3.5.0"

// Transport serves the HTTP API of Prometheus and Thanos from a Store. It implements
// http.RoundTripper and needs no network.
type Transport struct {
	Store *Store
	// Intercept returns how the server responds to a request. expr is its query; it is empty for other
	// requests. Nil means that the server responds at once and in full.
	Intercept func(req *http.Request, expr string) Response
}

// Response is how the server responds to a request. The zero value is a response at once and in full.
type Response struct {
	// Latency passes before the response. The deadline of the request ends it.
	Latency time.Duration
	// Drop is the error of a connection that fails, such as &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}.
	Drop error
	// Status and Body replace the response, if one of them is set. The status of a Body alone is 200.
	Status int
	Body   string
	// HideClusters are clusters whose store is lost: the response is that without their series.
	HideClusters []string
	// Warnings of the response, such as ThanosWarning. The client takes a result with warnings as
	// partial. If the request has partial_response=false, as that of a client of Thanos, the response
	// is an error instead.
	Warnings []string
	// Lie changes the result.
	Lie func(*query.Result)
}

// ThanosWarning is the warning of Thanos about the store of a cluster that does not respond.
func ThanosWarning(cluster string) string {
	return fmt.Sprintf(`receive series from Addr: thanos-sidecar.%[1]s:10901 LabelSets: {cluster=%[1]q} MinTime: 0 MaxTime: 9223372036854775807: rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing: dial tcp: connect: connection refused"`, cluster)
}

// PrometheusWarning is the warning of Prometheus about remote storage that does not respond.
func PrometheusWarning(cluster string) string {
	return fmt.Sprintf(`remote_read: error sending request: Post "http://prometheus.%s:9090/api/v1/read": dial tcp: connect: connection refused`, cluster)
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	form, err := readForm(req)
	if err != nil {
		return nil, err
	}
	expr := form.Get("query")
	var r Response
	if t.Intercept != nil {
		r = t.Intercept(req, expr)
	}
	status, body, contentType := r.Status, r.Body, "text/plain; charset=utf-8"
	switch {
	case r.Drop != nil:
	case status != 0 || body != "":
		if status == 0 {
			status = http.StatusOK
		}
		if strings.HasPrefix(body, "{") {
			contentType = "application/json"
		}
	default:
		// The time of a query is that of its request, so the latency may follow the evaluation.
		status, body = t.respond(req, form, &r)
		if status != http.StatusNotFound {
			contentType = "application/json"
		}
	}
	if err := wait(req.Context(), r.Latency); err != nil {
		return nil, err
	}
	if r.Drop != nil {
		return nil, r.Drop
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", status, http.StatusText(status)), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: req,
	}, nil
}

// readForm returns the parameters of the URL and of the body, and closes the body.
func readForm(req *http.Request) (url.Values, error) {
	form := req.URL.Query()
	if req.Body == nil {
		return form, nil
	}
	content, err := io.ReadAll(req.Body)
	if err = errors.Join(err, req.Body.Close()); err != nil {
		return nil, err
	}
	posted, err := url.ParseQuery(string(content))
	for name, values := range posted {
		form[name] = append(values, form[name]...)
	}
	return form, err
}

// wait sleeps, until the context ends.
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// respond returns the response of a server that works.
func (t *Transport) respond(req *http.Request, form url.Values, r *Response) (status int, body string) {
	switch path := req.URL.Path; {
	case strings.HasSuffix(path, "/api/v1/query"):
		return t.instant(req.Context(), form, r)
	case strings.HasSuffix(path, "/api/v1/query_range"):
		return t.rangeOf(req.Context(), form, r)
	case strings.HasSuffix(path, "/api/v1/status/buildinfo"):
		return http.StatusOK, `{"status":"success","data":{"version":"` + version + `","revision":"","branch":"HEAD","buildUser":"","buildDate":"","goVersion":"go1.26"}}`
	}
	return http.StatusNotFound, "404 page not found\n"
}

func (t *Transport) instant(ctx context.Context, form url.Values, r *Response) (status int, body string) {
	at, err := parseTime(form.Get("time"))
	if err != nil {
		return badData("time", err)
	}
	if len(r.Warnings) > 0 && form.Get("partial_response") == "false" {
		return failure(http.StatusUnprocessableEntity, "execution", "expanding series: proxy Series(): rpc error: code = Aborted desc = "+r.Warnings[0])
	}
	result, err := t.Store.query(ctx, form.Get("query"), at, r.HideClusters)
	if err != nil {
		return queryFailure(err)
	}
	if r.Lie != nil {
		result.Samples = slices.Clone(result.Samples)
		for i := range result.Samples {
			result.Samples[i].Labels = maps.Clone(result.Samples[i].Labels)
		}
		r.Lie(&result)
	}
	annotate := func(b []byte) (int, string) {
		return http.StatusOK, string(appendAnnotations(b, append(slices.Clone(r.Warnings), result.Warnings...), result.Infos))
	}
	if len(result.Samples) == 1 && result.Samples[0].Labels == nil {
		b := appendPoint([]byte(`{"status":"success","data":{"resultType":"scalar","result":`), at.UnixMilli(), result.Samples[0].Value)
		return annotate(append(b, '}'))
	}
	b := []byte(`{"status":"success","data":{"resultType":"vector","result":[`)
	for i, s := range result.Samples {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, `{"metric":`...), encode(s.Labels)...)
		b = appendPoint(append(b, `,"value":`...), at.UnixMilli(), s.Value)
		b = append(b, '}')
	}
	return annotate(append(b, "]}"...))
}

func (t *Transport) rangeOf(ctx context.Context, form url.Values, r *Response) (status int, body string) {
	start, err := parseTime(form.Get("start"))
	if err != nil {
		return badData("start", err)
	}
	end, err := parseTime(form.Get("end"))
	if err != nil {
		return badData("end", err)
	}
	step, err := parseDuration(form.Get("step"))
	if err != nil {
		return badData("step", err)
	}
	matrix, err := t.Store.rangeQuery(ctx, form.Get("query"), start, end, step, r.HideClusters)
	if err != nil {
		return queryFailure(err)
	}
	b := []byte(`{"status":"success","data":{"resultType":"matrix","result":[`)
	for i, series := range matrix {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, `{"metric":`...), encode(series.Metric.Map())...), `,"values":[`...)
		for j, p := range series.Floats {
			if j > 0 {
				b = append(b, ',')
			}
			b = appendPoint(b, p.T, p.F)
		}
		b = append(b, "]}"...)
	}
	return http.StatusOK, string(appendAnnotations(append(b, "]}"...), r.Warnings, nil))
}

// queryFailure is the response to a query that fails.
func queryFailure(err error) (status int, body string) {
	var canceled promql.ErrQueryCanceled
	var late promql.ErrQueryTimeout
	var syntax parser.ParseErrors
	switch {
	case errors.As(err, &canceled), errors.Is(err, context.Canceled):
		return failure(499, "canceled", err.Error())
	case errors.As(err, &late), errors.Is(err, context.DeadlineExceeded):
		return failure(http.StatusServiceUnavailable, "timeout", err.Error())
	case errors.As(err, &syntax):
		return badData("query", err)
	}
	return failure(http.StatusUnprocessableEntity, "execution", err.Error())
}

func badData(parameter string, err error) (status int, body string) {
	return failure(http.StatusBadRequest, "bad_data", fmt.Sprintf("invalid parameter %q: %s", parameter, err))
}

func failure(status int, kind, message string) (int, string) {
	return status, `{"status":"error","errorType":"` + kind + `","error":` + encode(message) + `}`
}

// encode returns the JSON of texts.
func encode[T string | []string | map[string]string](texts T) string {
	b, err := json.Marshal(texts)
	if err != nil {
		panic(err) // strings always have a JSON form
	}
	return string(b)
}

// appendPoint appends a time in seconds and a value in the format of Prometheus.
func appendPoint(b []byte, ms int64, v float64) []byte {
	b = strconv.AppendFloat(append(b, '['), float64(ms)/1000, 'f', -1, 64)
	format := byte('f')
	if abs := math.Abs(v); abs != 0 && !math.IsInf(v, 0) && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	return append(strconv.AppendFloat(append(b, `,"`...), v, format, -1, 64), `"]`...)
}

// appendAnnotations appends the rest of a response after its data.
func appendAnnotations(b []byte, warnings, infos []string) []byte {
	if len(warnings) > 0 {
		b = append(append(b, `,"warnings":`...), encode(warnings)...)
	}
	if len(infos) > 0 {
		b = append(append(b, `,"infos":`...), encode(infos)...)
	}
	return append(b, '}')
}

// parseTime parses seconds of Unix time, or RFC 3339. An empty text is the current time.
func parseTime(text string) (time.Time, error) {
	if text == "" {
		return time.Now(), nil
	}
	if s, err := strconv.ParseFloat(text, 64); err == nil {
		return time.UnixMilli(int64(math.Round(s * 1000))).UTC(), nil
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return t, nil
	}
	return time.Time{}, fmt.Errorf("cannot parse %q to a valid timestamp", text)
}

// parseDuration parses seconds, or a duration such as 15s.
func parseDuration(text string) (time.Duration, error) {
	if s, err := strconv.ParseFloat(text, 64); err == nil {
		return time.Duration(s * float64(time.Second)), nil
	}
	d, err := model.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("cannot parse %q to a valid duration", text)
	}
	return time.Duration(d), nil
}
