package contract

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const root = "../.."

// operatorMetrics are the operator's metrics that rules and dashboards read. The
// operator's source must declare them.
var operatorMetrics = map[string][]string{
	"plimsoll_score":                                 {"policy", "score", "cluster"},
	"plimsoll_round_timestamp_seconds":               {"policy"},
	"plimsoll_round_valid_until_timestamp_seconds":   {"policy"},
	"plimsoll_round_duration_seconds_sum":            {"policy"},
	"plimsoll_round_duration_seconds_count":          {"policy"},
	"plimsoll_query_duration_seconds_count":          {"source"},
	"plimsoll_query_failures_total":                  {"source", "reason"},
	"plimsoll_gate_waiting_workloads":                {"gate"},
	"plimsoll_gate_parked_workloads":                 {"gate"},
	"plimsoll_gate_queries_failing":                  {"gate"},
	"plimsoll_gate_oldest_waiting_seconds":           {"gate"},
	"plimsoll_score_state":                           {"policy", "score", "state"},
	"plimsoll_score_query_duration_seconds":          {"policy", "score"},
	"plimsoll_score_sample_timestamp_seconds":        {"policy", "cluster"},
	"plimsoll_score_query_failures_total":            {"policy", "score", "reason"},
	"plimsoll_score_writes_total":                    {"policy", "result"},
	"plimsoll_rounds_refused_total":                  {"policy"},
	"plimsoll_gate_decisions_total":                  {"gate", "state", "reason"},
	"plimsoll_gate_nominations_total":                {"cluster", "reason"},
	"plimsoll_gate_mispredictions_total":             {"gate"},
	"plimsoll_gate_ready_seconds_bucket":             {"gate", "le"},
	"plimsoll_gate_admitted_seconds_bucket":          {"gate", "cluster", "le"},
	"plimsoll_gate_admitted_seconds_count":           {"gate", "cluster"},
	"plimsoll_gate_ledger_devices":                   {"cluster"},
	"plimsoll_gate_shadow_total":                     {"gate", "outcome"},
	"plimsoll_gate_shadow_wait_seconds_total":        {"gate", "outcome"},
	"plimsoll_gate_shadow_hung_device_seconds_total": {"gate", "outcome"},
	"plimsoll_gate_requeues_total":                   {"gate"},
	"plimsoll_gate_admitted_not_ready_workloads":     {"gate", "cluster"},
	"plimsoll_dispatching":                           {},
	"plimsoll_multikueue_lag_seconds":                {},
	"plimsoll_gate_hold_seconds":                     {"gate", "cluster", "mode"},
	"plimsoll_gate_ledger_oldest_seconds":            {"cluster"},
	"plimsoll_gate_doubted":                          {"cluster"},
	"plimsoll_gate_waiting_devices":                  {"gate", "resource", "model"},
	"plimsoll_query_retries_total":                   {"source", "reason"},
	"plimsoll_reclaim_idle_devices":                  {"policy"},
	"plimsoll_reclaim_workloads_total":               {"policy", "mode"},
	"plimsoll_reclaim_moves_total":                   {"policy", "mode"},
	"plimsoll_query_annotations_total":               {"source", "kind"},
	"plimsoll_score_clamped_total":                   {"policy"},
	"plimsoll_trials_total":                          {"policy", "result"},
	"plimsoll_profile_runs_total":                    {"result"},
	"plimsoll_profile_error_ratio_bucket":            {"quantity", "le"},
}

