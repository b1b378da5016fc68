package contract

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/template"
)

// The dashboard_url of each alert opens a dashboard with a variable for each of its parameters. The
// series of a worker have no label cluster until Thanos or remote write adds it. The link then has
// no such parameter: an empty one would hide the series of all clusters from a central Grafana.
func TestAlertsLinkToDashboards(t *testing.T) {
	known := exportedMetrics(t)
	addRecordingRules(known, readRules(t, recordingFiles...))
	variables := dashboardVariables(t)
	for _, g := range readRules(t, alertFiles...).Groups {
		for _, r := range g.Rules {
			link := r.Annotations["dashboard_url"]
			have, _ := known.check(r.Expr)
			values := map[string]string{}
			for label := range have {
				values[label] = "x"
			}
			for _, use := range labelUse.FindAllStringSubmatch(link, -1) {
				if !have[use[1]] {
					t.Errorf("the dashboard_url of %s uses %s, but the expression has no such label", r.Alert, use[0])
				}
			}
			withCluster := expandTemplate(t, link, values)
			checkLink(t, variables, r.Alert, withCluster)
			delete(values, "cluster")
			checkLink(t, variables, r.Alert, expandTemplate(t, link, values))
			if strings.Contains(link, "cluster") && !strings.Contains(withCluster, "var-cluster=x") {
				t.Errorf("the dashboard_url of %s does not select the cluster: %s", r.Alert, withCluster)
			}
		}
	}
}

// checkLink reports a link of an alert that opens no dashboard, or an empty one.
func checkLink(t *testing.T, variables map[string][]string, alert, link string) {
	t.Helper()
	parsed, err := url.Parse(link)
	if err != nil {
		t.Errorf("the dashboard_url of %s is %q: %v", alert, link, err)
		return
	}
	uid, isPath := strings.CutPrefix(parsed.Path, "/d/")
	if !isPath || variables[uid] == nil {
		t.Errorf("the dashboard_url of %s is %q: no such dashboard", alert, link)
	}
	for parameter, values := range parsed.Query() {
		if !slices.Contains(variables[uid], strings.TrimPrefix(parameter, "var-")) {
			t.Errorf("the dashboard_url of %s has %s, but the dashboard has no such variable", alert, parameter)
		}
		if slices.Contains(values, "") {
			t.Errorf("the dashboard_url of %s is %q: %s is empty", alert, link, parameter)
		}
	}
	if strings.HasSuffix(link, "?") || strings.HasSuffix(link, "&") {
		t.Errorf("the dashboard_url of %s is %q: no parameter after the last character", alert, link)
	}
}

// expandTemplate returns an annotation of an alert with these labels, without external labels.
func expandTemplate(t *testing.T, text string, values map[string]string) string {
	t.Helper()
	data := template.AlertTemplateData(values, nil, "", promql.Sample{})
	expanded, err := template.NewTemplateExpander(t.Context(), "{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}"+text, "test", data, 0, nil, nil, nil).Expand()
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return expanded
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
