package world

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// Worlds with blocks have the queries that users copy.
func TestTopologyQueriesAreThoseOfTheSample(t *testing.T) {
	content, err := os.ReadFile("../../../config/samples/gates/topology.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var sample v1alpha1.PlacementGate
	if err := yaml.UnmarshalStrict(content, &sample); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sample.Spec.Queries, TopologyQueries()); diff != "" {
		t.Errorf("(-sample +world):\n%s", diff)
	}
}

// A worker admits a job only if one of its blocks has room for all pods, and its scheduler places them there.
func TestPodsStartInOneBlock(t *testing.T) {
	block := func(name string) Pool {
		return Pool{Nodes: 1, Devices: 8, Labels: map[string]string{BlockLevel: name}}
	}
	job := func(name string, at time.Duration, pods int64) Job {
		return Job{Name: name, At: at, Pods: pods, Devices: 2, Topology: BlockLevel, Duration: 10 * time.Minute}
	}
	f := newFixture(t, Spec{Clusters: []Cluster{{Name: "cluster1", Spread: true, Pools: []Pool{block("a"), block("b")}}},
		Jobs: []Job{job("first", 20*time.Second, 3), job("second", 20*time.Second, 2), job("third", time.Minute, 3)}})
	f.run(2 * time.Minute)
	blocks := map[string]string{}
	for p := range f.clusters[0].bound.all() {
		blocks[p.job.spec.Name] += p.node.pool.Labels[BlockLevel]
	}
	// The second job does not take the rest of the block of the first one, which does not suffice. The third one needs
	// three pods in one block, and each block has room for one or two.
	if diff := cmp.Diff(map[string]string{"first": "aaa", "second": "bb"}, blocks); diff != "" {
		t.Errorf("blocks of pods (-want +got):\n%s", diff)
	}
	f.run(15 * time.Minute)
	if s := f.StateOf("third"); !slices.Equal(s.Running, []string{"cluster1"}) {
		t.Errorf("the third job does not run although a block is free: %+v", s)
	}
}
