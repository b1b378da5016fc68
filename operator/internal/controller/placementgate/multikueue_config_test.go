package placementgate

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/membership"
)

func TestDecideConfigured(t *testing.T) {
	clusters := make([]string, 25)
	for i := range clusters {
		clusters[i] = fmt.Sprint("c", i)
	}
	for _, tc := range []struct {
		name    string
		owners  map[string]string // of the existing MultiKueueClusters
		plan    membership.Result
		reason  string
		message string
	}{
		{"more clusters than a configuration may contain", nil, membership.Result{Clusters: clusters[:20], Truncated: clusters[20:]}, "ClustersTruncated",
			"MultiKueueConfig plimsoll-gpu contains the maximum of 20 clusters; another cluster takes the place of an unused one once a workload fits nowhere else; left out: c20, c21, c22, c23, c24"},
		{"connections that the configuration no longer contains", map[string]string{"c0": "gpu", "c3": "gpu", "c2": "gpu", "c4": "other"},
			membership.Result{Clusters: []string{"c0"}}, "Written",
			"MultiKueueConfig plimsoll-gpu contains c0; Kueue stays connected to c2, c3, which the configuration no longer contains, until \"kubectl plimsoll release gpu --unused\""},
		{"connections that the gate did not create", map[string]string{"c0": "", "c1": "other", "c2": "gpu"},
			membership.Result{Clusters: []string{"c0", "c1", "c2"}}, "Written",
			"MultiKueueConfig plimsoll-gpu contains c0, c1, c2; this gate did not create these MultiKueueClusters and does not change them: c0, c1 (of PlacementGate other)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := newInput(clusters...)
			for name, owner := range tc.owners {
				in.mkClusters[name] = newForeignCluster(name, owner)
			}
			got := decideConfigured(in, tc.plan)
			if got.Reason != tc.reason || got.Message != tc.message {
				t.Errorf("got %s: %s", got.Reason, got.Message)
			}
		})
	}
}

func TestDecideConfigurationWritesNothing(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*input)
		reason string
	}{
		{"no multiKueue", func(in *input) { in.gate.Spec.MultiKueue = nil }, "NotWanted"},
		{"configuration of another gate", func(in *input) { in.config = newConfig("plimsoll-gpu", "other", "cluster1") }, "NotOurs"},
		{"no decisions and no configuration", func(in *input) { in.clusters = nil }, "NoDecisions"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := newInput("cluster1", "cluster2")
			tc.change(in)
			got := decideConfiguration(in, &membership.History{}, now)
			if got.configured.Reason != tc.reason || len(got.members)+len(got.create)+len(got.change) > 0 {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestForeignConfigStopsTheGate(t *testing.T) {
	for _, tc := range []struct{ name, owner, want string }{
		{"own configuration", "gpu", ""},
		{"configuration without owner", "", "MultiKueueConfig shared was not created by a PlacementGate"},
		{"configuration of another gate", "other", "MultiKueueConfig shared belongs to PlacementGate other"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := newInput("cluster1")
			in.config = newConfig("shared", tc.owner)
			want := tc.want
			if want != "" {
				want += ", so gate gpu neither changes it nor admits workloads; set spec.multiKueue.configName to another name"
			}
			if got := in.registryEntry(nil).Problem; got != want {
				t.Errorf("the registry entry has the problem %q, want %q", got, want)
			}
		})
	}
}

// Only Kueue's own dispatcher uses the order of the configuration.
func TestMembersFollowPreferredScoresWithoutNomination(t *testing.T) {
	in := newInput("expired", "unusable", "missing", "good")
	in.nominate = false
	in.gate.Spec.Scores = []v1alpha1.GateScore{{ResourceName: "fleet", ScoreName: "total", Use: v1alpha1.UsePrefer}, {ResourceName: "fleet", ScoreName: "health", Use: v1alpha1.UseRequire}}
	in.clusters[0].Scores = map[string]gate.Score{"fleet/total": {Value: 90, ValidUntil: now.Add(-time.Second)}}
	in.clusters[1].Scores = map[string]gate.Score{"fleet/total": {Value: -100}}
	in.clusters[3].Scores = map[string]gate.Score{"fleet/total": {Value: 60, ValidUntil: now.Add(time.Second)}}
	got := decideConfiguration(in, &membership.History{}, now)
	if want := []string{"good", "unusable", "expired", "missing"}; !slices.Equal(got.members, want) {
		t.Errorf("order %v, want %v", got.members, want)
	}
	if !strings.HasPrefix(got.configured.Message, "MultiKueueConfig plimsoll-gpu contains good, unusable, expired, missing") {
		t.Errorf("message %q", got.configured.Message)
	}
}

func TestMembersAreSortedWithNomination(t *testing.T) {
	in := newInput("cluster2", "cluster1")
	in.gate.Spec.Scores = []v1alpha1.GateScore{{ResourceName: "fleet", ScoreName: "total", Use: v1alpha1.UsePrefer}}
	in.clusters[0].Scores = map[string]gate.Score{"fleet/total": {Value: 90}}
	in.config = newConfig("plimsoll-gpu", "gpu", "cluster1", "cluster2")
	var history membership.History
	for round := range 4 {
		got := decideConfiguration(in, &history, now.Add(time.Duration(round)*time.Minute))
		if want := []string{"cluster1", "cluster2"}; !slices.Equal(got.members, want) {
			t.Errorf("round %d: order %v, want %v", round, got.members, want)
		}
	}
}
