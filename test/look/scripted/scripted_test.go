//go:build !race

package scripted

import (
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
)

var rulesFolder = filepath.Join("..", "..", "..", "rules")

// open evaluates the shipped rules over a fleet.
func open(t *testing.T, f *Fleet) *Prometheus {
	t.Helper()
	files, err := RuleFiles(rulesFolder)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Open(t.Context(), f, t.TempDir(), files, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// query returns the result of a query at the end of the history.
func (p *Prometheus) query(t *testing.T, expr string) promql.Vector {
	t.Helper()
	result, err := p.instant(t.Context(), expr, p.End())
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	return result.(promql.Vector)
}

// checkRecordingRules checks that each recording rule has series with finite values: a panel
// shows neither NaN nor a missing series. The rules in empty have none, for the reason given.
func checkRecordingRules(t *testing.T, p *Prometheus, empty map[string]string) {
	t.Helper()
	files, err := RuleFiles(rulesFolder)
	if err != nil {
		t.Fatal(err)
	}
	rules, err := readRules(files)
	if err != nil {
		t.Fatal(err)
	}
	recorded := map[string]bool{}
	for _, r := range rules {
		if r.Record == "" || recorded[r.Record] {
			continue
		}
		recorded[r.Record] = true
		result := p.query(t, r.Record)
		if reason := empty[r.Record]; (len(result) == 0) != (reason != "") {
			t.Errorf("%s has %d series, and the reason to have none is %q", r.Record, len(result), reason)
		}
		for _, s := range result {
			if math.IsNaN(s.F) || math.IsInf(s.F, 0) {
				t.Errorf("%s is %v", s.Metric, s.F)
			}
		}
	}
	for name := range empty {
		if !recorded[name] {
			t.Errorf("the rule %s does not exist", name)
		}
	}
}

// emptyOnOneCluster are the recording rules without series on the cluster of NewCluster.
var emptyOnOneCluster = map[string]string{
	"node:kube_sample_timestamp_seconds:max":                    "the bridge covers clusters without plimsoll-exporter",
	"node_resource_state:kube_devices:sum":                      "the bridge covers clusters without plimsoll-exporter",
	"device:plimsoll_interference_exposure:bool":                "no device is shared",
	"cluster_model:plimsoll_exposed_devices:sum":                "no device is shared",
	"pod:plimsoll_share_memory_used:ratio":                      "no device is shared",
	"device_dimension:plimsoll_share_capacity:placeable":        "no device is shared",
	"device_dimension:plimsoll_free_share:placeable":            "no device is shared",
	"cluster_model_provider_dimension:plimsoll_free_share:sum":  "no device is shared",
	"device_dimension_bound:plimsoll_share_policy:max":          "no device is shared",
	"cluster_model_profile:plimsoll_free_mig_instances:sum":     "no device is in MIG mode",
	"cluster_topology:plimsoll_tpu_chips:count":                 "the cluster has no TPUs",
	"node:plimsoll_tpu_slice:info":                              "the cluster has no TPUs",
	"node_model_topology_slice:plimsoll_free_devices:placeable": "the cluster has no TPUs",
	"cluster_queue:kueue_cohort_unreserved_quota:max":           "the queues have no cohort",
	"cluster_queue:kueue_nominal_unreserved_quota:max":          "the queues have no cohort",
	"cluster_resource:plimsoll_fragmented_devices:ratio":        "no device is free",
}

func TestRulesOverOneCluster(t *testing.T) {
	p := open(t, NewCluster(time.Now()))
	checkRecordingRules(t, p, emptyOnOneCluster)
	parameters := url.Values{"query": {"missing"}, "start": {"0"}, "end": {"60"}, "step": {"15"}}
	response := httptest.NewRecorder()
	p.ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/api/v1/query_range?"+parameters.Encode(), nil))
	if want := `"result":[]`; !strings.Contains(response.Body.String(), want) {
		t.Errorf("a graph without series gets %s, want %s", response.Body, want)
	}
}
