//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/dashboards"
	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// panelsWithoutSeries are the panels that are empty on this fleet, with the reason. A
// dashboard alone stands for all of its panels, a panel alone for that of every dashboard.
var panelsWithoutSeries = map[string]string{
	"annotation Alerts":                              "no alert fires",
	"fleet.json/Firing alerts":                       "no alert fires",
	"tpu.json":                                       "the fleet has no TPUs",
	"devices.json/XID events":                        "no device has reported an XID",
	"devices.json/Free MIG instances":                "no device is in MIG mode",
	"fleet.json/Unusable devices":                    "all nodes are usable",
	"fleet.json/Devices that wait for quota or room": "no workload waits at a gate",
	"fleet.json/Demand and capacity":                 "the forecast needs days of history",
	"devices.json/Nodes":                             "all nodes are usable",
	"devices.json/Lost, hung and failed devices":     "all devices work",
	"devices.json/Memory and link errors":            "no device has errors",
	"devices.json/Slowest clocks of busy devices":    "the job may not be busy yet",
	"devices.json/NVLink fabrics":                    "simulated devices join no fabric",
	"devices.json/Shared devices":                    "no device is shared",
	"devices.json/Interference on shared devices":    "no device is shared",
	"jobs.json/Devices of the jobs":                  "the job has less than eight devices",
	"jobs.json/Device-hours of the last 7 days":      "the group runs every 4 minutes",
	"jobs.json/Idle devices that could be reclaimed": "the fleet has no ReclaimPolicy",
	"jobs.json/ReclaimPolicies":                      "the fleet has no ReclaimPolicy",
	"jobs.json/Runs in job profiles":                 "no gate has the section profiles",
	"jobs.json/Error of job profiles":                "no gate has the section profiles",
	"jobs.json/Trials":                               "the fleet has no TrialPolicy",
	"admission.json/Why workloads wait":              "no workload had to wait",
	"admission.json/Starts within 640 seconds":       "the group runs every 4 minutes",
	"admission.json/Time at gate and in MultiKueue":  "no workload started within the last minute",
	"admission.json/Time to admission":               "no workload started within the last minute",
	"admission.json/In-flight devices":               "no workload is in flight",
	"admission.json/Regret":                          "no workload waits at a gate",
	"admission.json/Copies per job":                  "the group runs every 4 minutes",
	"admission.json/Misprediction rate":              "the group runs every 4 minutes",
	"admission.json/Preemptions":                     "the group runs every 4 minutes",
	"self.json/Exporters":                            "simulated devices are all described",
	"self.json/Leader":                               "the lab's operator runs without leader election",
	"self.json/Silent and unusable nodes":            "all nodes report and are usable",
	"self.json/Rule groups":                          "Prometheus does not scrape itself",
	"self.json/Devices of unknown holders":           "the holders of all devices are known",
	"self.json/Failed library calls":                 "no call has failed",
	"self.json/Nodes without the kubelet":            "all kubelets respond",
	"self.json/Failed collections":                   "no collection has failed",
	"self.json/Slowest library calls":                "simulated devices make no library calls",
	"self.json/Dropped values":                       "no value is out of its range",
	"self.json/Queries of the operator":              "no query has failed",

	"admission.json/What gates in mode Shadow would have done": "all gates of the fleet enforce",
}

// The queries of all dashboards return numbers on a fleet with a running job, except those of
// panelsWithoutSeries.
func TestDashboardQueriesReturnSeries(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	submit(ctx, t, fleet.Job{Name: "seen", Model: fleet.H100, GPUs: 1})
	awaitRunning(ctx, t, "seen")
	queries, err := dashboards.Queries()
	if err != nil {
		t.Fatal(err)
	}
	if len(queries) == 0 {
		t.Fatal("there are no dashboards")
	}
	var last error // of an attempt that had the time to complete
	await(ctx, t, "series of all panels", func(ctx context.Context) error {
		var errs []error
		for _, q := range queries {
			if panelsWithoutSeries[q.Dashboard] != "" || panelsWithoutSeries[q.Panel] != "" || panelsWithoutSeries[q.Dashboard+"/"+q.Panel] != "" {
				continue
			}
			if err := hasNumber(ctx, q.Expr); err != nil {
				errs = append(errs, fmt.Errorf("%s/%s: %w", q.Dashboard, q.Panel, err))
			}
		}
		if ctx.Err() == nil {
			last = errors.Join(errs...)
		}
		return last
	})
}

