package query

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/config"
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

// A response that is too large beside the others fails, and smaller ones after it do not.
func TestALargeResponseFailsAlone(t *testing.T) {
	large, small := &Result{Samples: make([]Sample, 300_000)}, &Result{Samples: make([]Sample, 1)}
	var joined joinedResult
	for _, step := range []struct {
		name   string
		result *Result
		want   Reason
	}{{"large", large, ""}, {"second large", large, ReasonTooLarge}, {"small", small, ""}} {
		err := joined.add(step.result)
		if err == nil && step.want == "" {
			continue
		}
		if err == nil || ReasonOf(err) != step.want {
			t.Errorf("%s: %v, want %q", step.name, err, step.want)
		}
	}
	if got := len(joined.Samples); got != 300_001 {
		t.Errorf("%d series, want those of the first large and of the small response", got)
	}
}

// fleetOf returns a client for n clusters. Endpoints of clusters whose name begins with
// "hung" never respond. The others respond at once with their one series.
func fleetOf(t *testing.T, names []string) (c *Client, requests func() map[string]int) {
	t.Helper()
	var mu sync.Mutex
	counts := map[string]int{}
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		cluster := strings.Split(r.URL.Path, "/")[1]
		mu.Lock()
		counts[cluster]++
		mu.Unlock()
		if strings.HasPrefix(cluster, "hung") {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
			return
		}
		reply(200, vector(`{"metric":{},"value":[1,"1"]}`))(w, r)
	})
	c = newClient(t, Config{
		URLTemplate: base + "/{cluster}", MaxConcurrency: 4, Timeout: 10 * time.Second,
		Clusters: func(context.Context) ([]string, error) { return names, nil },
	})
	return c, func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(counts)
	}
}

func clusterNames(prefix string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("%s-%04d", prefix, i))
	}
	return names
}

// TestHungEndpointsDoNotDelayTheOthers has four endpoints that never respond, which is as
// many as advanced.maxConcurrency, and forty that do.
func TestHungEndpointsDoNotDelayTheOthers(t *testing.T) {
	c, _ := fleetOf(t, append(clusterNames("hung", 4), clusterNames("live", 40)...))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	result, err := c.Query(ctx, "up", at)
	if err != nil || len(result.Samples) != 40 || len(result.Failed) != 4 {
		t.Fatalf("%d clusters responded, %d failed, %v; want 40 and 4", len(result.Samples), len(result.Failed), err)
	}
	for cluster, message := range result.Failed {
		if !strings.HasPrefix(cluster, "hung") || !strings.Contains(message, "Timeout") {
			t.Errorf("%s: %s", cluster, message)
		}
	}
}

// TestAllEndpointsAreQueriedInTurn has 500 endpoints, of which 100 never respond, with
// less time than their timeouts take. Later rounds begin with the endpoints that respond.
func TestAllEndpointsAreQueriedInTurn(t *testing.T) {
	c, requests := fleetOf(t, append(clusterNames("hung", 100), clusterNames("live", 400)...))
	for round := range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		result, err := c.Query(ctx, "up", at)
		cancel()
		if err != nil || len(result.Samples) != 400 || len(result.Failed) != 100 {
			t.Errorf("round %d: %d clusters responded, %d failed, %v; want 400 and 100", round, len(result.Samples), len(result.Failed), err)
		}
	}
	if n := c.turns.waiting.Load(); n != 0 {
		t.Errorf("%d turns are still announced", n)
	}
	if counts := requests(); len(counts) < 480 {
		t.Errorf("%d of 500 endpoints were queried", len(counts))
	}
}

func TestEachClusterHasItsCredentials(t *testing.T) {
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		cluster := strings.Split(r.URL.Path, "/")[1]
		if r.Header.Get("Authorization") != "Bearer "+cluster+"-token" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		reply(200, vector(`{"metric":{},"value":[1,"1"]}`))(w, r)
	})
	tokens := map[string]config.Secret{"c1": "c1-token", "c2": "stale"}
	c := newClient(t, Config{
		URLTemplate: base + "/{cluster}", Clusters: func(context.Context) ([]string, error) { return []string{"c1", "c2", "c3"}, nil },
		HTTPFor: func(_ context.Context, cluster string) (config.HTTPClientConfig, error) {
			token, ok := tokens[cluster]
			if !ok {
				return config.HTTPClientConfig{}, errors.New("Secret " + cluster + " does not exist")
			}
			return config.HTTPClientConfig{Authorization: &config.Authorization{Type: "Bearer", Credentials: token}}, nil
		},
	})
	result, err := c.Query(t.Context(), "up", at)
	if err != nil || len(result.Samples) != 1 || result.Samples[0].Label("cluster") != "c1" ||
		!strings.Contains(result.Failed["c2"], "Unauthorized") || !strings.Contains(result.Failed["c3"], "Secret c3 does not exist") {
		t.Fatalf("%+v %v", result, err)
	}
	tokens["c2"], tokens["c3"] = "c2-token", "c3-token"
	if result, err := c.Query(t.Context(), "up", at); err != nil || len(result.Samples) != 3 {
		t.Errorf("after the Secrets changed: %+v %v", result, err)
	}
}

func TestCheckForgetsDeletedClusters(t *testing.T) {
	names := []string{"c1", "c2"}
	c := newClient(t, Config{
		URLTemplate: serve(t, reply(200, vector())) + "/{cluster}",
		Clusters:    func(context.Context) ([]string, error) { return names, nil },
	})
	for _, want := range []int{2, 1} {
		names = names[:want]
		if _, err := c.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := len(c.cluster); got != want {
			t.Errorf("%d endpoints in memory, %d clusters exist", got, want)
		}
	}
}
