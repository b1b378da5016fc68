package query

import (
	"compress/gzip"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/common/config"
)

// TestFaultyResponses has the exact text of each fault: it is what a user sees in the condition
// Reachable of the source and DataFresh of a policy.
func TestFaultyResponses(t *testing.T) {
	valid := vector(`{"metric":{"cluster":"a"},"value":[1,"1"]}`)
	header := func(key, value, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(key, value)
			_, _ = io.WriteString(w, body)
		}
	}
	const notJSON = "BadResponse: the response is not Prometheus JSON: check that the URL is the base URL of the query API"
	const cutOff = "the response is cut off: the source or a proxy ended the connection in the middle of it"
	for name, tc := range map[string]struct {
		serve http.HandlerFunc
		want  string
	}{
		"cut off JSON":                     {reply(200, valid[:len(valid)-10]), "BadResponse: " + cutOff},
		"cut off in a text":                {reply(200, valid[:40]), "BadResponse: " + cutOff},
		"cut off connection":               {header("Content-Length", "1000", valid), "Unreachable: " + cutOff},
		"cut off gzip":                     {cutGzip(valid), "Unreachable: " + cutOff},
		"trailing text":                    {reply(200, valid+"FOREIGN"), notJSON},
		"second document":                  {reply(200, valid+valid), notJSON},
		"byte order mark":                  {reply(200, "\ufeff"+valid), notJSON},
		"UTF-16":                           {reply(200, "\xff\xfe{\x00}\x00"), notJSON},
		"empty":                            {reply(200, ""), notJSON},
		"no content":                       {reply(204, ""), notJSON},
		"JSON array":                       {reply(200, `["FOREIGN"]`), notJSON},
		"other JSON":                       {reply(200, `{"FOREIGN":"s3cret"}`), notJSON},
		"result null":                      {reply(200, `{"status":"success","data":{"resultType":"vector","result":null}}`), "BadResponse: the response has no result"},
		"result object":                    {reply(200, `{"status":"success","data":{"resultType":"vector","result":{"FOREIGN":1}}}`), "BadResponse: the response has no result"},
		"no result":                        {reply(200, `{"status":"success","data":{"resultType":"vector"}}`), "BadResponse: the response has no result"},
		"data null":                        {reply(200, `{"status":"success","data":null}`), "BadResponse: the response has no resultType"},
		"matrix":                           {reply(200, `{"status":"success","data":{"resultType":"matrix","result":[]}}`), "BadQuery: the query must return an instant vector, returns a matrix"},
		"string":                           {reply(200, `{"status":"success","data":{"resultType":"string","result":[1,"FOREIGN"]}}`), "BadQuery: the query must return an instant vector, returns a string"},
		"logs":                             {reply(200, `{"status":"success","data":{"resultType":"streams","result":[]}}`), "BadQuery: the query must return an instant vector, returns a streams"},
		"success with an error":            {reply(200, `{"status":"success","error":"store b is down","data":{"resultType":"vector","result":[]}}`), "BadResponse: the response has the status success and an error: store b is down"},
		"error with status 200":            {reply(200, `{"status":"error","error":"too many samples"}`), "BadQuery: too many samples"},
		"unknown status":                   {reply(200, `{"status":"FOREIGN","data":{"resultType":"vector","result":[]}}`), notJSON},
		"error without text":               {reply(200, `{"status":"error"}`), "BadQuery: the source reports an error without text"},
		"400 without text":                 {reply(400, `{"status":"error"}`), "BadQuery: the source reports an error without text"},
		"plain HTTP to HTTPS":              {reply(400, "Client sent an HTTP request to an HTTPS server.\n"), "BadResponse: status 400 Bad Request: check that the URL is the base URL of the query API, with the right scheme"},
		"422 of another service":           {reply(422, `{"error":"FOREIGN"}`), "BadResponse: status 422 Unprocessable Entity: check that the URL is the base URL of the query API, with the right scheme"},
		"error of another service":         {reply(403, `{"error":"FOREIGN s3cret"}`), "Unauthorized: status 403 Forbidden: check spec.auth and spec.tenant of the MetricsSource"},
		"401":                              {reply(401, "FOREIGN"), "Unauthorized: status 401 Unauthorized: check spec.auth and spec.tenant of the MetricsSource"},
		"404":                              {reply(404, "FOREIGN"), "BadResponse: status 404 Not Found: check that the URL is the base URL of the query API, with the right scheme"},
		"418":                              {reply(418, `{"error":"FOREIGN"}`), "BadResponse: status 418 I'm a teapot: check that the URL is the base URL of the query API, with the right scheme"},
		"429":                              {reply(429, "FOREIGN"), "RateLimited: status 429 Too Many Requests: the source limits queries. Raise its limit, or lower advanced.queriesPerSecond"},
		"503":                              {reply(503, `{"status":"error","error":"store b is down"}`), "Unavailable: store b is down"},
		"599":                              {reply(599, "FOREIGN"), "Unavailable: status 599"},
		"brotli":                           {header("Content-Encoding", "br", "FOREIGN"), "BadResponse: the response has a Content-Encoding other than gzip, which was not requested: check the proxies before the source"},
		"two encodings":                    {header("Content-Encoding", "gzip, gzip", "FOREIGN"), "BadResponse: the response has a Content-Encoding other than gzip, which was not requested: check the proxies before the source"},
		"text as value":                    {reply(200, vector(`{"metric":{},"value":[1,"FOREIGN"]}`)), "BadResponse: a value in the response must be a number"},
		"number as value":                  {reply(200, vector(`{"metric":{},"value":[1,1]}`)), `BadResponse: a value in the response must be [time, "value"]`},
		"value beyond a float":             {reply(200, vector(`{"metric":{},"value":[1,"1e999"]}`)), "BadResponse: a value in the response must be a number"},
		"space in a value":                 {reply(200, vector(`{"metric":{},"value":[1," 1"]}`)), "BadResponse: a value in the response must be a number"},
		"wide digits":                      {reply(200, vector(`{"metric":{},"value":[1,"１"]}`)), "BadResponse: a value in the response must be a number"},
		"null as value":                    {reply(200, vector(`{"metric":{},"value":null}`)), `BadResponse: a value in the response must be [time, "value"]`},
		"hexadecimal value":                {reply(200, vector(`{"metric":{},"value":[1,"0x10"]}`)), "BadResponse: a value in the response must be a number"},
		"exponent cut off":                 {reply(200, vector(`{"metric":{},"value":[1,"1.`+strings.Repeat("0", maxTextBytes)+`e5"]}`)), "BadResponse: a value in the response must be a number"},
		"no value":                         {reply(200, vector(`{"metric":{}}`)), "BadResponse: a value in the response is missing"},
		"series of a matrix":               {reply(200, vector(`{"metric":{},"values":[[1,"1"]]}`)), "BadResponse: a value in the response is missing"},
		"null as series":                   {reply(200, vector(`null`)), `BadResponse: a value in the response must be [time, "value"]`},
		"scalar as vector":                 {reply(200, vector(`1`, `"1"`)), "BadResponse: the result is not a vector"},
		"vector as scalar":                 {reply(200, scalar(`{"metric":{},"value":[1,"1"]}`)), "BadResponse: the result is not a scalar"},
		"half of a scalar":                 {reply(200, scalar(`1`)), "BadResponse: the result is not a scalar"},
		"scalar of two texts":              {reply(200, scalar(`"1","2"`)), `BadResponse: a value in the response must be [time, "value"]`},
		"two results":                      {reply(200, vector(`{"metric":{"cluster":"a"},"value":[1,"1"]}],"result":[{"metric":{"cluster":"b"},"value":[1,"2"]}`)), notJSON},
		"two data":                         {reply(200, `{"data":{"resultType":"vector","result":[]},`+valid[1:]), notJSON},
		"two statuses":                     {reply(200, `{"status":"error",`+valid[1:]), notJSON},
		"two values":                       {reply(200, vector(`{"metric":{},"value":[1,"1"],"value":[1,"2"]}`)), notJSON},
		"two names of a cluster":           {reply(200, vector(`{"metric":{"cluster":"a","cluster":"b"},"value":[1,"1"]}`)), notJSON},
		"first name of a cluster is empty": {reply(200, vector(`{"metric":{"cluster":"","cluster":"b"},"value":[1,"1"]}`)), notJSON},
		"two values of a label":            {reply(200, vector(`{"metric":{"cluster":"a","model":"b","model":"c"},"value":[1,"1"]}`)), notJSON},
		"labels null":                      {reply(200, vector(`{"metric":null,"value":[1,"1"]}`)), notJSON},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, hostileConfig(serve(t, tc.serve)))
			result, err := c.Query(t.Context(), "up", at)
			if err == nil || err.Error() != tc.want {
				t.Errorf("got %v\nwant %s", err, tc.want)
			}
			if len(result.Samples) > 0 {
				t.Errorf("samples %v of a failed query", result.Samples)
			}
		})
	}
}

