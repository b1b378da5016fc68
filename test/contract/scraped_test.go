package contract

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"

	"plimsoll.dev/plimsoll/config"
)

// scrapeJobs are the jobs for the metrics with a prefix.
var scrapeJobs = map[string]string{
	"DCGM_": "plimsoll-exporter", "plimsoll_exporter_": "plimsoll-exporter", "plimsoll_device_": "plimsoll-exporter", "plimsoll_node_": "plimsoll-exporter",
	"plimsoll_pod_": "plimsoll-exporter", "plimsoll_xid_": "plimsoll-exporter", "kube_": "kube-state-metrics", "kueue_": "kueue", "prometheus_": "prometheus",
	"leader_election_": "plimsoll-operator",
}

// jobOf returns the job that scrapes a selector's metric. Of plimsoll_build_info{component="operator"}, it
// is the operator's. Without the matcher, versions are compared: only exporters are on many nodes.
func jobOf(t *testing.T, s *parser.VectorSelector) string {
	t.Helper()
	if s.Name == "plimsoll_build_info" {
		for _, m := range s.LabelMatchers {
			if m.Name == "component" && m.Value == "operator" {
				return "plimsoll-operator"
			}
		}
		return "plimsoll-exporter"
	}
	if operatorMetrics[s.Name] != nil {
		return "plimsoll-operator"
	}
	for prefix, job := range scrapeJobs {
		if strings.HasPrefix(s.Name, prefix) {
			return job
		}
	}
	t.Errorf("no job is known for the metric %s", s.Name)
	return ""
}

// scraper evaluates which expressions have results in a Prometheus with some rules and jobs.
type scraper struct {
	recorded map[string][]parser.Expr
	jobs     map[string]bool
	reading  map[string]bool // rules of the present path, which read their own results
}

// evaluates returns whether an expression can have a result. Of alternatives, one suffices. What
// `unless` removes may be absent.
func (s *scraper) evaluates(t *testing.T, e parser.Expr) bool {
	t.Helper()
	switch e := e.(type) {
	case *parser.VectorSelector:
		return s.selects(t, e)
	case *parser.BinaryExpr:
		switch e.Op {
		case parser.LUNLESS:
			return s.evaluates(t, e.LHS)
		case parser.LOR:
			return s.evaluates(t, e.LHS) || s.evaluates(t, e.RHS)
		}
	}
	for child := range parser.ChildrenIter(e) {
		if child, isExpr := child.(parser.Expr); isExpr && !s.evaluates(t, child) {
			return false
		}
	}
	return true
}

func (s *scraper) selects(t *testing.T, selector *parser.VectorSelector) bool {
	t.Helper()
	if !strings.Contains(selector.Name, ":") {
		return s.jobs[jobOf(t, selector)]
	}
	if s.reading[selector.Name] {
		return false
	}
	s.reading[selector.Name] = true
	defer delete(s.reading, selector.Name)
	return slices.ContainsFunc(s.recorded[selector.Name], func(e parser.Expr) bool { return s.evaluates(t, e) })
}

// The alerts of a worker and of a hub can fire: config/prometheus scrapes what they read, and has the
// rules that they read. kube-state-metrics and Prometheus itself are scraped by what
// prometheus-operator is installed with.
func TestAlertsReadWhatIsScraped(t *testing.T) {
	jobName := regexp.MustCompile(`targetLabel: job, replacement: ([a-z-]+)`)
	example := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^- job_name: ([a-z-]+)`).FindAllStringSubmatch(readFile(t, filepath.Join(root, "config", "prometheus", "prometheus.yaml")), -1) {
		example[m[1]] = true
	}
	for folder, monitors := range map[string][]string{
		"worker": {"worker/exporter.yaml", "kueue/monitor.yaml"}, "hub": {"hub/operator.yaml", "kueue/monitor.yaml"},
	} {
		jobs := map[string]bool{"kube-state-metrics": true, "prometheus": true}
		for _, file := range monitors {
			for _, m := range jobName.FindAllStringSubmatch(readFile(t, filepath.Join(root, "config", "prometheus", file)), -1) {
				jobs[m[1]] = true
			}
		}
		if len(jobs) != 4 {
			t.Errorf("%s scrapes %v, want four jobs", folder, slices.Sorted(maps.Keys(jobs)))
		}
		for job := range jobs {
			if !example[job] {
				t.Errorf("prometheus.yaml does not have the job %s of a %s", job, folder)
			}
		}
		rules := readRules(t, config.PrometheusRules[folder].Files...)
		scraped := &scraper{recorded: map[string][]parser.Expr{}, jobs: jobs, reading: map[string]bool{}}
		expressions := map[string]parser.Expr{}
		for _, g := range rules.Groups {
			for _, r := range g.Rules {
				e, err := parser.NewParser(parser.Options{}).ParseExpr(r.Expr)
				if err != nil {
					t.Fatal(err)
				}
				if r.Record != "" {
					scraped.recorded[r.Record] = append(scraped.recorded[r.Record], e)
					continue
				}
				expressions[r.Alert+" "+r.Labels["severity"]] = e
			}
		}
		if expressions["PlimsollRuleGroupSlow warning"] == nil {
			t.Errorf("nothing alerts if the rules of a %s take too long", folder)
		}
		for alert, e := range expressions {
			if !scraped.evaluates(t, e) {
				t.Errorf("%s cannot fire on a %s: nothing there scrapes or records what it reads", alert, folder)
			}
		}
	}
}
