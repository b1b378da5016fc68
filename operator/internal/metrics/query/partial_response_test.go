package query

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

func TestQueryRequestsPartialResultsOnlyAfterAFailure(t *testing.T) {
	var sent []string
	down := true
	c := newClient(t, Config{Parameters: url.Values{"partial_response": {"false"}}, URL: serve(t, func(w http.ResponseWriter, r *http.Request) {
		sent = append(sent, r.FormValue("partial_response"))
		switch {
		case !down:
			reply(200, vector())(w, r)
		case r.FormValue("partial_response") == "false":
			reply(422, `{"status":"error","errorType":"execution","error":"no store matched"}`)(w, r)
		default:
			reply(200, `{"status":"success","warnings":["store c2 is down"],"data":{"resultType":"vector","result":[]}}`)(w, r)
		}
	})})
	a, err := c.Query(context.Background(), "up", at)
	if err != nil || !a.Partial || c.Health().Partial != "store c2 is down" {
		t.Errorf("%+v %v %+v", a, err, c.Health())
	}
	down = false
	if _, err := c.Query(context.Background(), "vector(1)", at); err != nil || c.Health().Partial == "" {
		t.Errorf("a query that reads no store clears the partial result: %v %+v", err, c.Health())
	}
	if a, err = c.Query(context.Background(), "up", at); err != nil || a.Partial || c.Health().Partial != "" {
		t.Errorf("%+v %v %+v", a, err, c.Health())
	}
	if d := gocmp.Diff([]string{"false", "true", "false", "false"}, sent); d != "" {
		t.Error(d)
	}
}

// incomplete is a response without the data of a store. Thanos and remote storage of Prometheus
// warn about it, whatever the type of the source says.
func incomplete(warning string) string {
	return `{"status":"success","warnings":["` + warning + `"],"data":{"resultType":"vector","result":[{"metric":{"cluster":"a"},"value":[1,"3"]}]}}`
}

// TestResponsesThatLackDataArePartial: a sum over the rest of the data is too small, and must not
// become a score.
func TestResponsesThatLackDataArePartial(t *testing.T) {
	tenAnnotations := strings.Repeat(`PromQL warning: bucket label \"le\" is missing","`, 10)
	for _, tc := range []struct {
		name, body, warning string // warning is empty if the response is complete
	}{
		{"Thanos without stores", incomplete("No StoreAPIs matched for this query"), "No StoreAPIs matched for this query"},
		{"Thanos as type Prometheus", incomplete("receive series from Addr: 10.0.0.1:10901: connection refused"), "receive series from Addr: 10.0.0.1:10901: connection refused"},
		{"remote storage of Prometheus", incomplete("remote_read: server returned HTTP status 503"), "remote_read: server returned HTTP status 503"},
		{"behind many annotations", incomplete(tenAnnotations + "store x is down"), "store x is down"},
		{"behind an info", incomplete(`PromQL info: metric might not be a counter","store x is down`), "store x is down"},
		{"two stores", incomplete(`store y is down","store x is down`), "store x is down"},
		{"two stores behind many annotations", incomplete(tenAnnotations + `store y is down","store x is down`), "store x is down"},
		{"a warning that is no text", `{"status":"success","warnings":[{}],"data":{"resultType":"vector","result":[]}}`, "a warning without text"},
		{"warnings that are no list", `{"status":"success","warnings":"store x is down","data":{"resultType":"vector","result":[]}}`, "warnings that are no list"},
		{"no warnings", `{"status":"success","warnings":null,"isPartial":null,"data":{"resultType":"vector","result":[]}}`, ""},
		{"a mark that is no literal", `{"status":"success","isPartial":"true","data":{"resultType":"vector","result":[]}}`, "the source marks the response as partial (isPartial)"},
		{"VictoriaMetrics", `{"status":"success","isPartial":true,"data":{"resultType":"vector","result":[]}}`, "the source marks the response as partial (isPartial)"},
		{"VictoriaMetrics with a reason", `{"status":"success","isPartial":true,"warnings":["PromQL info: x","node 1 is down"],"data":{"resultType":"vector","result":[]}}`, "node 1 is down"},
		{"all of VictoriaMetrics", `{"status":"success","isPartial":false,"data":{"resultType":"vector","result":[]}}`, ""},
		{"annotations of PromQL", incomplete(tenAnnotations + "PromQL warning: x"), ""},
		{"annotations that Prometheus left out", incomplete(tenAnnotations + "3 more warning annotations omitted"), ""},
		{"infos that Prometheus left out", incomplete(tenAnnotations + "12 more info annotations omitted"), ""},
		{"annotations that Prometheus 2 left out", incomplete(tenAnnotations + "1 more annotations omitted"), ""},
		{"similar to annotations that were left out", incomplete("3 more warning annotations omitted by store x"), "3 more warning annotations omitted by store x"},
		{"an info in a warning", incomplete("PromQL info: metric might not be a counter"), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newClient(t, Config{URL: serve(t, reply(200, tc.body))})
			got, err := c.Query(context.Background(), "up", at)
			if err != nil || got.Partial != (tc.warning != "") || c.Health().Partial != tc.warning {
				t.Errorf("partial %t, warnings %q, health %+v, %v", got.Partial, got.Warnings, c.Health(), err)
			}
		})
	}
}

