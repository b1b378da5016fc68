//go:build integration && long

package bench

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/test/look/scripted"
)

// A Prometheus needs about 4 kB of memory for each series, and a device has 32.
var (
	ruleClusters = flag.Int("clusters", 1, "TestRuleCost: number of clusters")
	ruleNodes    = flag.Int("nodes", 100, "TestRuleCost: number of nodes of a cluster")
	ruleDevices  = flag.Int("devices", 8, "TestRuleCost: number of devices of a node")
	ruleInterval = flag.Duration("interval", 15*time.Second, "TestRuleCost: evaluation interval of groups without one of their own")
	ruleTime     = flag.Duration("measure", 9*time.Minute, "TestRuleCost: time to measure, at least two intervals of the slowest group")
)

// groupCost is the interval of a rule group and its slowest evaluation.
type groupCost struct{ interval, slowest time.Duration }

// TestRuleCost prints how long a real Prometheus takes to evaluate each rule group. Each
// must end within a third of its interval, or slow scrapes and queries make it late.
func TestRuleCost(t *testing.T) {
	exporters := newTargets(*ruleNodes, *ruleDevices)
	targets := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = w.Write(exporters.of(strings.TrimPrefix(r.URL.Path, "/"), time.Now())) // Prometheus closed the connection.
	}))
	defer targets.Close()
	address := startRulePrometheus(t, strings.TrimPrefix(targets.URL, "http://"))
	waitUntil(t, "the scrapes of all clusters", 10*time.Minute, func() bool {
		return instant(t, address, `sum(up{job=~"cluster-.+"})`) == float64(*ruleClusters)
	})

	// The first evaluation creates the series of the rules.
	waitUntil(t, "the first evaluation of all groups", 10*time.Minute, func() bool {
		return instant(t, address, `min(prometheus_rule_group_last_evaluation_timestamp_seconds)`) > 0
	})

	costs := map[string]groupCost{}
	for deadline := time.Now().Add(*ruleTime); time.Now().Before(deadline); time.Sleep(5 * time.Second) {
		metrics, err := fetch("http://" + address + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		readGroupCosts(metrics, costs)
	}
	if len(costs) < 10 {
		t.Fatalf("Prometheus evaluated %d groups", len(costs))
	}
	t.Logf("%d clusters of %d nodes with %d devices: %.0f series, %.1f GiB resident", *ruleClusters, *ruleNodes, *ruleDevices,
		instant(t, address, "prometheus_tsdb_head_series"), instant(t, address, `process_resident_memory_bytes{job="prometheus"}`)/(1<<30))
	t.Log("| group | interval | slowest evaluation | of the interval |")
	for _, name := range slices.Sorted(maps.Keys(costs)) {
		c := costs[name]
		share := c.slowest.Seconds() / c.interval.Seconds()
		t.Logf("| %s | %s | %s | %.1f%% |", name, c.interval, c.slowest.Round(time.Millisecond), 100*share)
		if share > 1.0/3 {
			t.Errorf("%s takes more than a third of its interval", name)
		}
	}
	logSlowestRules(t, address)
	if missed := instant(t, address, "sum(prometheus_rule_evaluation_failures_total)"); missed > 0 {
		t.Errorf("%v evaluations failed", missed)
	}
}

// targets are the exporters of clusters of the same size, which differ in the label cluster and in the
// names of their nodes.
type targets struct {
	fleet *scripted.Fleet
	mu    sync.Mutex
	at    time.Time
	text  []byte // of the first cluster
}

func newTargets(nodes, devices int) *targets {
	return &targets{fleet: scripted.NewUniform(time.Now(), nodes, devices)}
}

// of returns the series of a cluster, which are at most as old as the collections of the exporter. One
// text serves all clusters, so that the processor time is that of Prometheus.
func (x *targets) of(cluster string, now time.Time) []byte {
	x.mu.Lock()
	defer x.mu.Unlock()
	if now.Sub(x.at) > 10*time.Second {
		var text bytes.Buffer
		x.fleet.Write(&text, now)
		x.at, x.text = now, text.Bytes()
	}
	return bytes.ReplaceAll(x.text, []byte("cluster-0"), []byte(cluster))
}

