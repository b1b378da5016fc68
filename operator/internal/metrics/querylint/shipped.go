package querylint

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"plimsoll.dev/plimsoll/operator/internal/format"
)

// checkName reports a selector of a recorded series that the shipped rules do not record although its name is like that of
// one, or that it selects by a label or value that the series do not have. Other rules may record series of other levels,
// and of other functions over time, so that only what is close to a shipped name is reported.
func (l *linter) checkName(n *parser.VectorSelector) {
	name := metricName(n)
	if strings.Count(name, ":") != 2 {
		return
	}
	if !slices.Contains(shippedNames, name) {
		if similar := l.similarName(n); similar != "" {
			l.add(RuleUnknownName, n, "the shipped rules record no %s: did you mean %s? If your own rules record it, write # lint:ignore %s", name, similar, RuleUnknownName)
		}
		return
	}
	for _, m := range n.LabelMatchers {
		if similar := l.similarLabel(name, m); similar != "" {
			l.add(RuleUnknownName, n, "%s has no label %s: did you mean %s?", name, m.Name, similar)
		}
		isPositive := m.Type == labels.MatchEqual || m.Type == labels.MatchRegexp
		if isPositive && m.Name == "resource" && exportedResource.MatchString(m.Value) && hasWord(name, "resource") && level(name) != "node_resource_state" {
			l.add(RuleUnknownName, n, "%s matches no series: resources have their names of Kubernetes, such as nvidia.com/gpu", m)
		}
	}
}

// exportedResource matches the name that kube-state-metrics gives a resource with a domain.
var exportedResource = regexp.MustCompile(`^(nvidia|amd|google)_com_\w+$`)

// similarName returns the shipped name that a query means by another one, or "".
func (l *linter) similarName(n *parser.VectorSelector) string {
	best, least := "", 0
	parts := strings.Split(metricName(n), ":")
	for _, shipped := range shippedNames {
		of := strings.Split(shipped, ":")
		metric, operation, isSame := format.Distance(parts[1], of[1]), distanceOfOperations(parts[2], of[2]), parts[0] == of[0]
		distance := metric + operation
		switch {
		case metric > 2 || operation > 1:
			continue
		case distance == 0 && (!strings.HasPrefix(of[1], "plimsoll_") || !l.selectsByOther(n, parts[0])): // another level, which other rules may record
			continue
		case !isSame && !isShippedLevel(parts[0]), !isSame && !strings.HasPrefix(of[1], "plimsoll_"):
			continue
		}
		if distance = 100*distance + format.Distance(parts[0], of[0]); best == "" || distance < least {
			best, least = shipped, distance
		}
	}
	return best
}

// window matches the number and unit of the time at the end of an operation, as in increase1d.
var window = regexp.MustCompile(`[0-9]+[a-z]$`)

// distanceOfOperations returns how many characters of two operations differ. Those over another time are not similar.
func distanceOfOperations(a, b string) int {
	if window.FindString(a) != window.FindString(b) {
		return max(len(a), len(b))
	}
	return format.Distance(a, b)
}

// selectsByOther reports whether a selector of a recorded series selects by a label of shipped series that the level of
// its name does not list.
func (l *linter) selectsByOther(n *parser.VectorSelector, level string) bool {
	return slices.ContainsFunc(n.LabelMatchers, func(m *labels.Matcher) bool {
		isOther := m.Name != model.MetricNameLabel && m.Name != l.cluster && !slices.Contains(strings.Split(level, "_"), m.Name)
		return isOther && m.Type == labels.MatchEqual && m.Value != "" && slices.Contains(levelLabels, m.Name)
	})
}

// levelLabels are labels of events and faults, which the name of a recorded series lists if its series have them.
var levelLabels = []string{"class", "xid", "severity", "reason", "fault"}

// plainLevels are the levels of names that list all labels of the series.
var plainLevels = []string{"cluster_resource", "cluster_resource_model", "cluster_resource_model_reason", "cluster_resource_model_size", "cluster_model", "cluster_severity", "resource_model"}

// similarLabel returns the label that a matcher means by another one, or "".
func (l *linter) similarLabel(name string, m *labels.Matcher) string {
	has := strings.Split(level(name), "_")
	if !slices.Contains(plainLevels, level(name)) || slices.Contains(has, m.Name) || m.Name == l.cluster {
		return ""
	}
	i := slices.IndexFunc(has, func(label string) bool { return format.Distance(label, m.Name) == 1 })
	if i < 0 {
		return ""
	}
	return cmp.Or(map[string]string{"cluster": l.cluster}[has[i]], has[i])
}