// The metrics of kube-state-metrics (v2.19) and Kueue (v0.19) that rules and dashboards
// read.
var (
	nodeMetrics = map[string][]string{
		"kube_lease_renew_time":                     {"namespace", "lease"},
		"kube_node_status_condition":                {"node", "condition", "status"},
		"kube_node_spec_unschedulable":              {"node"},
		"kube_node_spec_taint":                      {"node", "key", "value", "effect"},
		"kube_node_status_capacity":                 {"node", "resource", "unit"},
		"kube_node_status_allocatable":              {"node", "resource", "unit"},
		"kube_pod_container_resource_requests":      {"namespace", "pod", "uid", "container", "node", "resource", "unit"},
		"kube_pod_init_container_resource_requests": {"namespace", "pod", "uid", "container", "node", "resource", "unit"},
		"kube_pod_init_container_info":              {"namespace", "pod", "uid", "container", "image", "image_id", "image_spec", "container_id", "restart_policy"},
		"kube_pod_info":                             {"namespace", "pod", "uid", "host_ip", "pod_ip", "node", "created_by_kind", "created_by_name", "priority_class", "host_network"},
		"kube_pod_overhead_cpu_cores":               {"namespace", "pod", "uid"},
		"kube_pod_overhead_memory_bytes":            {"namespace", "pod", "uid"},
		"kube_pod_status_phase":                     {"namespace", "pod", "uid", "phase"},
		"kube_pod_owner":                            {"namespace", "pod", "uid", "owner_kind", "owner_name", "owner_is_controller"},
		"kube_node_labels": {"node", "label_nvidia_com_gpu_product", "label_amd_com_gpu_product_name", "label_cloud_google_com_gke_tpu_accelerator",
			"label_cloud_google_com_gke_tpu_topology", "label_cloud_google_com_gke_nodepool", "label_topology_kubernetes_io_zone", "label_topology_kubernetes_io_region", "label_karpenter_sh_capacity_type", "label_cloud_google_com_gce_topology_block"},
		"kube_daemonset_status_desired_number_scheduled": {"namespace", "daemonset"},
		"kube_namespace_status_phase":                    {"namespace", "phase"},
		"kube_serviceaccount_info":                       {"namespace", "serviceaccount", "uid", "automount_token"},
		"kube_configmap_info":                            {"namespace", "configmap"},
		"kube_secret_info":                               {"namespace", "secret"},
		"kube_localqueue_info":                           {"namespace", "localqueue", "cluster_queue"}, // config/prometheus/localqueues.yaml
		"kube_persistentvolumeclaim_info":                {"namespace", "persistentvolumeclaim", "storageclass", "volumename", "volumemode"},
	}
	kueueMetrics = map[string][]string{
		"kueue_reserving_active_workloads":           {"cluster_queue", "replica_role"},
		"kueue_admitted_active_workloads":            {"cluster_queue", "replica_role"},
		"kueue_pending_workloads":                    {"cluster_queue", "status", "replica_role"},
		"kueue_cluster_queue_resource_pending":       {"cluster_queue", "resource", "replica_role"},
		"kueue_cluster_queue_resource_reservation":   {"cohort", "cluster_queue", "flavor", "resource", "replica_role"},
		"kueue_cluster_queue_nominal_quota":          {"cohort", "cluster_queue", "flavor", "resource", "replica_role"},
		"kueue_cluster_queue_borrowing_limit":        {"cohort", "cluster_queue", "flavor", "resource", "replica_role"},
		"kueue_cluster_queue_lending_limit":          {"cohort", "cluster_queue", "flavor", "resource", "replica_role"},
		"kueue_cohort_subtree_quota":                 {"cohort", "flavor", "resource", "replica_role"},
		"kueue_cohort_subtree_resource_reservations": {"cohort", "flavor", "resource", "replica_role"},
		"kueue_cohort_info":                          {"cohort", "parent_cohort", "root_cohort", "replica_role"},
		"kueue_evicted_workloads_total":              {"cluster_queue", "reason", "underlying_cause", "priority_class", "replica_role"},
		"kueue_local_queue_status":                   {"name", "namespace", "active", "replica_role"},
		"kueue_admission_wait_time_seconds":          {"cluster_queue", "priority_class", "replica_role"},
	}
)

// cookbookMetrics are metrics of other programs that the cookbook reads: OpenCost, Karpenter, vLLM, kube-state-metrics with an
// allowlist of labels, and exporters that a platform team writes.
var cookbookMetrics = map[string][]string{
	"node_gpu_hourly_cost":                    {"node"},
	"node_gpu_count":                          {"node"},
	"carbon_intensity_grams_per_kwh":          {"region"},
	"dataset_cached_bytes":                    {"dataset"},
	"egress_price_dollars_per_gb":             {"from"},
	"maintenance_start_timestamp_seconds":     {"window"},
	"maintenance_end_timestamp_seconds":       {"window"},
	"kube_pod_container_info":                 {"namespace", "pod", "uid", "container", "image", "image_spec", "image_id"},
	"karpenter_nodepools_limit":               {"nodepool", "resource_type"},
	"karpenter_nodepools_usage":               {"nodepool", "resource_type"},
	"nodepool:devices_per_node:max":           {"nodepool", "resource", "model"},
	"vllm:e2e_request_latency_seconds_bucket": {"le"},
	"vllm:generation_tokens_total":            nil,
	"vllm:num_requests_running":               nil,
	"vllm:num_requests_waiting":               nil,
}

// exportedMetrics returns the metrics of all components.
func exportedMetrics(t *testing.T) catalog {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, "exporter", "METRICS.md"))
	if err != nil {
		t.Fatal(err)
	}
	known := catalog{"up": targetLabels}
	for name, names := range parseMetricsMD(string(content)) {
		if strings.HasPrefix(name, "DCGM_") {
			names = append(names, "Hostname", "hostname") // one of them, depending on --compat
		}
		known.add(name, names...)
	}
	for _, table := range []map[string][]string{operatorMetrics, nodeMetrics, kueueMetrics, cookbookMetrics} {
		for name, names := range table {
			known.add(name, names...)
		}
	}
	// Histograms.
	known.add("kueue_admission_wait_time_seconds_bucket", append([]string{"le"}, kueueMetrics["kueue_admission_wait_time_seconds"]...)...)
	known.add("kueue_admission_wait_time_seconds_count", kueueMetrics["kueue_admission_wait_time_seconds"]...)
	// Metrics of the components' libraries and of Prometheus itself.
	for name, names := range map[string][]string{
		"leader_election_master_status":               {"name"},
		"plimsoll_build_info":                         {"component", "version", "revision"},
		"prometheus_rule_group_last_duration_seconds": {"rule_group"},
		"prometheus_rule_group_interval_seconds":      {"rule_group"},
		"prometheus_rule_evaluation_failures_total":   {"rule_group"},
		"controller_runtime_reconcile_errors_total":   {"controller"},
		"process_resident_memory_bytes":               nil,
		"process_cpu_seconds_total":                   nil,
		"ALERTS":                                      {"alertname", "alertstate", "severity", "node", "model", "namespace", "gate", "owner_kind", "owner_name"},
	} {
		known.add(name, names...)
	}
	return known
}

