package query

import (
	"context"
	"net/http"
	"strings"
	"testing"
)

func TestQueryJoinsTheResultsOfAllClusters(t *testing.T) {
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/c2/") {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		reply(200, vector(`{"metric":{"cluster":"overridden"},"value":[1,"1"]}`))(w, r)
	})
	clusters := []string{"c1", "c2"}
	c := newClient(t, Config{
		URLTemplate: base + "/{cluster}/", ClusterLabel: "cluster",
		Clusters: func(context.Context) ([]string, error) { return clusters, nil },
	})
	a, err := c.Query(context.Background(), "up", at)
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Samples) != 1 || a.Samples[0].Labels["cluster"] != "c1" {
		t.Errorf("samples %v", a.Samples)
	}
	if !strings.Contains(a.Failed["c2"], "Unauthorized") {
		t.Errorf("failed %v", a.Failed)
	}
	a, err = c.Query(ForClusters(context.Background(), []string{"c1"}), "up", at)
	if err != nil || len(a.Samples) != 1 || len(a.Failed) != 0 {
		t.Errorf("c1 alone: %+v %v", a, err)
	}
	clusters = []string{"c2"}
	if _, err := c.Query(context.Background(), "up", at); ReasonOf(err) != ReasonUnauthorized {
		t.Errorf("all failed: %v", err)
	}
}
