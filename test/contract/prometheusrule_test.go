package contract

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/config"
)

var update = flag.Bool("update", false, "generate operator/docs/metrics.md")

func TestMain(m *testing.M) {
	if err := config.Generate(root); err != nil {
		fmt.Fprintln(os.Stderr, "generate config:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// Each file of rules/ is for workers or the hub, and central has all of them.
func TestPrometheusRulesHaveAllFiles(t *testing.T) {
	all := slices.Sorted(slices.Values(append(slices.Clone(recordingFiles), alertFiles...)))
	single := slices.Concat(config.PrometheusRules["worker"].Files, config.PrometheusRules["hub"].Files)
	slices.Sort(single)
	if diff := cmp.Diff(all, slices.Compact(single)); diff != "" {
		t.Errorf("files of worker and hub (-rules +config):\n%s", diff)
	}
	if diff := cmp.Diff(all, slices.Sorted(slices.Values(config.PrometheusRules["central"].Files))); diff != "" {
		t.Errorf("files of central (-rules +config):\n%s", diff)
	}
}

// rules/README.md names the files of a Prometheus without prometheus-operator. They are those of the
// PrometheusRules: with alerts-hub.yaml on a worker, PlimsollOperatorAbsent would always fire.
func TestReadmeListsTheFilesOfEachPrometheus(t *testing.T) {
	readme := readFile(t, filepath.Join(root, "rules", "README.md"))
	ruleFiles := regexp.MustCompile("`((?:recording|alerts)-[a-z]+\\.yaml)`")
	for _, folder := range []string{"worker", "hub"} {
		_, row, found := strings.Cut(readme, "\n| configuration file, "+folder+" |")
		if !found {
			t.Errorf("rules/README.md has no row for the configuration file of a %s", folder)
			continue
		}
		row, _, _ = strings.Cut(row, "\n")
		var listed []string
		for _, match := range ruleFiles.FindAllStringSubmatch(row, -1) {
			listed = append(listed, match[1])
		}
		if diff := cmp.Diff(config.PrometheusRules[folder].Files, listed); diff != "" {
			t.Errorf("files of a %s (-PrometheusRule +README):\n%s", folder, diff)
		}
	}
}

// Of a rule that is evaluated twice, the second result is rejected as a duplicate sample.
func TestNoPrometheusRuleHasAGroupTwice(t *testing.T) {
	for folder, rules := range config.PrometheusRules {
		seen := map[string]bool{}
		for _, file := range rules.Files {
			for _, g := range readRules(t, file).Groups {
				if seen[g.Name] {
					t.Errorf("config/prometheus/%s/rules.yaml has the group %s twice", folder, g.Name)
				}
				seen[g.Name] = true
			}
		}
	}
}