var (
	quoted   = regexp.MustCompile("`([^`]+)`")
	headline = regexp.MustCompile(`^#+ `)
)

// parseMetricsMD reads tables whose first column is a metric. The labels of a metric
// are in the column "labels", or in a line "Labels: …" above the table for all its
// metrics.
func parseMetricsMD(md string) map[string][]string {
	metrics := map[string][]string{}
	var shared []string
	column := -1
	for _, line := range strings.Split(md, "\n") {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		switch {
		case headline.MatchString(line):
			shared, column = nil, -1
		case strings.HasPrefix(line, "Labels:"):
			shared = backquoted(line)
		case strings.HasPrefix(line, "| metric "):
			column = -1
			for i, cell := range cells {
				if strings.TrimSpace(cell) == "labels" {
					column = i
				}
			}
		case strings.HasPrefix(line, "| `"):
			names := shared
			if column >= 0 {
				names = backquoted(cells[column])
			}
			metrics[backquoted(cells[0])[0]] = names
		}
	}
	return metrics
}

func backquoted(s string) []string {
	var found []string
	for _, m := range quoted.FindAllStringSubmatch(s, -1) {
		found = append(found, m[1])
	}
	return found
}

type ruleFile struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []struct {
			Record      string            `json:"record"`
			Alert       string            `json:"alert"`
			Expr        string            `json:"expr"`
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"rules"`
	} `json:"groups"`
}

// recordingFiles are the files with recording rules. A file reads the series of the files
// before it.
var recordingFiles = []string{"recording-nodes.yaml", "recording-devices.yaml", "recording-shares.yaml", "recording-topology.yaml", "recording-owners.yaml", "recording-queues.yaml", "recording-fleet.yaml"}

// alertFiles are the files with alerts.
var alertFiles = []string{"alerts-capacity.yaml", "alerts-devices.yaml", "alerts-pipeline.yaml", "alerts-prometheus.yaml", "alerts-hub.yaml"}

func readRules(t *testing.T, names ...string) ruleFile {
	t.Helper()
	var all ruleFile
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(root, "rules", name))
		if err != nil {
			t.Fatal(err)
		}
		var f ruleFile
		if err := yaml.Unmarshal(content, &f); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all.Groups = append(all.Groups, f.Groups...)
	}
	return all
}

// A file in rules/ that no list names would never be tested.
func TestRuleFilesAreListed(t *testing.T) {
	listed := append(slices.Clone(recordingFiles), alertFiles...)
	found, err := filepath.Glob(filepath.Join(root, "rules", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range found {
		found[i] = filepath.Base(found[i])
	}
	slices.Sort(listed)
	if diff := cmp.Diff(listed, found); diff != "" {
		t.Errorf("files of rules/ (-listed +found):\n%s", diff)
	}
}

// addRecordingRules adds the series of the recording rules to known and returns the
// rules' problems. A rule must not read the series of a later rule, except its own.
func addRecordingRules(known catalog, rules ruleFile) []string {
	var problems []string
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if r.Record == "" {
				continue
			}
			if _, again := known[r.Record]; !again && strings.Contains(r.Expr, r.Record) {
				// The rule reads its own last value. Its labels are those of its other operands.
				known[r.Record] = targetLabels
				known[r.Record], _ = known.check(r.Expr)
			}
			have, wrong := known.check(r.Expr)
			for _, w := range wrong {
				problems = append(problems, fmt.Sprintf("rule %s: %s", r.Record, w))
			}
			for name := range r.Labels {
				have = have.with(newLabelSet(name))
			}
			recorded := have.with(targetLabels)
			if before, again := known[r.Record]; again { // several rules record parts of one metric
				recorded = recorded.with(before)
			}
			known[r.Record] = recorded
		}
	}
	return problems
}

func TestKueueDeclaresMetrics(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kueue").Output()
	if err != nil {
		t.Fatalf("find Kueue's module: %v", err)
	}
	source, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "pkg", "metrics", "metrics.go"))
	if err != nil {
		t.Fatal(err)
	}
	for name, names := range kueueMetrics {
		labels := `"` + strings.Join(names, `", "`) + `"`
		declaration := regexp.MustCompile(`Name: +"` + strings.TrimPrefix(name, "kueue_") + `",[^{}]*\}, append\(\[\]string\{` + labels + `\}`)
		if !declaration.Match(source) {
			t.Errorf("Kueue does not declare %s with the labels %s", name, labels)
		}
	}
}