func isShippedLevel(of string) bool {
	return slices.ContainsFunc(shippedNames, func(name string) bool { return level(name) == of })
}

func hasWord(name, word string) bool { return slices.Contains(strings.Split(level(name), "_"), word) }

// shippedNames are the names of the series that rules/recording-*.yaml record, in order. A test compares them.
var shippedNames = []string{
	"cluster:kueue_sample_timestamp_seconds:min",
	"cluster:kueue_scrape_timestamp_seconds:min",
	"cluster:plimsoll_device_sample_timestamp_seconds:min",
	"cluster:plimsoll_gpu_utilization:avg",
	"cluster:plimsoll_idle_device_hours:sum1h",
	"cluster:plimsoll_reporting_nodes:ratio",
	"cluster:plimsoll_sample_timestamp_seconds:min",
	"cluster_group:plimsoll_sample_timestamp_seconds:min",
	"cluster_model:plimsoll_allocated_utilization:avg",
	"cluster_model:plimsoll_exposed_devices:sum",
	"cluster_model:plimsoll_gpu_utilization:avg",
	"cluster_model:plimsoll_memory_used:avg",
	"cluster_model:plimsoll_power_limit_used:ratio",
	"cluster_model:plimsoll_power_watts:sum",
	"cluster_model:plimsoll_sm_active:avg",
	"cluster_model:plimsoll_temperature_celsius:max",
	"cluster_model:plimsoll_tensor_active:avg",
	"cluster_model_fault:plimsoll_faulty_devices:sum",
	"cluster_model_profile:plimsoll_free_mig_instances:sum",
	"cluster_model_provider_dimension:plimsoll_free_share:sum",
	"cluster_model_size:plimsoll_pod_mix:ratio1d",
	"cluster_model_size:plimsoll_pods:count",
	"cluster_queue:kueue_cohort_unreserved_quota:max",
	"cluster_queue:kueue_late_starts:ratio30m",
	"cluster_queue:kueue_late_starts:ratio3d",
	"cluster_queue:kueue_late_starts:ratio6h",
	"cluster_queue:kueue_nominal_unreserved_quota:max",
	"cluster_queue:kueue_own_unreserved_quota:max",
	"cluster_queue:kueue_preempted_workloads:increase1d",
	"cluster_queue:kueue_quota_limit:max",
	"cluster_queue:kueue_starts:increase30m",
	"cluster_queue:kueue_starts:increase3d",
	"cluster_queue:kueue_starts:increase6h",
	"cluster_queue:kueue_unreserved_quota:max",
	"cluster_resource:kueue_nominal_quota:sum",
	"cluster_resource:kueue_pending_devices:sum",
	"cluster_resource:plimsoll_allocated_devices:sum",
	"cluster_resource:plimsoll_demand_devices:max1d",
	"cluster_resource:plimsoll_demand_devices:sum",
	"cluster_resource:plimsoll_devices:sum",
	"cluster_resource:plimsoll_fragmented_devices:ratio",
	"cluster_resource:plimsoll_free_devices:sum",
	"cluster_resource:plimsoll_usable_devices:max1d",
	"cluster_resource:plimsoll_usable_devices:sum",
	"cluster_resource_model:plimsoll_allocated_devices:sum",
	"cluster_resource_model:plimsoll_devices:sum",
	"cluster_resource_model:plimsoll_expected_fragment_devices:sum",
	"cluster_resource_model:plimsoll_fragmented_devices:sum",
	"cluster_resource_model:plimsoll_free_devices:sum",
	"cluster_resource_model:plimsoll_free_group_devices:max",
	"cluster_resource_model:plimsoll_node_free_devices:max",
	"cluster_resource_model:plimsoll_unhealthy_devices:sum",
	"cluster_resource_model:plimsoll_usable_devices:sum",
	"cluster_resource_model_reason:plimsoll_unusable_devices:sum",
	"cluster_resource_model_size:plimsoll_fits:sum",
	"cluster_resource_model_size:plimsoll_unusable_free_devices:sum",
	"cluster_severity:plimsoll_xid_events:increase1d",
	"cluster_topology:plimsoll_tpu_chips:count",
	"device:plimsoll_allocation:info",
	"device:plimsoll_correctable_ecc:sum",
	"device:plimsoll_critical_xids:sum",
	"device:plimsoll_dram_active:ratio",
	"device:plimsoll_holder:info",
	"device:plimsoll_idle_since_timestamp_seconds:min",
	"device:plimsoll_interference_exposure:bool",
	"device:plimsoll_memory_used:ratio",
	"device:plimsoll_nvlink_errors:sum",
	"device:plimsoll_owner_sm_clock:ratio",
	"device:plimsoll_owner_utilization:ratio",
	"device:plimsoll_power_limit_watts:max",
	"device:plimsoll_power_watts:max",
	"device:plimsoll_remapped_rows:sum",
	"device:plimsoll_row_remap_failure:max",
	"device:plimsoll_sharers:count",
	"device:plimsoll_sm_active:ratio",
	"device:plimsoll_sm_clock_mhz:max",
	"device:plimsoll_temperature_celsius:max",
	"device:plimsoll_tensor_active:ratio",
	"device:plimsoll_throttled:ratio15m",
	"device:plimsoll_uncorrectable_ecc:sum",
	"device:plimsoll_unknown_xids:sum",
	"device:plimsoll_utilization:placeable",
	"device:plimsoll_utilization:ratio",
	"device:plimsoll_utilization:ratio10m",
	"device_dimension:plimsoll_free_share:placeable",
	"device_dimension:plimsoll_share_capacity:placeable",
	"device_dimension_bound:plimsoll_share_policy:max",
	"gate:plimsoll_gate_mispredictions:ratio1d",
	"namespace:plimsoll_device_hours:sum1h",
	"namespace:plimsoll_device_hours:sum7d",
	"namespace:plimsoll_devices:count",
	"namespace:plimsoll_energy_joules:increase1h",
	"namespace:plimsoll_idle_device_hours:sum1h",
	"namespace:plimsoll_idle_device_hours:sum7d",
	"namespace:plimsoll_idle_devices:count",
	"namespace:plimsoll_power_watts:sum",
	"node:kube_accelerators:sum",
	"node:kube_allocatable:placeable",
	"node:kube_sample_timestamp_seconds:max",
	"node:kube_unrequested:placeable",
	"node:plimsoll_device_source:info",
	"node:plimsoll_expected:info",
	"node:plimsoll_last_report_timestamp_seconds:max",
	"node:plimsoll_model:info",
	"node:plimsoll_placeable:bool",
	"node:plimsoll_sample_timestamp_seconds:max",
	"node:plimsoll_sample_timestamp_seconds:trusted",
	"node:plimsoll_topology:info",
	"node:plimsoll_tpu_slice:info",
	"node:plimsoll_unusable:info",
	"node_model_topology_slice:plimsoll_free_devices:placeable",
	"node_resource_model:plimsoll_devices:placeable",
	"node_resource_model:plimsoll_free_devices:placeable",
	"node_resource_model:plimsoll_free_group_devices:placeable",
	"node_resource_model_state:plimsoll_devices:min",
	"node_resource_state:kube_devices:sum",
	"node_resource_state:plimsoll_excess_devices:sum",
	"owner:plimsoll_devices:count",
	"owner:plimsoll_idle_devices:count",
	"owner:plimsoll_memory_used:max",
	"owner:plimsoll_memory_used:max1h",
	"owner:plimsoll_power_watts:sum",
	"owner:plimsoll_start_timestamp_seconds:min",
	"owner:plimsoll_utilization:avg",
	"owner:plimsoll_utilization:max1h",
	"owner:plimsoll_utilization:median1h",
	"owner_model:plimsoll_dram_active:avg",
	"owner_model:plimsoll_memory_used_bytes:max",
	"owner_model:plimsoll_nvlink_bytes:rate5m",
	"owner_model:plimsoll_pcie_bytes:rate5m",
	"owner_model:plimsoll_power_watts:sum",
	"owner_model:plimsoll_tensor_active:avg",
	"owner_model:plimsoll_utilization:avg",
	"pod:plimsoll_owner:info",
	"pod:plimsoll_share_memory_used:ratio",
	"pod_model:plimsoll_devices:count",
	"resource:plimsoll_allocated_share:stddev",
	"resource:plimsoll_demand_devices:sum",
	"resource:plimsoll_regret_devices:min",
	"resource_model:plimsoll_allocated_devices:sum",
	"resource_model:plimsoll_devices:sum",
	"resource_model:plimsoll_free_devices:sum",
	"resource_model:plimsoll_usable_devices:sum",
	"resource_model:plimsoll_waiting_devices:sum",
}
