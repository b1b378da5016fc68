package contract

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/promqltest"
	"sigs.k8s.io/yaml"
)

// fleetSeries contains seven hours of two clusters: c1 has 12 of 16 devices free, on
// two nodes. c2 is full and hot. It had two critical XIDs in the last hour and one
// before.
const fleetSeries = `
load 5m
  cluster:plimsoll_sample_timestamp_seconds:min{cluster="c1"} 0+300x84
  cluster:plimsoll_sample_timestamp_seconds:min{cluster="c2"} 0+300x82 _x2
  node_resource_model:plimsoll_free_devices:placeable{cluster="c1",node="n1",resource="nvidia.com/gpu",model="NVIDIA-H100-80GB-HBM3"} 8x84
  node_resource_model:plimsoll_free_devices:placeable{cluster="c1",node="n2",resource="nvidia.com/gpu",model="NVIDIA-H100-80GB-HBM3"} 4x84
  node_resource_model:plimsoll_free_devices:placeable{cluster="c2",node="m1",resource="nvidia.com/gpu",model="NVIDIA-L4"} 0x84
  cluster_resource_model:plimsoll_free_devices:sum{cluster="c1",resource="nvidia.com/gpu",model="NVIDIA-H100-80GB-HBM3"} 12x84
  cluster_resource_model:plimsoll_free_devices:sum{cluster="c2",resource="nvidia.com/gpu",model="NVIDIA-L4"} 0x84
  cluster_resource_model:plimsoll_usable_devices:sum{cluster="c1",resource="nvidia.com/gpu",model="NVIDIA-H100-80GB-HBM3"} 16x84
  cluster_resource_model:plimsoll_usable_devices:sum{cluster="c2",resource="nvidia.com/gpu",model="NVIDIA-L4"} 2x84
  cluster_resource:plimsoll_free_devices:sum{cluster="c1",resource="nvidia.com/gpu"} 12x84
  cluster_resource:plimsoll_free_devices:sum{cluster="c2",resource="nvidia.com/gpu"} 0x84
  cluster_resource:plimsoll_devices:sum{cluster="c1",resource="nvidia.com/gpu"} 16x84
  cluster_resource:plimsoll_devices:sum{cluster="c2",resource="nvidia.com/gpu"} 4x84
  cluster:plimsoll_gpu_utilization:avg{cluster="c1"} 0.25x84
  cluster:plimsoll_gpu_utilization:avg{cluster="c2"} 0.5x82 1x2
  device:plimsoll_utilization:placeable{cluster="c1",node="n1",uuid="GPU-1"} 1x84
  device:plimsoll_utilization:placeable{cluster="c1",node="n1",uuid="GPU-2"} 0.1x84
  device:plimsoll_utilization:placeable{cluster="c2",node="m1",uuid="GPU-3"} 0.5x84
  device:plimsoll_utilization:placeable{cluster="c2",node="m1",uuid="GPU-4"} 0.5x84
  device_dimension:plimsoll_free_share:placeable{cluster="c1",node="n1",uuid="GPU-1",dimension="shares"} 2x84
  device_dimension:plimsoll_free_share:placeable{cluster="c1",node="n1",uuid="GPU-2",dimension="shares"} 1x84
  device_dimension:plimsoll_free_share:placeable{cluster="c2",node="m1",uuid="GPU-3",dimension="shares"} 0x84
  device_dimension:plimsoll_share_capacity:placeable{cluster="c1",node="n1",uuid="GPU-1",dimension="shares"} 4x84
  device_dimension:plimsoll_share_capacity:placeable{cluster="c2",node="m1",uuid="GPU-3",dimension="shares"} 4x84
  cluster_model:plimsoll_power_watts:sum{cluster="c1",model="NVIDIA-H100-80GB-HBM3"} 3200x84
  cluster_model:plimsoll_power_watts:sum{cluster="c2",model="NVIDIA-L4"} 280x84
  cluster_model:plimsoll_temperature_celsius:max{cluster="c1",model="NVIDIA-H100-80GB-HBM3"} 45x84
  cluster_model:plimsoll_temperature_celsius:max{cluster="c2",model="NVIDIA-L4"} 82x84
  plimsoll_xid_total{cluster="c2",node="m1",uuid="GPU-3",gpu="0",model="NVIDIA-L4",xid="79",severity="critical"} _x75 2x9
  plimsoll_xid_total{cluster="c2",node="m1",uuid="GPU-4",gpu="1",model="NVIDIA-L4",xid="48",severity="critical"} 1x84
  plimsoll_xid_total{cluster="c1",node="n1",uuid="GPU-1",gpu="0",model="NVIDIA-H100-80GB-HBM3",xid="31",severity="application"} 9x84
  DCGM_FI_DEV_POWER_USAGE{cluster="c1",UUID="GPU-1",pod="a"} 350x84
  DCGM_FI_DEV_POWER_USAGE{cluster="c1",UUID="GPU-1",pod="b"} 350x84
  DCGM_FI_DEV_POWER_MGMT_LIMIT{cluster="c1",UUID="GPU-1",pod="a"} 700x84
  DCGM_FI_DEV_POWER_USAGE{cluster="c2",UUID="GPU-3"} 72x84
  DCGM_FI_DEV_POWER_MGMT_LIMIT{cluster="c2",UUID="GPU-3"} 72x84
  kueue_cluster_queue_nominal_quota{cluster="c1",cluster_queue="gpu",flavor="h100",resource="nvidia.com/gpu"} 16x84
  kueue_cluster_queue_nominal_quota{cluster="c2",cluster_queue="gpu",flavor="l4",resource="nvidia.com/gpu"} 4x84
  kueue_cluster_queue_nominal_quota{cluster_queue="gpu",flavor="h100",resource="nvidia.com/gpu"} 256x84
  kueue_cluster_queue_resource_reservation{cluster="c1",cluster_queue="gpu",flavor="h100",resource="nvidia.com/gpu"} 4x84
  kueue_cluster_queue_resource_reservation{cluster="c2",cluster_queue="gpu",flavor="l4",resource="nvidia.com/gpu"} 4x84
  kueue_cluster_queue_resource_pending{cluster="c2",cluster_queue="gpu",resource="nvidia.com/gpu"} 3x84
  node:kube_unrequested:placeable{cluster="c1",node="n1",resource="nvidia_com_gpu"} 6x84
  node:kube_unrequested:placeable{cluster="c1",node="n2",resource="nvidia_com_gpu"} 6x84
  node:kube_unrequested:placeable{cluster="c1",node="n1",resource="cpu"} 16x84
  node:kube_unrequested:placeable{cluster="c1",node="n2",resource="cpu"} 28x84
  node:kube_unrequested:placeable{cluster="c1",node="n1",resource="memory"} 1e9x84
  node:kube_unrequested:placeable{cluster="c2",node="t1",resource="google_com_tpu"} 4x84
`

