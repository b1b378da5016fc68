package contract

import (
	"cmp"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"sigs.k8s.io/yaml"
)

var firingAlert = regexp.MustCompile(`alertname="(\w+)",severity="(\w+)"`)

// Each alert fires, and ends, in one unit test of promtool that lists all alerts that fire.
func TestEveryAlertEnds(t *testing.T) {
	ends := map[string]bool{}
	files, err := filepath.Glob(filepath.Join(root, "rules", "tests", "*recovery_test.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		for name := range endingAlerts(t, file) {
			ends[name] = true
		}
	}
	for _, g := range readRules(t, alertFiles...).Groups {
		for _, r := range g.Rules {
			if name := r.Alert + " " + r.Labels["severity"]; !ends[name] {
				t.Errorf("no unit test in rules/tests/*recovery_test.yaml shows that %s fires and ends", name)
			}
		}
	}
}

// endingAlerts returns the alerts, by name and severity, that fire in a test of the file and later
// do not.
func endingAlerts(t *testing.T, file string) map[string]bool {
	t.Helper()
	type moment struct {
		Expr     string         `json:"expr"`
		EvalTime model.Duration `json:"eval_time"`
		Samples  []struct {
			Labels string `json:"labels"`
		} `json:"exp_samples"`
	}
	var content struct {
		Tests []struct {
			Moments []moment `json:"promql_expr_test"`
		} `json:"tests"`
	}
	if err := yaml.Unmarshal([]byte(readFile(t, file)), &content); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	ended := map[string]bool{}
	for _, test := range content.Tests {
		moments := slices.DeleteFunc(test.Moments, func(m moment) bool {
			return m.Expr != `count by (alertname, severity) (ALERTS{alertstate="firing"})`
		})
		slices.SortFunc(moments, func(a, b moment) int { return cmp.Compare(time.Duration(a.EvalTime), time.Duration(b.EvalTime)) })
		fired := map[string]bool{}
		for _, m := range moments {
			now := map[string]bool{}
			for _, s := range m.Samples {
				if match := firingAlert.FindStringSubmatch(s.Labels); match != nil {
					now[match[1]+" "+match[2]] = true
				}
			}
			for name := range fired {
				ended[name] = ended[name] || !now[name]
			}
			for name := range now {
				fired[name] = true
			}
		}
	}
	return ended
}
