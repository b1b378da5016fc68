package contract

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The dashboard_url of each alert opens a dashboard with a variable for each of its parameters.
func TestAlertsLinkToDashboards(t *testing.T) {
	known := exportedMetrics(t)
	addRecordingRules(known, readRules(t, recordingFiles...))
	variables := dashboardVariables(t)
	for _, g := range readRules(t, alertFiles...).Groups {
		for _, r := range g.Rules {
			link := r.Annotations["dashboard_url"]
			have, _ := known.check(r.Expr)
			for _, use := range labelUse.FindAllStringSubmatch(link, -1) {
				if !have[use[1]] {
					t.Errorf("the dashboard_url of %s uses %s, but the expression has no such label", r.Alert, use[0])
				}
			}
			parsed, err := url.Parse(labelTemplate.ReplaceAllString(link, "x"))
			if err != nil {
				t.Errorf("the dashboard_url of %s is %q: %v", r.Alert, link, err)
				continue
			}
			uid, isPath := strings.CutPrefix(parsed.Path, "/d/")
			if !isPath || variables[uid] == nil {
				t.Errorf("the dashboard_url of %s is %q: no such dashboard", r.Alert, link)
			}
			for parameter := range parsed.Query() {
				if !slices.Contains(variables[uid], strings.TrimPrefix(parameter, "var-")) {
					t.Errorf("the dashboard_url of %s has %s, but the dashboard has no such variable", r.Alert, parameter)
				}
			}
		}
	}
}

// dashboardVariables returns the names of the variables of each dashboard by its uid.
func dashboardVariables(t *testing.T) map[string][]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "dashboards", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	variables := map[string][]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var board struct {
			UID        string `json:"uid"`
			Templating struct {
				List []struct {
					Name string `json:"name"`
				} `json:"list"`
			} `json:"templating"`
		}
		if err := json.Unmarshal(text, &board); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, v := range board.Templating.List {
			variables[board.UID] = append(variables[board.UID], v.Name)
		}
	}
	return variables
}
