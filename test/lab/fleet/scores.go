package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"sort"
	"strconv"

	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	clusterv1beta1 "open-cluster-management.io/api/cluster/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Scores returns a cluster's scores by name, from the AddOnPlacementScore of that
// name. Without such an object it returns no scores.
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

// Decision returns the clusters that a Placement has chosen, in its order.
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

// MeanUtilization returns an expression: the mean utilization of a node's devices over the last
// 10 minutes, in percent, rounded to tens.
func MeanUtilization(node string) string {
	return fmt.Sprintf(`round(100 * avg(device:plimsoll_utilization:placeable{node=%q}), 10)`, node)
}

// DevicesWithHeadroom returns an expression: the number of the node's shared devices that the sample
// gate packing counts for a job that uses a part of a device (0 to 1): those that stay at 70% or less with it.
func DevicesWithHeadroom(node string, part float64) string {
	return fmt.Sprintf(`sum(device:plimsoll_utilization:placeable{node=%[1]q} + %[2]g <= bool 0.7 and on (uuid) device_dimension:plimsoll_free_share:placeable{node=%[1]q,dimension="shares"} >= 1)`, node, part)
}

// Sample is one series in the result of an instant query.
type Sample struct {
	Labels map[string]string
	Value  float64
}

// CountNumbers returns the number of samples whose value is a number. The value of 0/0 is not.
func CountNumbers(samples []Sample) int {
	n := 0
	for _, s := range samples {
		if !math.IsNaN(s.Value) {
			n++
		}
	}
	return n
}

// Query runs an instant query against the Prometheus API at base. The samples are
// sorted by their labels.
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
	var response struct {
		Error string `json:"error"`
		Data  struct {
			ResultType string          `json:"resultType"`
			Result     json.RawMessage `json:"result"`
		} `json:"data"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&response); err != nil {
		return nil, fmt.Errorf("response to %s (%s): %w", expr, resp.Status, err)
	}
	if response.Error != "" {
		return nil, fmt.Errorf("%s: %s", expr, response.Error)
	}
	samples, err := decodeResult(response.Data.ResultType, response.Data.Result)
	if err != nil {
		return nil, fmt.Errorf("response to %s: %w", expr, err)
	}
	return samples, nil
}

// point is a sample in the Prometheus API: a timestamp, and a value as a string.
type point [2]json.RawMessage

func (p point) value() (float64, error) {
	var text string
	if err := json.Unmarshal(p[1], &text); err != nil {
		return 0, err
	}
	return strconv.ParseFloat(text, 64)
}

func decodeResult(resultType string, result json.RawMessage) ([]Sample, error) {
	if resultType == "scalar" {
		var p point
		if err := json.Unmarshal(result, &p); err != nil {
			return nil, err
		}
		value, err := p.value()
		return []Sample{{Value: value}}, err
	}
	var vector []struct {
		Metric map[string]string `json:"metric"`
		Value  point             `json:"value"`
	}
	if err := json.Unmarshal(result, &vector); err != nil {
		return nil, err
	}
	samples := make([]Sample, len(vector))
	for i, series := range vector {
		value, err := series.Value.value()
		if err != nil {
			return nil, err
		}
		samples[i] = Sample{Labels: series.Metric, Value: value}
	}
	sort.Slice(samples, func(i, j int) bool { return fmt.Sprint(samples[i].Labels) < fmt.Sprint(samples[j].Labels) })
	return samples, nil
}
