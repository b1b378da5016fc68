package gate

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
)

// A default query over a series that no rule records would never find room.
func TestDefaultQueriesReadRecordingRules(t *testing.T) {
	var recording string
	for _, subject := range []string{"nodes", "queues"} {
		content, err := os.ReadFile("../../../../rules/recording-" + subject + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		recording += string(content)
	}
	series := regexp.MustCompile(`[a-z_]+:[a-z_]+:[a-z]+`)
	for _, q := range Queries(&v1alpha1.PlacementGateSpec{}, "cluster") {
		names := series.FindAllString(q.Expr, -1)
		if len(names) == 0 && q.Name != QueryLocalQueues {
			t.Errorf("query %s reads no recording rule: %s", q.Name, q.Expr)
		}
		for _, name := range names {
			if !strings.Contains(recording, "- record: "+name+"\n") {
				t.Errorf("query %s reads %s, which no rule records", q.Name, name)
			}
		}
	}
}

// Which queries a gate has, how often they run, and for which workloads.
func TestQueriesOfAGate(t *testing.T) {
	times := []string{"sampleTime", "quotaTime, remote"}
	fit, measured := []string{"excess", "fit, per shape", "deviceFit, per shape", "requestFit, per shape", "measured, per shape"}, []string{"headroom, per shape, default", "capacity, per shape, default", "largest, per shape"}
	empty, quota := []string{"emptyFit, per shape", "largestNode, per shape"}, []string{"quota, per shape, remote, per queue", "quotaLimit, per shape, remote, per queue", "cpuQuota, per shape, remote, per queue", "memoryQuota, per shape, remote, per queue", "kueue, remote", "localQueues, remote"}
	quotas := []string{"nominalQuota, per shape, remote, reclaims, per queue", "borrowed, per shape, remote, reclaims, per queue"}
	for _, tc := range []struct {
		name string
		spec v1alpha1.PlacementGateSpec
		want []string
	}{
		{"defaults", v1alpha1.PlacementGateSpec{}, slices.Concat(times, fit, empty, measured, quota, quotas)},
		{"own queries for room", v1alpha1.PlacementGateSpec{Queries: v1alpha1.GateQueries{Fit: "q", EmptyFit: "q"}}, slices.Concat(times, fit[1:2], empty, measured, quota, quotas)},
		{"all", v1alpha1.PlacementGateSpec{
			Queries:       v1alpha1.GateQueries{Quota: "q", Preference: "q"},
			Requirements:  []v1alpha1.GateRequirement{{Name: "power", Query: "q"}},
			Prerequisites: []v1alpha1.GatePrerequisite{{Kind: v1alpha1.PrerequisiteSecret}},
		}, slices.Concat(times[:1], fit, empty, measured, []string{"quota, per shape, remote"}, quotas, []string{"preference", "requirements/power, per shape",
			"prerequisites/Secret, remote", "prerequisites/Secret/reported, remote, any namespace"})},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, q := range Queries(&tc.spec, "cluster") {
				text := q.Name
				for _, flag := range []struct {
					name  string
					isSet bool
				}{{"per shape", q.PerShape}, {"remote", q.Remote}, {"reclaims", q.Reclaims}, {"per queue", q.PerQueue}, {"default", q.Default != ""}, {"any namespace", q.AnyNamespace()}} {
					if flag.isSet {
						text += ", " + flag.name
					}
				}
				got = append(got, text)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The query selects owners by name, unless they are too many.
func TestHolderQuery(t *testing.T) {
	const format = `count by (site, namespace, owner_kind, owner_name) (group by (site, namespace, owner_kind, owner_name, pod) (plimsoll_pod_owner_info%s))`
	owners := []ledger.Owner{{Name: "train.1"}, {Name: "eval"}}
	if got, want := HolderQuery("site", owners), fmt.Sprintf(format, `{owner_name=~"train\\.1|eval"}`); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for n, isSelected := range map[int]bool{100: true, 101: false} {
		if got := HolderQuery("site", make([]ledger.Owner, n)) != fmt.Sprintf(format, ""); got != isSelected {
			t.Errorf("%d owners: selected by name is %t, want %t", n, got, isSelected)
		}
	}
}
