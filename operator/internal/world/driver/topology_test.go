//go:build !race

package driver

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/world"
	"plimsoll.dev/plimsoll/operator/internal/world/metrics"
)

// blocks are a cluster of equal nodes with H100 GPUs, with the given number of them in each block.
func blocks(name string, sizes ...int) world.Cluster {
	c := world.Cluster{Name: name}
	for i, n := range sizes {
		c.Pools = append(c.Pools, world.Pool{Nodes: n, Model: h100, Devices: 8, Labels: map[string]string{world.BlockLevel: string(rune('a' + i))}})
	}
	return c
}

// oneBlock has a cluster with many free devices in four blocks, and one with fewer in one block. Jobs of four pods that
// require one block fit only there, one after the other. A job that requires none starts on the cluster with more.
func oneBlock() world.Spec {
	s := world.Spec{Name: "one block has room", Seed: 1, Clusters: []world.Cluster{blocks("cluster1", 1, 1, 1, 1), blocks("cluster2", 2)},
		Jobs: []world.Job{{Name: "near", At: time.Minute, Topology: world.BlockLevel}, {Name: "next", At: 2 * time.Minute, Topology: world.BlockLevel}, {Name: "anywhere", At: 3 * time.Minute}}}
	for i := range s.Jobs {
		s.Jobs[i].Pods, s.Jobs[i].Devices, s.Jobs[i].Duration = 4, 4, 10*time.Minute
	}
	s.Settings.Gate.Queries = world.TopologyQueries()
	return s
}

// TestOneBlock shows where jobs go that require a domain, with the shipped rules and with their closed form.
func TestOneBlock(t *testing.T) {
	rules, err := metrics.LoadRules(filepath.Join("..", "..", "..", "..", "rules"))
	if err != nil {
		t.Fatal(err)
	}
	for name, spec := range map[string]world.Spec{"closed form": oneBlock(), "rules": oneBlock()} {
		t.Run(name, func(t *testing.T) {
			spec.Settings.Rules = name == "rules"
			w := Run(t, spec, Options{Verbose: printLog(), Rules: rules})
			for _, r := range w.Runs() {
				want := []string{"cluster2"}
				if r.Topology == "" {
					want = []string{"cluster1"}
				}
				if !slices.Equal(r.Nominated, want) {
					t.Errorf("%s was nominated to %v, want %v", r.Name, r.Nominated, want)
				}
			}
			if waits := `gate on next: Pending "no cluster has room for 4 pods`; !strings.Contains(w.Log(), waits) {
				t.Errorf("the log does not have %q", waits)
			}
			for _, p := range w.Problems {
				t.Error(p)
			}
		})
	}
}
