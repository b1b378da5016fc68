package gate_test

import (
	"fmt"
	"testing"

	"github.com/prometheus/prometheus/promql/promqltest"

	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// Two nodes of one NVLink fabric with 8 and 4 free devices, and a node of another with 8.
const fabrics = `
load 1m
  node_resource_model:plimsoll_free_devices:placeable{cluster="c",node="n1",resource="r",model="m"} 8
  node_resource_model:plimsoll_free_devices:placeable{cluster="c",node="n2",resource="r",model="m"} 4
  node_resource_model:plimsoll_free_devices:placeable{cluster="c",node="n3",resource="r",model="m"} 8
  node_resource_model:plimsoll_free_devices:placeable{cluster="c",node="n3",resource="r",model="k"} 16
  node_resource_model:plimsoll_free_devices:placeable{cluster="d",node="n1",resource="r",model="m"} 8
  node:plimsoll_topology:info{cluster="c",node="n1",level="nvidia.com/gpu.clique",domain="a"} 1
  node:plimsoll_topology:info{cluster="c",node="n2",level="nvidia.com/gpu.clique",domain="a"} 1
  node:plimsoll_topology:info{cluster="c",node="n3",level="nvidia.com/gpu.clique",domain="b"} 1
  node:plimsoll_topology:info{cluster="c",node="n1",level="cluster",domain="all"} 1
  node:plimsoll_topology:info{cluster="c",node="n2",level="cluster",domain="all"} 1
  node:plimsoll_topology:info{cluster="c",node="n3",level="cluster",domain="all"} 1
  node:plimsoll_topology:info{cluster="d",node="n1",level="cluster",domain="all"} 1
  node_resource_model:plimsoll_free_group_devices:placeable{cluster="c",node="n1",resource="r",model="m"} 6
  node_resource_model:plimsoll_free_group_devices:placeable{cluster="c",node="n2",resource="r",model="m"} 3
  node_resource_model:plimsoll_free_group_devices:placeable{cluster="d",node="n1",resource="r",model="m"} 8
  node_model_topology_slice:plimsoll_free_devices:placeable{cluster="c",node="t1",model="m",topology="2x4",slice="s"} 4
  node_model_topology_slice:plimsoll_free_devices:placeable{cluster="c",node="t2",model="m",topology="2x4",slice="s"} 4
  node_model_topology_slice:plimsoll_free_devices:placeable{cluster="c",node="t3",model="m",topology="4x4",slice="u"} 4
  node_model_topology_slice:plimsoll_free_devices:placeable{cluster="d",node="t1",model="m",topology="2x4",slice="s"} 0

`

// The fit queries of the sample gates for topologies.
func TestFitOfTopologies(t *testing.T) {
	for _, tc := range []struct {
		name, sample string
		p            shape.PodSet
		want         map[string]int
	}{
		{"required fabric: the best one", "topology", shape.PodSet{DevicesPerPod: 4, RequiredTopology: "nvidia.com/gpu.clique"}, map[string]int{"c": 3}},
		{"no requirement: all nodes", "topology", shape.PodSet{DevicesPerPod: 4, RequiredTopology: "cluster"}, map[string]int{"c": 5, "d": 2}},
		{"NVLink group of each node", "nvlink", shape.PodSet{DevicesPerPod: 2}, map[string]int{"c": 4, "d": 4}},
		{"whole TPU slices", "../cookbook/tpu-slices", shape.PodSet{DevicesPerPod: 4, NodeSelector: map[string]string{"cloud.google.com/gke-tpu-topology": "2x4"}}, map[string]int{"c": 2, "d": 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.p.Resource, tc.p.Model, tc.p.Pods = "r", "m", 1
			expr, err := sampleFit(t, tc.sample).Render(shape.Facts{}.Vars(tc.p))
			if err != nil {
				t.Fatal(err)
			}
			script := fabrics + "eval instant at 0m " + expr + "\n"
			for cluster, pods := range tc.want {
				script += fmt.Sprintf("  {cluster=%q} %d\n", cluster, pods)
			}
			promqltest.RunTest(t, script, promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery))
		})
	}
}
