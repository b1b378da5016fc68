// Package fleet reads the devices and scores of each cluster, for the commands top and ui.
package fleet

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/prometheus"
	"plimsoll.dev/plimsoll/operator/internal/format"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// UnknownCount stands for a number of devices that no series reports.
const UnknownCount = -1

// Cluster is one cluster with its devices and scores.
type Cluster struct {
	Cluster string `json:"cluster"`
	// Devices by resource and model. Empty means that none are reported.
	Devices []Devices             `json:"devices,omitempty"`
	Scores  map[string]gate.Score `json:"scores,omitempty"`
}

// Devices counts the devices of one resource and model. -1 means unknown.
type Devices struct {
	Resource string `json:"resource"`
	Model    string `json:"model"`
	Free     int    `json:"free"`
	Total    int    `json:"total"`
	// LargestFit is the number of free devices of the node that has most: no pod can get more.
	LargestFit int `json:"largestFit"`
	// Unusable devices by reason.
	Unusable []Unusable `json:"unusable,omitempty"`
}

// Unusable is a number of devices that no pod can get, and why.
type Unusable struct {
	Reason  string `json:"reason"`
	Devices int    `json:"devices"`
}

// compare orders devices by resource, then by model.
func (d Devices) compare(other Devices) int {
	return cmp.Or(cmp.Compare(d.Resource, other.Resource), cmp.Compare(d.Model, other.Model))
}

// UnusableText lists the unusable devices: 8 cordoned, 1 unhealthy.
func (d Devices) UnusableText() string {
	var texts []string
	for _, u := range d.Unusable {
		texts = append(texts, fmt.Sprintf("%d %s", u.Devices, strings.ReplaceAll(u.Reason, "_", " ")))
	}
	return cmp.Or(strings.Join(texts, ", "), "-")
}

// Count formats a number of devices.
func Count(n int) string {
	if n == UnknownCount {
		return format.Unknown
	}
	return fmt.Sprint(n)
}

// series are the queries over the shipped recording rules. %s is the cluster label. Devices of different resources, such as
// GPUs and MIG instances, are not added. The last two report no series if all devices are usable.
var series = []struct {
	what, expr string
	set        func(d *Devices, s *query.Sample)
}{
	{"free devices", `sum by (%s, resource, model) (cluster_resource_model:plimsoll_free_devices:sum)`, func(d *Devices, s *query.Sample) { d.Free = int(s.Value) }},
	{"total devices", `sum by (%s, resource, model) (cluster_resource_model:plimsoll_devices:sum)`, func(d *Devices, s *query.Sample) { d.Total = int(s.Value) }},
	{"largest fits", `max by (%s, resource, model) (cluster_resource_model:plimsoll_node_free_devices:max)`, func(d *Devices, s *query.Sample) { d.LargestFit = int(s.Value) }},
	{"unusable devices", `sum by (%s, resource, model, reason) (cluster_resource_model_reason:plimsoll_unusable_devices:sum) > 0`, func(d *Devices, s *query.Sample) {
		d.Unusable = append(d.Unusable, Unusable{Reason: cmp.Or(s.Labels["reason"], "unknown"), Devices: int(s.Value)})
	}},
	{"unhealthy devices", `sum by (%s, resource, model) (cluster_resource_model:plimsoll_unhealthy_devices:sum) > 0`, func(d *Devices, s *query.Sample) {
		d.Unusable = append(d.Unusable, Unusable{Reason: "unhealthy", Devices: int(s.Value)})
	}},
}

// QueryDevices returns the devices of each cluster, by resource and model. It writes a warning to a.ErrOut for each response
// that lacks data: the sums are then too small.
func QueryDevices(ctx context.Context, a *command.App, flags *prometheus.Flags) (map[string][]Devices, error) {
	source, err := flags.ConnectFleet(ctx, a)
	if err != nil {
		return nil, err
	}
	defer source.Client.Close()
	devices := map[string][]Devices{}
	for _, of := range series {
		result, err := source.Client.Query(ctx, fmt.Sprintf(of.expr, source.Info.ClusterLabel), a.Now())
		if err != nil {
			return nil, err
		}
		prometheus.WarnIncomplete(a, of.what, result)
		source.ByCluster(a, of.what, result.Samples, func(cluster string, s *query.Sample) {
			found := Devices{Resource: cmp.Or(s.Labels["resource"], "unknown"), Model: cmp.Or(s.Labels["model"], "unknown"), Free: UnknownCount, Total: UnknownCount, LargestFit: UnknownCount}
			i, ok := slices.BinarySearchFunc(devices[cluster], found, Devices.compare)
			if !ok {
				devices[cluster] = slices.Insert(devices[cluster], i, found)
			}
			of.set(&devices[cluster][i], s)
		})
	}
	for _, list := range devices {
		for i := range list {
			slices.SortFunc(list[i].Unusable, func(a, b Unusable) int { return strings.Compare(a.Reason, b.Reason) })
		}
	}
	return devices, nil
}

// Clusters returns the clusters that have scores or devices, by name.
func Clusters(scores map[string]map[string]gate.Score, devices map[string][]Devices) []Cluster {
	names := slices.Concat(slices.Collect(maps.Keys(scores)), slices.Collect(maps.Keys(devices)))
	slices.Sort(names)
	clusters := []Cluster{}
	for _, name := range slices.Compact(names) {
		clusters = append(clusters, Cluster{Cluster: name, Devices: devices[name], Scores: scores[name]})
	}
	return clusters
}
