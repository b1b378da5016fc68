//go:build !race

package scripted

import "time"

// fault lasts from a time before the end of the history until a later one.
type fault struct {
	// alert is the name and the severity of the alert that it must fire.
	alert       string
	from, until time.Duration
	changes     []change
}

// long returns a fault that lasts 90 minutes and ends 80 minutes before the end.
func long(alert string, changes ...change) fault {
	return fault{alert, 170 * time.Minute, 80 * time.Minute, changes}
}

// onGPU selects the series of a GPU by the labels of plimsoll-exporter, and onDCGM by those of
// dcgm-exporter.
func onGPU(index string) []string  { return []string{"node", "gpus-gpu-1", "gpu", index} }
func onDCGM(index string) []string { return []string{"Hostname", "gpus-gpu-2", "gpu", index} }

// healthy are changes of the script for the whole time.
var healthy = []change{
	drop("kueue_cluster_queue_nominal_quota", "cluster", "spare"),
	set(0.3, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "cluster", "shared"),
	set(30, "DCGM_FI_DEV_GPU_UTIL", "cluster", "shared"),
	set(100, "plimsoll_gate_oldest_waiting_seconds"),
	set(0, "plimsoll_gate_admitted_not_ready_workloads"),
	set(1<<30, "plimsoll_pod_device_memory_used_bytes", "cluster", "shared"),
	count(3, starts), count(3, inTime, "le", "640"),
}

const (
	starts = "kueue_admission_wait_time_seconds_count"
	inTime = "kueue_admission_wait_time_seconds_bucket"
)