// rulesWithoutSeries are the recording rules that have no series on this fleet, with the
// reason.
var rulesWithoutSeries = map[string]string{
	"node:kube_sample_timestamp_seconds:max":                        "the bridge covers clusters without plimsoll-exporter",
	"node_resource_state:kube_devices:sum":                          "the bridge covers clusters without plimsoll-exporter",
	"device:plimsoll_interference_exposure:bool":                    "no device is shared",
	"cluster_model:plimsoll_exposed_devices:sum":                    "no device is shared",
	"pod:plimsoll_share_memory_used:ratio":                          "no device is shared",
	"device_dimension:plimsoll_share_capacity:placeable":            "no device is shared",
	"device_dimension:plimsoll_free_share:placeable":                "no device is shared",
	"cluster_model_provider_dimension:plimsoll_free_share:sum":      "no device is shared",
	"device_dimension_bound:plimsoll_share_policy:max":              "no device is shared",
	"node:plimsoll_tpu_slice:info":                                  "the fleet has no TPUs",
	"cluster_topology:plimsoll_tpu_chips:count":                     "the fleet has no TPUs",
	"node_model_topology_slice:plimsoll_free_devices:placeable":     "the fleet has no TPUs",
	"cluster_model_size:plimsoll_pod_mix:ratio1d":                   "the group runs every 4 minutes",
	"cluster_resource_model:plimsoll_expected_fragment_devices:sum": "the group runs every 4 minutes",
	"node:plimsoll_unusable:info":                                   "all nodes are usable",
	"cluster_resource_model_reason:plimsoll_unusable_devices:sum":   "all nodes are usable",
	"cluster_model_profile:plimsoll_free_mig_instances:sum":         "no device is in MIG mode",
	"device:plimsoll_owner_sm_clock:ratio":                          "the job has less than eight devices",
	"device:plimsoll_owner_utilization:ratio":                       "the job has less than eight devices",
	"device:plimsoll_idle_since_timestamp_seconds:min":              "the job is not idle",
	"owner:plimsoll_idle_devices:count":                             "the job is not idle",
	"namespace:plimsoll_device_hours:sum7d":                         "the group runs every 4 minutes",
	"namespace:plimsoll_idle_device_hours:sum7d":                    "the group runs every 4 minutes",
	"cluster_resource:plimsoll_demand_devices:max1d":                "the group runs every 4 minutes",
	"cluster_resource:plimsoll_usable_devices:max1d":                "the group runs every 4 minutes",
	"cluster_queue:kueue_starts:increase30m":                        "the group runs every 4 minutes",
	"cluster_queue:kueue_starts:increase6h":                         "the group runs every 4 minutes",
	"cluster_queue:kueue_starts:increase3d":                         "the group runs every 4 minutes",
	"cluster_queue:kueue_late_starts:ratio30m":                      "the group runs every 4 minutes",
	"cluster_queue:kueue_late_starts:ratio6h":                       "the group runs every 4 minutes",
	"cluster_queue:kueue_late_starts:ratio3d":                       "the group runs every 4 minutes",
	"cluster_queue:kueue_cohort_unreserved_quota:max":               "the queues have no cohort",
	"cluster_queue:kueue_nominal_unreserved_quota:max":              "the queues have no cohort",
	"resource_model:plimsoll_waiting_devices:sum":                   "no workload waits at a gate",
	"resource:plimsoll_regret_devices:min":                          "no workload waits at a gate",
	"namespace:plimsoll_energy_joules:increase1h":                   "the group runs every 4 minutes",
	"plimsoll:gate_nominations_per_admission:ratio1d":               "the group runs every 4 minutes",
	"gate:plimsoll_gate_mispredictions:ratio1d":                     "the group runs every 4 minutes",
	"cluster_queue:kueue_preempted_workloads:increase1d":            "the group runs every 4 minutes",
	"device:plimsoll_sm_active:ratio":                               "the counter is not among the defaults",
	"cluster_model:plimsoll_sm_active:avg":                          "the counter is not among the defaults",
	"device:plimsoll_power_limit_watts:max":                         "the counter is not among the defaults",
	"cluster_model:plimsoll_power_limit_used:ratio":                 "the counter is not among the defaults",
}

// All recording rules have series on a fleet with a running job, and only numbers as values.
func TestRecordingRulesReturnSeries(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	submit(ctx, t, fleet.Job{Name: "recorded", Model: fleet.H100, GPUs: 1})
	awaitRunning(ctx, t, "recorded")
	root, err := fleet.FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, "rules", "recording-*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var records []string
	for _, path := range files {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var file struct {
			Groups []struct {
				Rules []struct {
					Record string `json:"record"`
				} `json:"rules"`
			} `json:"groups"`
		}
		if err := yaml.Unmarshal(content, &file); err != nil {
			t.Fatal(err)
		}
		for _, group := range file.Groups {
			for _, rule := range group.Rules {
				if rulesWithoutSeries[rule.Record] == "" {
					records = append(records, rule.Record)
				}
			}
		}
	}
	if len(records) == 0 {
		t.Fatal("there are no recording rules")
	}
	var last error // of an attempt that had the time to complete
	await(ctx, t, "series of all recording rules", func(ctx context.Context) error {
		var errs []error
		for _, record := range records {
			errs = append(errs, hasNumbersOnly(ctx, record))
		}
		if ctx.Err() == nil {
			last = errors.Join(errs...)
		}
		return last
	})
}

// hasNumber returns an error if no series of the expression has a number as its value.
func hasNumber(ctx context.Context, expr string) error {
	return checkNumbers(ctx, expr, func(numbers, _ int) bool { return numbers > 0 })
}

// hasNumbersOnly returns an error if the expression has no series, or a series whose value is
// not a number. A recorded NaN makes every sum and mean of it NaN.
func hasNumbersOnly(ctx context.Context, expr string) error {
	return checkNumbers(ctx, expr, func(numbers, series int) bool { return numbers > 0 && numbers == series })
}

// checkNumbers returns an error if enough refuses the number of series whose value is a number
// and the number of all series of the expression.
func checkNumbers(ctx context.Context, expr string, enough func(numbers, series int) bool) error {
	samples, err := fleet.Query(ctx, lab.Thanos, expr)
	if err != nil {
		return fmt.Errorf("%s: %w", expr, err)
	}
	if numbers := fleet.CountNumbers(samples); !enough(numbers, len(samples)) {
		return fmt.Errorf("%s: %d of %d series have a number", expr, numbers, len(samples))
	}
	return nil
}
