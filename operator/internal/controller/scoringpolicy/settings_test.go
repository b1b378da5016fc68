package scoringpolicy

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/scoring/round"
	"plimsoll.dev/plimsoll/operator/internal/scoring/score"
)

// The samples of a cluster are usually 25 s old: the exporter, the scrape and the rules have a
// period each. One failed query must not set the fleet to -100.
func TestSamplePolicyKeepsScoresOverAFailedQuery(t *testing.T) {
	content, err := os.ReadFile("../../../../config/samples/hub/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var policy v1alpha1.ScoringPolicy
	if err := yaml.UnmarshalStrict(content, &policy); err != nil {
		t.Fatal(err)
	}
	compiled, _, err := round.Compile(&policy.Spec, "cluster")
	if err != nil {
		t.Fatal(err)
	}
	spec := *compiled
	if warnings := settingsWarnings(&spec, 3, 3); len(warnings) > 0 {
		t.Errorf("warnings %q", warnings)
	}
	fleet := fakeFleet{clusters: []string{"c1", "c2", "c3"}, values: map[string]map[string]float64{
		spec.Freshness.Query: {"c1": 25, "c2": 25, "c3": 25},
		spec.Scores[0].Query: {"c1": 8, "c2": 16, "c3": 32},
		spec.Scores[1].Query: {"c1": 0.5, "c2": 0.5, "c3": 0.5},
	}}
	good := fleet.round(spec, nil, now).report.Result
	fleet.failures = map[string]error{spec.Scores[0].Query: errors.New("timeout"), spec.Scores[1].Query: errors.New("timeout")}
	failed := fleet.round(spec, good, now.Add(time.Duration(spec.PeriodSeconds)*time.Second)).report.Result
	for i, c := range failed.Cells {
		if before := good.Cells[i]; before.State != score.Scored || c.State != score.Kept || c.Value != before.Value {
			t.Errorf("cell %d: %v %d after the failed query, %v %d before", i, c.State, c.Value, before.State, before.Value)
		}
	}
}

func TestSettingsWarnings(t *testing.T) {
	seconds := func(n int32) *int32 { return &n }
	for _, tc := range []struct {
		name            string
		period          int32
		keepLast        *int32
		maxAge          int32 // 0 = without freshness
		fullRange       bool
		shadow          bool
		selected        int
		wantKeep, wantZ bool
	}{
		{name: "defaults", selected: 3},
		{name: "no keep time", keepLast: seconds(0), selected: 3},
		{name: "keep time of one period", keepLast: seconds(30), selected: 3, wantKeep: true},
		{name: "keep time of more than one period", keepLast: seconds(31), selected: 3},
		{name: "keep time of the period and the age", period: 15, keepLast: seconds(75), maxAge: 60, selected: 3, wantKeep: true},
		{name: "keep time of more than both", period: 15, keepLast: seconds(76), maxAge: 60, selected: 3},
		{name: "default keep time of a long period", period: 86400, maxAge: 60, selected: 3},
		{name: "in shadow", period: 300, keepLast: seconds(300), fullRange: true, shadow: true, selected: 2, wantKeep: true},
		{name: "range Full beside clusters that are not selected", fullRange: true, selected: 2, wantZ: true},
		{name: "both", period: 300, keepLast: seconds(300), fullRange: true, selected: 2, wantKeep: true, wantZ: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spec := newSpec("free")
			spec.PeriodSeconds, spec.Scores[0].Missing.KeepLastSeconds = tc.period, tc.keepLast
			if tc.maxAge > 0 {
				spec.Freshness = &v1alpha1.Freshness{Query: "age", MaxAgeSeconds: tc.maxAge}
			}
			if tc.fullRange {
				spec.Scores[0].Range = v1alpha1.RangeFull
			}
			if tc.shadow {
				spec.Mode = v1alpha1.ModeShadow
			}
			warnings := settingsWarnings(&spec, 3, tc.selected)
			contains := func(text string) bool {
				return slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, text) })
			}
			if contains("missing.keepLastSeconds of a must be more than") != tc.wantKeep || contains("clusterSelector leaves out") != tc.wantZ {
				t.Errorf("warnings %q, want one about the keep time: %v, about the selector: %v", warnings, tc.wantKeep, tc.wantZ)
			}
		})
	}
}