func scalar(result string) string {
	return `{"status":"success","data":{"resultType":"scalar","result":[` + result + `]}}`
}

func cutGzip(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		var compressed strings.Builder
		z := gzip.NewWriter(&compressed)
		_, _ = io.WriteString(z, body)
		_ = z.Close()
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = io.WriteString(w, compressed.String()[:compressed.Len()-12])
	}
}

// TestUnusualResponses serves responses that are unusual and mean what they say.
func TestUnusualResponses(t *testing.T) {
	element := func(value string) string { return `{"metric":{"cluster":"a"},"value":` + value + `}` }
	for name, tc := range map[string]struct {
		body string
		want string
	}{
		"NaN":                      {vector(element(`[1,"NaN"]`)), "[NaN]"},
		"infinite":                 {vector(element(`[1,"+Inf"]`), element(`[1,"-Inf"]`)), "[+Inf -Inf]"},
		"negative zero":            {vector(element(`[1,"-0"]`)), "[-0]"},
		"smallest":                 {vector(element(`[1,"5e-324"]`)), "[5e-324]"},
		"time in milliseconds":     {vector(element(`[1700000000250,"3"]`)), "[3]"},
		"time in the future":       {vector(element(`[99999999999.5,"3"]`)), "[3]"},
		"time in exponents":        {vector(element(`[1.7e9,"3"]`)), "[3]"},
		"unknown keys":             {`{"x":{"y":[[]]},"status":"success","data":{"stats":null,"resultType":"vector","result":[` + element(`[1,"3"]`) + `]}}`, "[3]"},
		"invalid UTF-8 in a label": {vector("{\"metric\":{\"cluster\":\"a\xff\"},\"value\":[1,\"3\"]}"), "[3]"},
	} {
		c := newClient(t, hostileConfig(serve(t, reply(200, tc.body))))
		result, err := c.Query(t.Context(), "up", at)
		var values []float64
		for _, s := range result.Samples {
			values = append(values, s.Value)
		}
		if got := fmt.Sprint(values); err != nil || got != tc.want {
			t.Errorf("%s: %s, %v, want %s", name, got, err, tc.want)
		}
		if strings.Contains(name, "UTF-8") && result.Samples[0].Label("cluster") == "a" {
			t.Errorf("%s: the series of another cluster counts for a", name)
		}
		if name == "negative zero" && !math.Signbit(values[0]) {
			t.Errorf("%v", values)
		}
	}
}

