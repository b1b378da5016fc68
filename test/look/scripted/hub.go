package scripted

import (
	"math"
	"strings"
	"time"
)

var waitBuckets = []float64{1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5120}

// exportKueue emits what Kueue exports. name is "hub" or the cluster.
func (f *Fleet) exportKueue(e *emitter, name, resource string, quota float64) {
	e.target("kueue", "kueue-controller-manager:8443")
	queue := []string{"cluster_queue", "gpus", "replica_role", "leader"}
	add := func(name string, v float64, more ...string) { e.add("kueue_"+name, v, append(more, queue...)...) }
	pending, pendingDevices := 0.0, 0.0
	switch name {
	case "hub":
		pending, pendingDevices = math.Round(9+8*wave(e.at, "hub", 80*time.Minute)), 40
	case "east":
		pending, pendingDevices = 2, 16
	}
	add("pending_workloads", pending, "status", "active")
	add("pending_workloads", math.Floor(pending/4), "status", "inadmissible")
	add("reserving_active_workloads", 7)
	add("admitted_active_workloads", 5)
	reserved := math.Round(0.8 * quota)
	limits := []string{"cohort", "", "flavor", "default", "resource", resource}
	if name == "hub" {
		limits[1] = "research"
		cohort := append([]string{"replica_role", "leader"}, limits...)
		e.add("kueue_cohort_subtree_quota", quota+16, cohort...)
		e.add("kueue_cohort_subtree_resource_reservations", reserved, cohort...)
		e.add("kueue_cohort_info", 1, "cohort", "research", "parent_cohort", "", "root_cohort", "research", "replica_role", "leader")
		add("cluster_queue_borrowing_limit", 16, limits...)
	}
	add("cluster_queue_nominal_quota", quota, limits...)
	add("cluster_queue_resource_reservation", reserved, limits...)
	add("cluster_queue_resource_pending", pendingDevices, "resource", resource)
	add("evicted_workloads_total", math.Floor(0.001*f.sinceStart(e.at)), "reason", "Preempted")
	f.histogram(e, "kueue_admission_wait_time_seconds", 0.02, 12, waitBuckets, append(queue, "priority_class", "")...)
}

// exportHub emits what the operator exports, and what Prometheus exports about rules.
func (f *Fleet) exportHub(e *emitter) {
	e.target("plimsoll-operator", "10.1.0.9:8443")
	e.add("plimsoll_build_info", 1, "component", "operator", "version", "1.4.0", "revision", "unknown")
	e.add("leader_election_master_status", 1, "name", "plimsoll-operator")
	e.add("plimsoll_dispatching", 1)
	e.add("plimsoll_multikueue_lag_seconds", 1.4)
	e.add("process_resident_memory_bytes", 88e6)
	e.add("process_cpu_seconds_total", 0.04*f.sinceStart(e.at))
	for policy, scores := range map[string][]string{"fleet": {"headroom", "idle", "total"}, "tpu": {"chips"}} {
		f.exportPolicy(e, policy, scores)
	}
	e.add("plimsoll_rounds_refused_total", 2*number(f.happens(95*time.Minute, e.at)), "policy", "fleet")
	e.add("plimsoll_rounds_refused_total", 0, "policy", "tpu")
	f.histogram(e, "plimsoll_query_duration_seconds", 1.2, 0.03, waitBuckets, "source", "thanos")
	failures := 0.0
	if f.happens(95*time.Minute, e.at) {
		failures = math.Min(30, (e.at.Sub(f.end)+95*time.Minute).Seconds()/10)
	}
	e.add("plimsoll_query_failures_total", failures, "source", "thanos", "reason", "timeout")
	e.add("plimsoll_query_retries_total", 2*failures, "source", "thanos", "reason", "timeout")
	e.add("plimsoll_query_annotations_total", math.Floor(0.01*f.sinceStart(e.at)), "source", "thanos", "kind", "info")
	f.exportGates(e)
	f.exportReclaimAndProfiles(e)
	e.target("kube-state-metrics", "hub-kube-state-metrics:8080")
	e.add("kube_lease_renew_time", e.seconds()-3, "namespace", "plimsoll-system", "lease", "plimsoll-operator")
	e.target("prometheus", "localhost:9090")
	for group, seconds := range ruleGroupSeconds {
		interval := 30.0
		if strings.HasSuffix(group, "-history") || strings.HasSuffix(group, "ly") {
			interval = 240
		}
		e.add("prometheus_rule_group_last_duration_seconds", seconds*(0.9+0.2*wave(e.at, group, 10*time.Minute)), "rule_group", "/etc/rules/plimsoll.yaml;"+group)
		e.add("prometheus_rule_group_interval_seconds", interval, "rule_group", "/etc/rules/plimsoll.yaml;"+group)
		e.add("prometheus_rule_evaluation_failures_total", 0, "rule_group", "/etc/rules/plimsoll.yaml;"+group)
	}
}