// TestPartialResponseOfAnEndpointFailsItsCluster: with an endpoint for each cluster, nothing says
// how much of the cluster's data the response has.
func TestPartialResponseOfAnEndpointFailsItsCluster(t *testing.T) {
	c := newClient(t, Config{
		URLTemplate: serve(t, func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/c1/") {
				reply(200, incomplete(`PromQL info: y","store x is down`))(w, r)
				return
			}
			reply(200, vector(`{"metric":{},"value":[1,"5"]}`))(w, r)
		}) + "/{cluster}",
		Clusters: func(context.Context) ([]string, error) { return []string{"c1", "c2"}, nil },
	})
	for range 3 {
		got, err := c.Query(context.Background(), "up", at)
		if err != nil || len(got.Samples) != 1 || got.Samples[0].Cluster != "c2" || got.Partial {
			t.Fatalf("%+v %v", got, err)
		}
		if want := "Unavailable: the response is partial: store x is down"; got.Failed["c1"] != want || c.Health().Partial != "store x is down" {
			t.Errorf("%q, want %q; %+v", got.Failed, want, c.Health())
		}
	}
}

// TestGapsOfPartialResponses: the warnings say which stores a response lacks. Addresses of the
// local end of a connection differ in each attempt.
func TestGapsOfPartialResponses(t *testing.T) {
	const x, y = "store x is down", "store y is down"
	read := func(port string) string {
		return "receive series from z: read tcp 10.0.0.1:" + port + "->10.0.0.2:10901: reset"
	}
	for _, tc := range []struct {
		name          string
		first, second []string
		want          bool
	}{
		{"the same store", []string{x}, []string{x}, true},
		{"another store", []string{x}, []string{y}, false},
		{"more stores", []string{x}, []string{y, x}, true},
		{"fewer stores", []string{x, y}, []string{x}, false},
		{"another order", []string{x, y, x}, []string{y, x}, true},
		{"annotations of PromQL", []string{x, "PromQL info: a"}, []string{"PromQL info: b", x}, true},
		{"another local port", []string{read("4001")}, []string{read("4002")}, true},
		{"behind many others", append(slices.Repeat([]string{x}, 20), y), []string{x}, false},
		{"behind many annotations", append(slices.Repeat([]string{"PromQL warning: a"}, 20), y), []string{x}, false},
		{"complete", nil, []string{x}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var results []Result
			for _, warnings := range [][]string{tc.first, tc.second} {
				c := newClient(t, Config{URL: serve(t, reply(200, incomplete(strings.Join(warnings, `","`))))})
				if warnings == nil {
					c = newClient(t, Config{URL: serve(t, reply(200, vector()))})
				}
				result, err := c.Query(context.Background(), "up", at)
				if err != nil {
					t.Fatal(err)
				}
				results = append(results, result)
			}
			if got := results[0].LacksAtMost(&results[1]); got != tc.want {
				t.Errorf("%t, want %t", got, tc.want)
			}
		})
	}
}