// logSlowestRules prints the rules that took longest at their last evaluation.
func logSlowestRules(t *testing.T, address string) {
	t.Helper()
	body, err := fetch("http://" + address + "/api/v1/rules")
	if err != nil {
		t.Fatal(err)
	}
	type rule struct {
		Name           string  `json:"name"`
		EvaluationTime float64 `json:"evaluationTime"` // seconds
	}
	var response struct {
		Data struct {
			Groups []struct {
				Rules []rule `json:"rules"`
			} `json:"groups"`
		} `json:"data"`
	}
	if err := json.Unmarshal([]byte(body), &response); err != nil {
		t.Fatal(err)
	}
	var all []rule
	for _, g := range response.Data.Groups {
		all = append(all, g.Rules...)
	}
	slices.SortFunc(all, func(a, b rule) int { return cmp.Compare(b.EvaluationTime, a.EvaluationTime) })
	t.Log("| rule | last evaluation |")
	for _, r := range all[:min(10, len(all))] {
		t.Logf("| %s | %.3f s |", r.Name, r.EvaluationTime)
	}
}

// startRulePrometheus runs a Prometheus with all rules, which scrapes each cluster of the target. It
// returns its address.
func startRulePrometheus(t *testing.T, target string) string {
	t.Helper()
	dir := t.TempDir()
	rules, err := filepath.Abs(filepath.Join(root, "rules"))
	if err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	var config strings.Builder
	fmt.Fprintf(&config, `global: {scrape_interval: %[4]s, scrape_timeout: %[4]s, evaluation_interval: %[3]s}
rule_files: [%[1]s/recording-*.yaml, %[1]s/alerts-*.yaml]
scrape_configs:
- job_name: prometheus
  static_configs: [{targets: [%[2]s]}]
  metric_relabel_configs: [{source_labels: [__name__], regex: 'prometheus_.*|process_.*', action: keep}]
`, rules, address, *ruleInterval, max(30*time.Second, *ruleInterval/2))
	for i := range *ruleClusters {
		fmt.Fprintf(&config, `- job_name: cluster-%[1]d
  metrics_path: /cluster-%[1]d
  honor_labels: true
  static_configs: [{targets: [%[2]s]}]
`, i, target)
	}
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, output(t, "go", "run", "./test/lab", "path", "prometheus"), "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address, "--log.level=error")
	waitUntil(t, "Prometheus", time.Minute, func() bool {
		_, err := fetch("http://" + address + "/-/ready")
		return err == nil
	})
	return address
}

var groupMetric = regexp.MustCompile(`(?m)^prometheus_rule_group_(interval|last_duration)_seconds\{rule_group="[^"]*;([^"]+)"\} (\S+)$`)

// readGroupCosts reads the interval and the last duration of each group, and keeps the longest.
func readGroupCosts(metrics string, costs map[string]groupCost) {
	for _, m := range groupMetric.FindAllStringSubmatch(metrics, -1) {
		seconds, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			continue // Prometheus exports numbers only.
		}
		c, d := costs[m[2]], time.Duration(seconds*float64(time.Second))
		if m[1] == "interval" {
			c.interval = d
		} else {
			c.slowest = max(c.slowest, d)
		}
		costs[m[2]] = c
	}
}

// instant returns the value of a query with one result, and 0 without a result.
func instant(t *testing.T, address, query string) float64 {
	t.Helper()
	body, err := fetch("http://" + address + "/api/v1/query?query=" + url.QueryEscape(query))
	if err != nil {
		t.Fatal(err)
	}
	var response struct {
		Data struct {
			Result []struct {
				Value [2]any `json:"value"`
			} `json:"result"`
		} `json:"data"`
	}
	if err := json.Unmarshal([]byte(body), &response); err != nil {
		t.Fatal(err)
	}
	if len(response.Data.Result) == 0 {
		return 0
	}
	v, err := strconv.ParseFloat(fmt.Sprint(response.Data.Result[0].Value[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