// expectedResults contains the result of each query by cluster. The keys are
// POLICY/SCORE and POLICY/freshness. A query with nameFrom has a result for CLUSTER/FAMILY.
var expectedResults = map[string]map[string]float64{
	"fleet/freshness":                          {"c1": 0, "c2": 600},
	"fleet/headroom":                           {"c1": 12, "c2": 0},
	"fleet/idle":                               {"c1": 0.25, "c2": 1},
	"node-fit/freshness":                       {"c1": 0, "c2": 600},
	"node-fit/fit":                             {"c1/H100": 1, "c2/L4": 0},
	"cluster-headroom/freshness":               {"c1": 0, "c2": 600},
	"cluster-headroom/free":                    {"c1/H100": 12, "c2/L4": 0},
	"live-utilization/freshness":               {"c1": 0, "c2": 600},
	"live-utilization/idle":                    {"c1": 0.25, "c2": 1},
	"packing/freshness":                        {"c1": 0, "c2": 600},
	"packing/packed":                           {"c1": 0.25, "c2": 1},
	"packing/calm":                             {"c1": 0.5, "c2": 0},
	"slowdown/freshness":                       {"c1": 0, "c2": 600},
	"slowdown/slowdown":                        {"c1": (1.3/0.7 + 1) / 2, "c2": 2},
	"health/freshness":                         {"c1": 0, "c2": 600},
	"health/usable":                            {"c1": 1, "c2": 0.5},
	"health/xids":                              {"c1": 0, "c2": 2},
	"power/freshness":                          {"c1": 0, "c2": 600},
	"power/power":                              {"c1": 0.5, "c2": 1},
	"power/energy":                             {"c1": 200, "c2": 70},
	"power/cool":                               {"c1": 45, "c2": 82},
	"queue-pressure/freshness":                 {"c1": 0, "c2": 600},
	"queue-pressure/pending":                   {"c1": 0, "c2": 0.75},
	"queue-pressure/quota":                     {"c1": 12, "c2": 0},
	"fragmentation/freshness":                  {"c1": 0, "c2": 600},
	"fragmentation/fragments":                  {"c1": 4. / 12, "c2": 0},
	"fragmentation/headroom":                   {"c1": 12, "c2": 0},
	"resource-usage-score/cpuNodeAvailable":    {"c1": -44},
	"resource-usage-score/cpuClusterAvailable": {"c1": -12},
	"resource-usage-score/memNodeAvailable":    {"c1": 1e9},
	"resource-usage-score/memClusterAvailable": {"c1": 1e9},
	"resource-usage-score/gpuNodeAvailable":    {"c1": 6},
	"resource-usage-score/gpuClusterAvailable": {"c1": 12},
	"resource-usage-score/tpuNodeAvailable":    {"c2": 4},
	"resource-usage-score/tpuClusterAvailable": {"c2": 4},
}