func TestNativeHistogramsAreReported(t *testing.T) {
	c := newClient(t, hostileConfig(serve(t, reply(200, vector(`{"metric":{"cluster":"h"},"histogram":[1,{"count":"1"}]}`, `{"metric":{"cluster":"a"},"value":[1,"1"]}`)))))
	result, err := c.Query(t.Context(), "up", at)
	want := "1 series are native histograms, which have no single value: use histogram_quantile or histogram_count"
	if err != nil || len(result.Samples) != 1 || len(result.Warnings) != 1 || result.Warnings[0] != want || result.Partial {
		t.Errorf("%+v, %v", result, err)
	}
}

// TestHTTP2Reset resets the stream in the middle of a response. The error is the same for each
// stream.
func TestHTTP2Reset(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("protocol %s", r.Proto)
		}
		_, _ = io.WriteString(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"cluster":"a"},"value":[1,"1"]}`)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	cfg := hostileConfig(server.URL)
	cfg.HTTP.EnableHTTP2 = true
	cfg.HTTP.TLSConfig = config.TLSConfig{CA: pemOf(server.Certificate())}
	c := newClient(t, cfg)
	expectFailure(t, c, ReasonUnreachable, "INTERNAL_ERROR")
	_, first := c.Query(t.Context(), "up", at)
	_, second := c.Query(t.Context(), "up", at)
	if first.Error() != second.Error() {
		t.Errorf("two resets of a stream have different errors:\n%v\n%v", first, second)
	}
}

// TestConnectionAfterATimeout: a connection whose response never came is not used again.
func TestConnectionAfterATimeout(t *testing.T) {
	var n atomic.Int32
	c := newClient(t, hostileConfig(serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if n.Add(1) == 2 {
			_, _ = io.WriteString(w, `{"status":"success","data":{"resultType":"vector","result":[`)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		reply(200, vector(fmt.Sprintf(`{"metric":{"cluster":"a"},"value":[1,"%d"]}`, n.Load())))(w, r)
	})))
	c.cfg.Timeout = 300 * time.Millisecond
	for i, want := range []string{"1", "Timeout: no complete response in time: make the query cheaper, or raise advanced.timeoutSeconds", "3"} {
		result, err := c.Query(t.Context(), "up", at)
		got := fmt.Sprint(err)
		if err == nil {
			got = fmt.Sprint(result.Samples[0].Value)
		}
		if got != want {
			t.Errorf("query %d: %s, want %s", i+1, got, want)
		}
	}
}

// TestRetryAfterWithinTheTimeout waits as long as the source requests.
func TestRetryAfterWithinTheTimeout(t *testing.T) {
	var first time.Time
	c := newClient(t, hostileConfig(serve(t, func(w http.ResponseWriter, r *http.Request) {
		if first.IsZero() {
			first = time.Now()
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(429)
			return
		}
		if waited := time.Since(first); waited < time.Second {
			t.Errorf("the next request came after %v", waited)
		}
		reply(200, vector())(w, r)
	})))
	if _, err := c.Query(t.Context(), "up", at); err != nil {
		t.Error(err)
	}
}