// ruleGroupSeconds are the durations of groups of rules.
var ruleGroupSeconds = map[string]float64{
	"plimsoll-nodes": 0.6, "plimsoll-holders": 0.4, "plimsoll-devices": 0.4, "plimsoll-device-power": 0.2, "plimsoll-device-activity": 0.3, "plimsoll-device-health": 0.3, "plimsoll-device-links": 0.2, "plimsoll-device-jobs": 0.3, "plimsoll-shares": 0.1, "plimsoll-topology": 0.4, "plimsoll-topology-daily": 0.9,
	"plimsoll-owners": 0.4, "plimsoll-profiles": 0.7, "plimsoll-owners-weekly": 2.1, "plimsoll-queues": 0.05, "plimsoll-queues-history": 0.8,
	"plimsoll-fleet": 0.02, "plimsoll-device-alerts": 0.2, "plimsoll-device-health-alerts": 0.2,
}

func (f *Fleet) exportPolicy(e *emitter, policy string, scores []string) {
	e.add("plimsoll_round_timestamp_seconds", e.seconds()-11, "policy", policy)
	e.add("plimsoll_round_valid_until_timestamp_seconds", e.seconds()+79, "policy", policy)
	f.histogram(e, "plimsoll_round_duration_seconds", 1.0/30, 0.25, waitBuckets, "policy", policy)
	for _, result := range []string{"score", "validity", "deleted", "failed"} {
		rate := map[string]float64{"score": 0.1, "validity": 0.3}[result]
		e.add("plimsoll_score_writes_total", math.Floor(rate*f.sinceStart(e.at)), "policy", policy, "result", result)
	}
	e.add("plimsoll_score_clamped_total", math.Floor(0.02*f.sinceStart(e.at)), "policy", policy)
	e.add("plimsoll_score_query_duration_seconds", 0.05, "policy", policy, "score", "(freshness)")
	for _, score := range scores {
		e.add("plimsoll_score_query_duration_seconds", 0.02+0.04*wave(e.at, score, 30*time.Minute), "policy", policy, "score", score)
		states := map[string]float64{"scored": 0, "kept": 0, "vetoed": 0, "worst": 0, "fixed": 0, "omitted": 0}
		for _, c := range f.clusters {
			v := math.Round(-20 + 110*wave(e.at, policy+score+c.name, 2*time.Hour))
			state := "scored"
			if f.happens(c.goneFor, e.at) {
				if state = "kept"; f.happens(c.goneFor-10*time.Minute, e.at) {
					state, v = "worst", -100
				}
			}
			states[state]++
			e.add("plimsoll_score", v, "policy", policy, "score", score, "cluster", c.name)
		}
		for state, v := range states {
			e.add("plimsoll_score_state", v, "policy", policy, "score", score, "state", state)
		}
	}
	for _, c := range f.clusters {
		sampled := e.seconds() - 14
		if f.happens(c.goneFor, e.at) {
			sampled = float64(f.end.Add(-c.goneFor).Unix())
		}
		e.add("plimsoll_score_sample_timestamp_seconds", sampled, "policy", policy, "cluster", c.name)
	}
}

