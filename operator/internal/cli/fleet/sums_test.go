package fleet

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A sum of which no cluster is known is unknown, not 0.
func TestSums(t *testing.T) {
	of := func(free, total int) []Devices { return []Devices{{Resource: "gpu", Free: free, Total: total}} }
	for name, tc := range map[string]struct {
		clusters []Cluster
		want     []Sum
	}{
		"all known":  {[]Cluster{{Cluster: "a", Devices: of(1, 2)}, {Cluster: "b", Devices: of(0, 8)}}, []Sum{{Resource: "gpu", Free: 1, Total: 10}}},
		"one known":  {[]Cluster{{Cluster: "a", Devices: of(1, 2)}, {Cluster: "b"}}, []Sum{{Resource: "gpu", Free: 1, Total: 2, Without: []string{"b"}}}},
		"none known": {[]Cluster{{Cluster: "a", Devices: of(UnknownCount, 2)}, {Cluster: "b", Devices: of(1, UnknownCount)}}, []Sum{{Resource: "gpu", Free: UnknownCount, Total: UnknownCount, Without: []string{"a", "b"}}}},
		"the only one with the resource is unknown": {[]Cluster{{Cluster: "a", Devices: of(UnknownCount, 2)}, {Cluster: "b", Devices: []Devices{{Resource: "tpu", Free: 4, Total: 4}}}},
			[]Sum{{Resource: "gpu", Free: UnknownCount, Total: UnknownCount, Without: []string{"a"}}, {Resource: "tpu", Free: 4, Total: 4}}},
		"no devices": {[]Cluster{{Cluster: "a"}}, nil},
	} {
		if d := cmp.Diff(tc.want, Sums(tc.clusters)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
	if got := Number(UnknownCount).String() + Number(3).String(); got != "?3" {
		t.Error(got)
	}
}
