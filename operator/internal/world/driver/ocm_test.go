//go:build !race

package driver

import (
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/operator/internal/world"
)

// decisions are those of OCM in a world's log, with their minutes.
func decisions(w *world.World) (list []string) {
	for _, m := range regexp.MustCompile(`(?m)^ *(\d+)\.\d+s OCM decides (.*)$`).FindAllStringSubmatch(w.Log(), -1) {
		list = append(list, m[1]+" s: "+m[2])
	}
	return list
}

// TestPlacement shows which clusters OCM's placement decides, and that jobs follow.
func TestPlacement(t *testing.T) {
	fleet := []world.Cluster{nodes("cluster1", 1, 8), nodes("cluster2", 8, 8)}
	lost := func(lasts time.Duration) []world.Fault {
		return []world.Fault{{Kind: world.Leaves, Cluster: "cluster2", At: 5 * time.Minute, Lasts: lasts}}
	}
	// The second job fits on cluster2 only.
	jobs := []world.Job{{Name: "first", At: time.Minute, Devices: 8, Duration: 20 * time.Minute}, {Name: "second", At: 12 * time.Minute, Pods: 2, Devices: 8, Duration: time.Minute}}
	tolerant, best := world.Settings{Toleration: 5 * time.Minute}, world.Settings{Score: freeDevices, NumberOfClusters: 1}
	for _, tc := range []struct {
		spec world.Spec
		want []string
	}{
		{world.Spec{Name: "an agent that is lost for a short time", Settings: tolerant, Faults: lost(4 * time.Minute)}, []string{"0 s: [cluster1 cluster2]"}},
		{world.Spec{Name: "an agent that is lost for a long time", Settings: tolerant, Faults: lost(10 * time.Minute)},
			[]string{"0 s: [cluster1 cluster2]", "600 s: [cluster1]", "900 s: [cluster1 cluster2]"}},
		{world.Spec{Name: "a lost agent without tolerations", Faults: lost(time.Minute)}, []string{"0 s: [cluster1 cluster2]", "300 s: [cluster1]", "360 s: [cluster1 cluster2]"}},
		{world.Spec{Name: "the cluster with the best score", Settings: best, Faults: lost(time.Minute)}, []string{"0 s: [cluster1]", "42 s: [cluster2]", "300 s: [cluster1]", "360 s: [cluster2]"}},
		{world.Spec{Name: "a score that has expired", Settings: best, Faults: append(lost(time.Minute), world.Fault{Kind: world.OperatorDown, At: 2 * time.Minute, Lasts: 8 * time.Minute})},
			[]string{"0 s: [cluster1]", "42 s: [cluster2]", "300 s: [cluster1]", "600 s: [cluster2]"}},
	} {
		t.Run(tc.spec.Name, func(t *testing.T) {
			tc.spec.Seed, tc.spec.Clusters, tc.spec.Jobs = 1, fleet, jobs
			w := Run(t, tc.spec, Options{Verbose: printLog()})
			if diff := cmp.Diff(tc.want, decisions(w)); diff != "" {
				t.Errorf("decisions (-want +got):\n%s", diff)
			}
			for _, p := range w.Problems {
				t.Error(p)
			}
		})
	}
}
