package querycache

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// The client drops labels from long responses unless the context requires all of them.
func TestLabelsOfLongResponses(t *testing.T) {
	const objects = 40
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var samples []map[string]any
		add := func(labels map[string]string) {
			labels["cluster"] = "cluster1"
			samples = append(samples, map[string]any{"metric": labels, "value": []any{noon.Unix(), "1"}})
		}
		switch expr := r.FormValue("query"); {
		case strings.HasPrefix(expr, "group by (cluster, secret)"):
			for i := range objects {
				add(map[string]string{"secret": fmt.Sprint("secret-", i)})
			}
		case strings.Contains(expr, "by (cluster, cluster_queue)"):
			for i := range objects {
				add(map[string]string{"cluster_queue": fmt.Sprint("queue-", i)})
			}
		case strings.HasPrefix(expr, "count by (cluster, namespace, owner_kind, owner_name)"):
			for i := range objects {
				add(map[string]string{"namespace": "team-a", "owner_name": fmt.Sprint("train-", i)})
			}
		default:
			add(map[string]string{})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": map[string]any{"resultType": "vector", "result": samples}})
	}))
	t.Cleanup(server.Close)
	client, err := query.New(query.Config{URL: server.URL, ClusterLabel: "cluster", AllowLoopback: true, MaxConcurrency: 4, QueriesPerSecond: 1000, MaxResponseBytes: 1 << 20, MaxSeries: 1000, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	f := newPrerequisiteFixture()
	f.sources.Set(query.SourceInfo{Name: "thanos", ClusterLabel: "cluster"}, client)
	f.facts.Reclaims = true
	results, _ := f.results(t)
	if got := len(results["cluster1"].Shapes[0].Borrowed); got != objects {
		t.Errorf("%d queues that borrow, want %d", got, objects)
	}
	if got := len(results["cluster1"].Prerequisites[0].Names); got != objects {
		t.Errorf("%d names of Secrets, want %d", got, objects)
	}
	holders, err := f.holdersOf(t.Context(), sourceLabel{"thanos", "cluster"}, nil, noon)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(holders["cluster1"]); got != objects {
		t.Errorf("%d owners of devices, want %d", got, objects)
	}
}
