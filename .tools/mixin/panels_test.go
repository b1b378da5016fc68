package mixin

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-jsonnet"
)

// panel is a panel of a dashboard as JSON.
type panel struct{ title, text string }

// panels returns the panels of all dashboards by file and id.
func (r rendered) panels(t *testing.T) map[string]panel {
	t.Helper()
	found := map[string]panel{}
	var add func(file string, panels any)
	add = func(file string, panels any) {
		list, _ := panels.([]any)
		for _, p := range list {
			fields := p.(map[string]any)
			add(file, fields["panels"])
			delete(fields, "panels")
			var text strings.Builder
			encoder := json.NewEncoder(&text)
			encoder.SetEscapeHTML(false)
			if err := encoder.Encode(fields); err != nil {
				t.Fatal(err)
			}
			found[fmt.Sprint(file, " ", fields["id"])] = panel{fields["title"].(string), text.String()}
		}
	}
	for file, board := range r.Dashboards {
		add(file, board.(map[string]any)["panels"])
	}
	return found
}

// Each setting changes the panels that compare with it or name it, and no others. No other panel has the
// default.
func TestThresholdsAndObjectiveOfPanels(t *testing.T) {
	before := render(t, "{}", andDashboards).panels(t)
	for _, tc := range []struct {
		change string
		want   map[string][]string // texts by title
		old    string              // what no panel has any more
	}{
		{"{ thresholds+: { idleSeconds: 3600 } }", map[string][]string{
			"Idle": {"> 3600)", "for 60 minutes"}, "Idle devices": {"for 60 minutes"},
		}, `> 1800|30 minutes`},
		{"{ thresholds+: { idleUtilization: 0.05 } }", map[string][]string{
			"Idle": {"less than 5%"}, "Idle devices": {"less than 5%"}, "Wasted device-hours": {"less than 5%"}, "Device-hours of the last 7 days": {"less than 5%"},
		}, `less than 1%|< 0\.01`},
		{"{ thresholds+: { namespaceIdleRatio: 0.25 } }", map[string][]string{"Device-hours of the last 7 days": {`"value":0.25}`}}, `"orange","value":0.5}`},
		{"{ thresholds+: { throttledRatio: 0.15 } }", map[string][]string{
			"Throttled": {"> 0.15)", "more than 15%"}, "Devices": {`"value":0.15}`},
		}, `> 0\.05|more than 5%|"value":0.05}`},
		{"{ thresholds+: { stragglerRatio: 0.85 } }", map[string][]string{
			"Stragglers":          {"clock:ratio{cluster=~\\\"$cluster\\\",namespace=~\\\"$namespace\\\",owner_name=~\\\"$owner\\\"} < 0.85 or", "} < 0.85))", "below 85%"},
			"Devices of the jobs": {`"value":0.15}`},
		}, `< 0\.9|below 90%`},
		{"{ thresholds+: { interferenceUtilization: 0.85 } }", map[string][]string{"Interference on shared devices": {"Above 85%"}}, `bove 70%`},
		{"{ thresholds+: { tpuStalledSeconds: 1200 } }", map[string][]string{
			"Stalled": {"> 1200)", "for 20 minutes"}, "State of nodes": {"> bool 1200)) > 0 or", "@ end() > bool 1200)"}, "Chips": {`"value":1200}`}, "Longest stall of nodes": {`"value":1200}`},
		}, `> (bool )?600|for 10 minutes|"value":600}`},
		{"{ thresholds+: { gateWaitSeconds: 7200 } }", map[string][]string{"Longest wait": {`"value":7200}`}, "Gates": {`"value":7200}`}}, `"value":1800}`},
		{"{ objective+: { share: 0.95 } }", map[string][]string{"Starts within 640 seconds": {"alerts is 5%", `"value":0.05}`}}, `objective of the alerts is 10%`},
		{"{ objective+: { seconds: 320 } }", map[string][]string{"Starts within 320 seconds": {"longer than 320 s"}}, `640 s`},
	} {
		t.Run(tc.change, func(t *testing.T) {
			changed := map[string]bool{}
			old := regexp.MustCompile(tc.old)
			for id, p := range render(t, tc.change, andDashboards).panels(t) {
				if found := old.FindString(p.text); found != "" {
					t.Errorf("%s still has %q: %s", id, found, p.text)
				}
				if p == before[id] {
					continue
				}
				changed[p.title] = true
				for _, want := range tc.want[p.title] {
					if !strings.Contains(p.text, want) {
						t.Errorf("%s does not contain %s: %s", p.title, want, p.text)
					}
				}
			}
			if diff := cmp.Diff(slices.Sorted(maps.Keys(tc.want)), slices.Sorted(maps.Keys(changed))); diff != "" {
				t.Errorf("changed panels (-want +got):\n%s", diff)
			}
		})
	}
}

// PlimsollStartsLate compares a share of starts with six times of what may be late. At 1 or more,
// it would never fire.
func TestShareOfObjectiveHasARange(t *testing.T) {
	for share, valid := range map[string]bool{"0.8": false, "5/6": false, "0.84": true, "1": true, "95": false} {
		for _, part := range []string{"prometheusRules", "prometheusAlerts", "grafanaDashboards"} {
			_, err := jsonnet.MakeVM().EvaluateAnonymousSnippet("test.jsonnet", fmt.Sprintf(
				`((import '%s/config/prometheus/mixin.libsonnet') + { _config+:: { objective+: { share: %s } } }).%s`, root, share, part))
			if valid && err != nil {
				t.Errorf("%s with the share %s: %v", part, share, err)
			}
			if !valid && (err == nil || !strings.Contains(err.Error(), "PlimsollStartsLate") || !strings.Contains(err.Error(), "above 5/6 and at most 1")) {
				t.Errorf("%s with the share %s: %v, want a message that names the alert and the range", part, share, err)
			}
		}
	}
}
