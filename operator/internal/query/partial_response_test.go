package query

import (
	"context"
	"net/http"
	"net/url"
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