var faults = []fault{
	long("PlimsollModelCapacityGone/critical", set(1, "kube_node_spec_unschedulable", "cluster", "gone")),
	long("PlimsollModelCapacityGone/info", set(1, "kube_node_spec_unschedulable", "cluster", "spare")),
	long("PlimsollModelRemoved/info", drop("", "node", "removed-gpu-2"), drop("", "Hostname", "removed-gpu-2")),
	long("PlimsollCapacityFragmented/warning", set(8, "kueue_cluster_queue_resource_pending", "cluster", "split")),
	long("PlimsollQuotaExceedsHardware/warning", set(99, "kueue_cluster_queue_nominal_quota", "cluster", "gpus")),
	long("PlimsollCapacityLow/warning", set(4, "kueue_cluster_queue_resource_pending", "cluster", "full")),
	long("PlimsollDevicesIdle/warning", set(0, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "cluster", "full"), set(0, "DCGM_FI_DEV_GPU_UTIL", "cluster", "full")),

	long("PlimsollDeviceLost/critical", set(1, "plimsoll_device_lost", onGPU("0")...)),
	long("PlimsollDeviceHung/critical", set(1, "plimsoll_device_hung", onGPU("1")...)),
	long("PlimsollDeviceFailed/critical", set(1, "plimsoll_device_failed", onGPU("2")...)),
	long("PlimsollDriverStalled/critical", set(1, "plimsoll_exporter_driver_stalled", "node", "gpus-gpu-1")),
	long("PlimsollDeviceCriticalXID/critical", grow(1, 0, "plimsoll_xid_total", "severity", "critical")),
	long("PlimsollDeviceUnknownXID/warning", grow(1, 0, "plimsoll_xid_total", "severity", "unknown")),
	long("PlimsollDeviceUncorrectableECC/critical", grow(1, 0, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", onDCGM("0")...)),
	long("PlimsollDeviceRowRemapFailed/critical", set(1, "DCGM_FI_DEV_ROW_REMAP_FAILURE", onDCGM("1")...)),
	long("PlimsollDeviceRowRemapPending/warning", set(1, "plimsoll_device_row_remap_pending", onGPU("3")...)),
	long("PlimsollDeviceRowsRemapped/info", grow(1, 0, "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", onDCGM("2")...)),
	long("PlimsollDeviceCorrectableECC/info", grow(10, 0, "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", onDCGM("3")...)),
	long("PlimsollDeviceThrottled/warning", grow(30, 0, "plimsoll_device_throttled_seconds_total", append(onGPU("4"), "reason", "sw_thermal")...)),
	long("PlimsollNVLinkErrors/warning", grow(1, 0, "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", onDCGM("4")...)),
	long("PlimsollDeviceStraggler/warning", set(1000, "DCGM_FI_DEV_SM_CLOCK", "Hostname", "gpus-gpu-1", "gpu", "5")),
	long("PlimsollTPUStalled/warning", set(700, "plimsoll_device_stalled_seconds", "cluster", "tpu", "gpu", "0")),
	long("PlimsollTPUError/critical", set(1, "plimsoll_device_slice_error", "cluster", "tpu", "gpu", "1")),
	long("PlimsollDeviceInterference/info", set(0.9, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "cluster", "shared"), set(90, "DCGM_FI_DEV_GPU_UTIL", "cluster", "shared")),
	long("PlimsollShareExceeded/warning", set(1<<40, "plimsoll_pod_device_memory_used_bytes", "cluster", "shared", "gpu", "1")),

	long("PlimsollExporterAbsent/warning", drop("plimsoll_exporter_last_collection_timestamp_seconds", "node", "silent-gpu-1")),
	long("PlimsollExporterAbsent/critical", drop("plimsoll_exporter_last_collection_timestamp_seconds", "node", "dark-gpu-1")),
	long("PlimsollNodeStatesMissing/critical", drop("kube_node_status_condition", "cluster", "stateless")),
	long("PlimsollExcessDevices/warning", set(9, "plimsoll_node_devices", "node", "gpus-gpu-1", "state", "allocatable")),
	long("PlimsollDevicesUnknown/warning", set(1, "plimsoll_exporter_unmapped_devices", "node", "gpus-gpu-1", "reason", "allocated_not_listed")),
	long("PlimsollSharesOmitted/info", set(1, "plimsoll_exporter_omitted_shares", "cluster", "shared")),
	long("PlimsollRuleGroupSlow/warning", set(1000, "prometheus_rule_group_last_duration_seconds")),
	long("PlimsollRulesFailing/warning", grow(1, 0, "prometheus_rule_evaluation_failures_total")),

	long("PlimsollScoresStale/critical", set(1, "plimsoll_round_valid_until_timestamp_seconds", "policy", "fleet")),
	long("PlimsollPolicyNotPublishing/warning", grow(1, 0, "plimsoll_score_writes_total", "result", "failed")),
	long("PlimsollPolicyNotFresh/critical", set(0, "plimsoll_score_state", "policy", "tpu", "state", "scored"), set(1, "plimsoll_score_state", "policy", "tpu", "state", "kept")),
	long("PlimsollSourceFailing/warning", grow(60, 0, "plimsoll_query_failures_total")),
	long("PlimsollGateBlocking/warning", set(2000, "plimsoll_gate_oldest_waiting_seconds", "gate", "gpu"), set(1, "plimsoll_gate_waiting_workloads", "gate", "gpu")),
	long("PlimsollGateQueriesFailing/warning", set(1, "plimsoll_gate_queries_failing", "gate", "gpu")),
	long("PlimsollGateMispredicts/warning", grow(1, 0, "plimsoll_gate_mispredictions_total", "gate", "tpu")),
	long("PlimsollGateNotAdmitted/warning", grow(1, 0, "plimsoll_gate_requeues_total", "gate", "gpu")),
	long("PlimsollLedgerNotSettling/warning", set(400, "plimsoll_gate_ledger_oldest_seconds", "cluster", "gpus"), set(8, "plimsoll_gate_ledger_devices", "cluster", "gpus")),
	long("PlimsollClusterDoubted/warning", set(1, "plimsoll_gate_doubted", "cluster", "gpus")),
	long("PlimsollPodsNotReady/warning", set(1, "plimsoll_gate_admitted_not_ready_workloads")),
	long("PlimsollVersionsDiffer/info", only("plimsoll_build_info", "version", "2.0.0")),

	// No start is in time during the fault, or two of three are. Many starts after it lower the share of
	// late ones.
	long("PlimsollStartsLate/warning", grow(0, 200, starts, "cluster", "gpus"), grow(-3, 200, inTime, "cluster", "gpus", "le", "640")),
	long("PlimsollStartsLate/info", grow(0, 200, starts, "cluster", "split"), grow(-1, 200, inTime, "cluster", "split", "le", "640")),
	long("PlimsollQueueBlocked/warning", grow(-3, 0, starts, "cluster", "dark"), set(3, "kueue_pending_workloads", "cluster", "dark", "status", "active")),

	// Each of these hides others.
	{"PlimsollOperatorDown/critical", 60 * time.Minute, 52 * time.Minute, []change{set(1, "kube_lease_renew_time")}},
	{"PlimsollOperatorAbsent/critical", 48 * time.Minute, 38 * time.Minute, []change{drop("plimsoll_build_info", "component", "operator")}},
	{"PlimsollOperatorWithoutLeader/critical", 34 * time.Minute, 24 * time.Minute, []change{set(0, "leader_election_master_status")}},
	{"PlimsollNoDispatcher/critical", 18 * time.Minute, 10 * time.Minute, []change{set(0, "plimsoll_dispatching")}},
}
