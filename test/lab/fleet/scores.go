package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"sort"
	"strconv"

	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	clusterv1beta1 "open-cluster-management.io/api/cluster/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Scores of a cluster by name, from the AddOnPlacementScore of that name; empty
// while there is none.
func (f *Fleet) Scores(ctx context.Context, name, cluster string) (map[string]int32, error) {
	object := &clusterv1alpha1.AddOnPlacementScore{}
	if err := f.Hub.Client.Get(ctx, client.ObjectKey{Namespace: cluster, Name: name}, object); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	scores := map[string]int32{}
	for _, s := range object.Status.Scores {
		scores[s.Name] = s.Value
	}
	return scores, nil
}

// Decision of a Placement: the clusters it chose, in its order.
func (f *Fleet) Decision(ctx context.Context, namespace, placement string) ([]string, error) {
	list := &clusterv1beta1.PlacementDecisionList{}
	if err := f.Hub.Client.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{clusterv1beta1.PlacementLabel: placement}); err != nil {
		return nil, err
	}
	var clusters []string
	for _, d := range list.Items {
		for _, c := range d.Status.Decisions {
			clusters = append(clusters, c.ClusterName)
		}
	}
	return clusters, nil
}

// Sample is one series of an instant query's answer.
type Sample struct {
	Labels map[string]string
	Value  float64
}

// Query asks a Prometheus API at base now.
func Query(ctx context.Context, base, expr string) ([]Sample, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/api/v1/query?query="+url.QueryEscape(expr), nil)
	if err != nil {
		return nil, err
	}
	resp, err := httpPlain.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	var answer struct {
		Error string `json:"error"`
		Data  struct {
			ResultType string          `json:"resultType"`
			Result     json.RawMessage `json:"result"`
		} `json:"data"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return nil, fmt.Errorf("answer to %s: %w", expr, err)
	}
	if answer.Error != "" {
		return nil, fmt.Errorf("%s: %s", expr, answer.Error)
	}
	var vector []struct {
		Metric map[string]string  `json:"metric"`
		Value  [2]json.RawMessage `json:"value"`
	}
	if answer.Data.ResultType == "scalar" {
		return []Sample{{}}, nil
	}
	if err := json.Unmarshal(answer.Data.Result, &vector); err != nil {
		return nil, fmt.Errorf("answer to %s: %w", expr, err)
	}
	samples := make([]Sample, len(vector))
	for i, series := range vector {
		var text string
		if err := json.Unmarshal(series.Value[1], &text); err != nil {
			return nil, err
		}
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, err
		}
		samples[i] = Sample{Labels: series.Metric, Value: value}
	}
	sort.Slice(samples, func(i, j int) bool { return fmt.Sprint(samples[i].Labels) < fmt.Sprint(samples[j].Labels) })
	return samples, nil
}