func TestSamplePolicyQueries(t *testing.T) {
	queries := policyQueries(t)
	for name := range expectedResults {
		if queries[name] == "" {
			t.Errorf("no sample has the query %s", name)
		}
	}
	for name, query := range queries {
		want, listed := expectedResults[name]
		if !listed {
			t.Errorf("%s has no expected result", name)
			continue
		}
		t.Run(name, func(t *testing.T) {
			var script strings.Builder
			fmt.Fprintf(&script, "%s\neval instant at 7h %s\n", fleetSeries, strings.ReplaceAll(strings.Join(strings.Fields(query), " "), "$cluster_label", "cluster"))
			for name, value := range want {
				cluster, family, named := strings.Cut(name, "/")
				labels := fmt.Sprintf("cluster=%q", cluster)
				if named {
					labels += fmt.Sprintf(",family=%q", family)
				}
				fmt.Fprintf(&script, "  {%s} %v\n", labels, value)
			}
			promqltest.RunTest(t, script.String(), promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery))
		})
	}
}

// policyQueries returns the queries of all sample policies by POLICY/SCORE and
// POLICY/freshness.
func policyQueries(t *testing.T) map[string]string {
	t.Helper()
	type query struct {
		Name  string `json:"name"`
		Query string `json:"query"`
	}
	queries := map[string]string{}
	for _, file := range findFiles(t, filepath.Join(root, "config", "samples"), ".yaml") {
		var policy struct {
			Kind     string `json:"kind"`
			Metadata query  `json:"metadata"`
			Spec     struct {
				Freshness *query  `json:"freshness"`
				Scores    []query `json:"scores"`
			} `json:"spec"`
		}
		if err := yaml.Unmarshal([]byte(strings.SplitN(readFile(t, file), "\n---\n", 2)[0]), &policy); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if policy.Kind != "ScoringPolicy" {
			continue
		}
		if policy.Spec.Freshness != nil {
			queries[policy.Metadata.Name+"/freshness"] = policy.Spec.Freshness.Query
		}
		for _, s := range policy.Spec.Scores {
			queries[policy.Metadata.Name+"/"+s.Name] = s.Query
		}
	}
	return queries
}