func (f *Fleet) exportGates(e *emitter) {
	for gate, rate := range map[string]float64{"gpu": 0.02, "tpu": 0.004} {
		elapsed := f.sinceStart(e.at)
		waiting, oldest := 0.0, 0.0
		if gate == "gpu" {
			waiting = math.Round(5 * wave(e.at, "gate", 75*time.Minute))
			if waiting > 0 {
				oldest = 300 + 2400*wave(e.at, "oldest", 75*time.Minute)
			}
			e.add("plimsoll_gate_waiting_devices", 8*math.Ceil(waiting/2), "gate", gate, "resource", gpuResource, "model", h100)
			e.add("plimsoll_gate_waiting_devices", math.Floor(waiting/2), "gate", gate, "resource", gpuResource, "model", "")
		}
		e.add("plimsoll_gate_waiting_workloads", waiting, "gate", gate)
		e.add("plimsoll_gate_parked_workloads", number(gate == "gpu"), "gate", gate)
		for i, outcome := range []string{"same_cluster", "other_cluster", "wait", "never", "undecided", "unplaced"} {
			n := math.Floor(rate * elapsed / math.Pow(8, float64(i)))
			e.add("plimsoll_gate_shadow_total", n, "gate", gate, "outcome", outcome)
			e.add("plimsoll_gate_shadow_wait_seconds_total", 900*n*number(outcome == "wait"), "gate", gate, "outcome", outcome)
			e.add("plimsoll_gate_shadow_hung_device_seconds_total", 7200*n*number(outcome == "other_cluster"), "gate", gate, "outcome", outcome)
		}
		e.add("plimsoll_gate_oldest_waiting_seconds", oldest, "gate", gate)
		e.add("plimsoll_gate_queries_failing", 0, "gate", gate)
		e.add("plimsoll_gate_mispredictions_total", number(gate == "gpu")*(1+number(f.happens(100*time.Minute, e.at))), "gate", gate)
		e.add("plimsoll_gate_requeues_total", 0, "gate", gate)
		f.histogram(e, "plimsoll_gate_ready_seconds", rate, 12, waitBuckets, "gate", gate)
		e.add("plimsoll_gate_decisions_total", math.Floor(rate*elapsed), "gate", gate, "state", "ready", "reason", "placeable")
		for reason, share := range map[string]float64{"no_decisions": 0, "no_room": 3, "ruled_out": 0.5, "stale_samples": 0.2, "no_metrics": 0, "fleet_requirement_unmet": 0, "orphaned_copy": 0, "gate_not_ready": 0} {
			e.add("plimsoll_gate_decisions_total", math.Floor(share*rate*elapsed), "gate", gate, "state", "pending", "reason", reason)
		}
		for i, c := range f.clusters {
			f.histogram(e, "plimsoll_gate_admitted_seconds", rate/float64(i+2), 5+float64(i), waitBuckets, "gate", gate, "cluster", c.name)
		}
	}
	for i, c := range f.clusters {
		if i < 2 {
			e.add("plimsoll_gate_ledger_devices", math.Round(8*wave(e.at, "ledger"+c.name, 15*time.Minute)), "cluster", c.name)
			e.add("plimsoll_gate_ledger_oldest_seconds", 40*wave(e.at, "ledger"+c.name, 15*time.Minute), "cluster", c.name)
		}
		e.add("plimsoll_gate_doubted", 0, "cluster", c.name)
		e.add("plimsoll_gate_nominations_total", math.Floor(0.03/float64(i+2)*f.sinceStart(e.at)), "cluster", c.name, "reason", "fits")
	}
	e.add("plimsoll_gate_admitted_not_ready_workloads", 1, "gate", "gpu", "cluster", f.clusters[0].name)
	e.add("plimsoll_gate_hold_seconds", 420, "gate", "gpu", "cluster", f.clusters[0].name, "mode", "enforce")
}

// exportReclaimAndProfiles emits the metrics of a policy that reclaims and moves, of one in Shadow
// mode, of job profiles and of trials.
func (f *Fleet) exportReclaimAndProfiles(e *emitter) {
	for policy, mode := range map[string]string{"notebooks": "enforce", "training": "shadow"} {
		reclaimed := map[string]float64{"enforce": 0, "shadow": 0}
		reclaimed[mode] = math.Floor(0.0006 * f.sinceStart(e.at))
		e.add("plimsoll_reclaim_idle_devices", math.Round(4*wave(e.at, policy, 70*time.Minute)), "policy", policy)
		for mode, n := range reclaimed {
			e.add("plimsoll_reclaim_workloads_total", n, "policy", policy, "mode", mode)
			e.add("plimsoll_reclaim_moves_total", math.Floor(n/3), "policy", policy, "mode", mode)
		}
	}
	for result, rate := range map[string]float64{"added": 0.004, "no_samples": 0.0004, "query_failed": 0, "unknown_run": 0} {
		e.add("plimsoll_profile_runs_total", math.Floor(rate*f.sinceStart(e.at)), "result", result)
	}
	for result, rate := range map[string]float64{"measured": 0.002, "unmeasured": 0, "timed_out": 0.0005, "stopped": 0.0002} {
		e.add("plimsoll_trials_total", math.Floor(rate*f.sinceStart(e.at)), "policy", "research", "result", result)
	}
	for quantity, mean := range map[string]float64{"duration": 0.3, "memory_peak": 0.06, "utilization": 0.1} {
		f.histogram(e, "plimsoll_profile_error_ratio", 0.003, mean, []float64{0.05, 0.1, 0.15, 0.25, 0.5, 1, 2, 5, 10}, "quantity", quantity)
	}
}

// histogram emits a classic histogram with events at a constant rate per second, whose
// values are spread around the mean.
func (f *Fleet) histogram(e *emitter, name string, rate, mean float64, buckets []float64, kv ...string) {
	total := math.Floor(rate * f.sinceStart(e.at))
	e.add(name+"_count", total, kv...)
	e.add(name+"_sum", total*mean, kv...)
	for _, le := range buckets {
		share := 1 - math.Exp(-le/mean)
		e.add(name+"_bucket", math.Floor(total*share), append([]string{"le", formatFloat(le)}, kv...)...)
	}
	e.add(name+"_bucket", total, append([]string{"le", "+Inf"}, kv...)...)
}
