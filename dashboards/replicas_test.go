package dashboards

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
)

// replicatedPanels are panels that add series of the exporter or of the operator, with the series
// that they read, and the value of each result.
var replicatedPanels = []struct {
	board, title, metric string
	series               []string
	want                 []float64
}{
	{"admission.json", "Waiting workloads", "waiting_workloads", []string{`plimsoll_gate_waiting_workloads{gate="g"} 3x60`, `plimsoll_gate_waiting_workloads{gate="h"} 3x60`}, []float64{6}},
	{"fleet.json", "Waiting", "waiting_workloads", []string{`plimsoll_gate_waiting_workloads{gate="g"} 3x60`, `plimsoll_gate_waiting_workloads{gate="h"} 3x60`}, []float64{6}},
	{"admission.json", "In-flight devices", "sum(", []string{`plimsoll_gate_ledger_devices{cluster="c"} 8x60`, `plimsoll_gate_ledger_devices{cluster="d"} 8x60`}, []float64{16}},
	{"admission.json", "Gates", "not_ready_workloads", []string{`plimsoll_gate_admitted_not_ready_workloads{gate="g",cluster="c"} 2x60`, `plimsoll_gate_admitted_not_ready_workloads{gate="g",cluster="d"} 2x60`}, []float64{4}},
	{"devices.json", "Nodes", "energy", []string{`plimsoll_device_energy_joules_total{cluster="c",node="n",model="m",uuid="a"} 0+60000x60`, `plimsoll_device_energy_joules_total{cluster="c",node="n",model="m",uuid="b"} 0+60000x60`}, []float64{2}},
	{"devices.json", "NVLink and PCIe traffic", "nvlink", []string{`plimsoll_device_nvlink_bytes_total{cluster="c",node="n",model="m",uuid="a",direction="rx"} 0+60x60`, `plimsoll_device_nvlink_bytes_total{cluster="c",node="n",model="m",uuid="b",direction="rx"} 0+60x60`}, []float64{2}},
	{"devices.json", "NVLink and PCIe traffic", "pcie", []string{`plimsoll_device_pcie_bytes_total{cluster="c",node="n",model="m",uuid="a",direction="rx"} 0+60x60`, `plimsoll_device_pcie_bytes_total{cluster="c",node="n",model="m",uuid="b",direction="rx"} 0+60x60`}, []float64{2}},
	{"jobs.json", "Energy", "energy", podSeries("energy_joules_total", "0+60000x60"), []float64{2}},
	{"jobs.json", "Device-hours of the last 7 days", "energy", podSeries("energy_joules_total", "0+60000x60"), []float64{2}},
	{"jobs.json", "Busiest pods", "utilization", podSeries("utilization_ratio", "0.5x60"), []float64{1}},
	{"jobs.json", "Memory of pods", "memory", podSeries("memory_used_bytes", "8x60"), []float64{16}},
	{"devices.json", "NVLink fabrics", "fabric", []string{`plimsoll_device_fabric_info{cluster="c",node="n",model="m",uuid="a",cluster_uuid="f",clique="1"} 1x60`, `plimsoll_device_fabric_info{cluster="c",node="n",model="m",uuid="b",cluster_uuid="f",clique="1"} 1x60`}, []float64{2}},
	{"scores.json", "Scores by state", "state", []string{`plimsoll_score_state{policy="p",score="s",state="kept"} 3x60`, `plimsoll_score_state{policy="p",score="t",state="kept"} 3x60`}, []float64{6}},
	{"self.json", "Exporters", "build_info", []string{`plimsoll_build_info{component="exporter",cluster="c",instance="1"} 1x60`, `plimsoll_build_info{component="exporter",cluster="c",instance="2"} 1x60`}, []float64{2}},
	{"self.json", "Exporters", "unmapped", []string{`plimsoll_exporter_unmapped_devices{cluster="c",node="n",reason="x"} 3x60`, `plimsoll_exporter_unmapped_devices{cluster="c",node="n",reason="y"} 3x60`}, []float64{6}},
	{"self.json", "Devices of unknown holders", "unmapped", []string{`plimsoll_exporter_unmapped_devices{cluster="c",node="n",reason="x"} 3x60`, `plimsoll_exporter_unmapped_devices{cluster="c",node="o",reason="x"} 3x60`}, []float64{6}},
	{"self.json", "Exporters", "undescribed", []string{`plimsoll_exporter_undescribed_devices{cluster="c",node="n"} 3x60`}, []float64{3}},
	{"self.json", "Exporters", "omitted", []string{`plimsoll_exporter_omitted_shares{cluster="c",node="n"} 3x60`}, []float64{3}},
	{"self.json", "Exporters", "unattributed", []string{`plimsoll_exporter_unattributed_processes{cluster="c",node="n",uuid="a"} 3x60`, `plimsoll_exporter_unattributed_processes{cluster="c",node="n",uuid="b"} 3x60`}, []float64{6}},
	{"self.json", "Exporters", "unsupported", []string{`plimsoll_exporter_unsupported_field{cluster="c",node="n",field="x"} 1x60`, `plimsoll_exporter_unsupported_field{cluster="c",node="n",field="y"} 1x60`}, []float64{2}},
	{"self.json", "Nodes without the kubelet", "kubelet", []string{`plimsoll_exporter_kubelet_up{cluster="c",node="n"} 0x60`, `plimsoll_exporter_kubelet_up{cluster="c",node="o"} 0x60`}, []float64{2}},
	{"tpu.json", "Queued programs of nodes", "queued", []string{`plimsoll_device_queued_programs{cluster="c",node="n",uuid="a"} 3x60`, `plimsoll_device_queued_programs{cluster="c",node="n",uuid="b"} 3x60`}, []float64{6}},
	{"tpu.json", "Memory of chips", "memory_used", []string{`memory_used_node{cluster="c",accelerator_id="n-0",make="cloud-tpu",model="v5e"} 8x60`}, []float64{8}},
	{"tpu.json", "Services", "services", []string{`plimsoll_exporter_services{cluster="c",node="n",service="r",state="up"} 1x60`, `plimsoll_exporter_services{cluster="c",node="o",service="r",state="up"} 1x60`}, []float64{2}},

	// Counters of two replicas of the operator, or of an exporter that was restarted.
	{"admission.json", "Mispredictions", "mispredictions", []string{`plimsoll_gate_mispredictions_total{gate="g",instance="1"} 0+1x60`, `plimsoll_gate_mispredictions_total{gate="g",instance="2"} 0+1x60`}, []float64{120}},
	{"admission.json", "Gates", "requeues", []string{`plimsoll_gate_requeues_total{gate="g",instance="1"} 0+1x60`, `plimsoll_gate_requeues_total{gate="g",instance="2"} 0+1x60`}, []float64{120}},
	{"admission.json", "Why workloads wait", "decisions", []string{`plimsoll_gate_decisions_total{gate="g",state="pending",reason="r",instance="1"} 0+1x60`, `plimsoll_gate_decisions_total{gate="g",state="pending",reason="r",instance="2"} 0+1x60`}, []float64{120}},
	{"admission.json", "Decisions", "decisions", []string{`plimsoll_gate_decisions_total{gate="g",state="pending",reason="r",instance="1"} 0+1x60`, `plimsoll_gate_decisions_total{gate="g",state="pending",reason="r",instance="2"} 0+1x60`}, []float64{2}},
	{"admission.json", "Nominations", "nominations", []string{`plimsoll_gate_nominations_total{cluster="c",reason="r",instance="1"} 0+1x60`, `plimsoll_gate_nominations_total{cluster="c",reason="r",instance="2"} 0+1x60`}, []float64{2}},
	{"admission.json", "Admitted workloads", "admitted", []string{`plimsoll_gate_admitted_seconds_count{gate="g",cluster="c",instance="1"} 0+1x60`, `plimsoll_gate_admitted_seconds_count{gate="g",cluster="c",instance="2"} 0+1x60`}, []float64{2}},
	{"jobs.json", "ReclaimPolicies", "workloads_total{mode=\"enforce\"", []string{`plimsoll_reclaim_workloads_total{policy="p",mode="enforce",instance="1"} 0+1x60`, `plimsoll_reclaim_workloads_total{policy="p",mode="enforce",instance="2"} 0+1x60`}, []float64{120}},
	{"jobs.json", "ReclaimPolicies", "workloads_total{mode=\"shadow\"", []string{`plimsoll_reclaim_workloads_total{policy="p",mode="shadow",instance="1"} 0+1x60`, `plimsoll_reclaim_workloads_total{policy="p",mode="shadow",instance="2"} 0+1x60`}, []float64{120}},
	{"jobs.json", "ReclaimPolicies", "moves_total{mode=\"enforce\"", []string{`plimsoll_reclaim_moves_total{policy="p",mode="enforce",instance="1"} 0+1x60`, `plimsoll_reclaim_moves_total{policy="p",mode="enforce",instance="2"} 0+1x60`}, []float64{120}},
	{"jobs.json", "ReclaimPolicies", "moves_total{mode=\"shadow\"", []string{`plimsoll_reclaim_moves_total{policy="p",mode="shadow",instance="1"} 0+1x60`, `plimsoll_reclaim_moves_total{policy="p",mode="shadow",instance="2"} 0+1x60`}, []float64{120}},
	{"jobs.json", "Runs in job profiles", "runs", []string{`plimsoll_profile_runs_total{result="r",instance="1"} 0+1x60`, `plimsoll_profile_runs_total{result="r",instance="2"} 0+1x60`}, []float64{120}},
	{"jobs.json", "Trials", "trials", []string{`plimsoll_trials_total{policy="p",result="r",instance="1"} 0+1x60`, `plimsoll_trials_total{policy="p",result="r",instance="2"} 0+1x60`}, []float64{120}},
	{"scores.json", "Failed queries", "failures", []string{`plimsoll_score_query_failures_total{policy="p",score="s",reason="r",instance="1"} 0+1x60`, `plimsoll_score_query_failures_total{policy="p",score="s",reason="r",instance="2"} 0+1x60`}, []float64{120}},
	{"scores.json", "Refused rounds", "refused", []string{`plimsoll_rounds_refused_total{policy="p",instance="1"} 0+1x60`, `plimsoll_rounds_refused_total{policy="p",instance="2"} 0+1x60`}, []float64{120}},
	{"scores.json", "Failed writes", "writes", []string{`plimsoll_score_writes_total{policy="p",result="failed",instance="1"} 0+1x60`, `plimsoll_score_writes_total{policy="p",result="failed",instance="2"} 0+1x60`}, []float64{120}},
	{"scores.json", "Writes and clamped values", "writes", []string{`plimsoll_score_writes_total{policy="p",result="failed",instance="1"} 0+1x60`, `plimsoll_score_writes_total{policy="p",result="failed",instance="2"} 0+1x60`}, []float64{2}},
	{"scores.json", "Writes and clamped values", "clamped", []string{`plimsoll_score_clamped_total{policy="p",instance="1"} 0+1x60`, `plimsoll_score_clamped_total{policy="p",instance="2"} 0+1x60`}, []float64{2}},
	{"self.json", "Queries of the operator", "query_duration", []string{`plimsoll_query_duration_seconds_count{source="s",instance="1"} 0+1x60`, `plimsoll_query_duration_seconds_count{source="s",instance="2"} 0+1x60`}, []float64{2}},
	{"self.json", "Queries of the operator", "query_failures", []string{`plimsoll_query_failures_total{source="s",reason="r",instance="1"} 0+1x60`, `plimsoll_query_failures_total{source="s",reason="r",instance="2"} 0+1x60`}, []float64{2}},
	{"self.json", "Queries of the operator", "query_retries", []string{`plimsoll_query_retries_total{source="s",reason="r",instance="1"} 0+1x60`, `plimsoll_query_retries_total{source="s",reason="r",instance="2"} 0+1x60`}, []float64{2}},
	{"self.json", "Queries of the operator", "query_annotations", []string{`plimsoll_query_annotations_total{source="s",kind="k",instance="1"} 0+1x60`, `plimsoll_query_annotations_total{source="s",kind="k",instance="2"} 0+1x60`}, []float64{2}},
	{"self.json", "Dropped values", "bogus", []string{`plimsoll_exporter_bogus_values_total{cluster="c",node="n",uuid="u",field="f",instance="1"} 0+1x60`, `plimsoll_exporter_bogus_values_total{cluster="c",node="n",uuid="u",field="f",instance="2"} 0+1x60`}, []float64{2}},
	{"self.json", "Failed collections", "collection", []string{`plimsoll_exporter_collection_errors_total{cluster="c",node="n",source="s",instance="1"} 0+1x60`, `plimsoll_exporter_collection_errors_total{cluster="c",node="n",part="p",instance="2"} 0+1x60`}, []float64{2}},
	{"self.json", "Failed library calls", "call", []string{`plimsoll_exporter_call_errors_total{cluster="c",node="n",call="c",instance="1"} 0+1x60`, `plimsoll_exporter_call_errors_total{cluster="c",node="n",call="c",instance="2"} 0+1x60`}, []float64{2}},
}

// podSeries are the series of a pod with two devices, and its owner.
func podSeries(name, values string) []string {
	labels := `{cluster="c",node="n",model="m",namespace="ml",pod="p",attribution="device",uuid=`
	return []string{
		"plimsoll_pod_device_" + name + labels + `"a"} ` + values,
		"plimsoll_pod_device_" + name + labels + `"b"} ` + values,
		`pod:plimsoll_owner:info{cluster="c",namespace="ml",pod="p",owner_kind="Job",owner_name="x"} 1x60`,
	}
}

// Two replicas of Prometheus have the same series, which Thanos does not deduplicate.
func TestReplicasOfPrometheusCountOnce(t *testing.T) {
	for _, c := range replicatedPanels {
		t.Run(c.board+" "+c.title+" "+c.metric, func(t *testing.T) {
			for _, replicas := range [][]string{{"a"}, {"a", "b"}} {
				if got := evaluatePanel(t, c.board, c.title, c.metric, nil, replicate(c.series, "replica", replicas)); !slices.Equal(got, c.want) {
					t.Errorf("with the replicas %v: %v, want %v", replicas, got, c.want)
				}
			}
		})
	}
}

// replicate returns each series once for each value of a label.
func replicate(series []string, label string, values []string) []string {
	var all []string
	for _, value := range values {
		for _, s := range series {
			all = append(all, strings.Replace(s, "{", "{"+label+`="`+value+`",`, 1))
		}
	}
	return all
}

// evaluatePanel returns the values, rounded to a thousandth, of the panel's first query that contains
// the text, an hour after the first sample.
func evaluatePanel(t *testing.T, name, title, text string, variables map[string]string, series []string) []float64 {
	t.Helper()
	boards, err := load(files)
	if err != nil {
		t.Fatal(err)
	}
	values := boards[name].values()
	values["policy"], values["__rate_interval"] = "p", "5m"
	maps.Copy(values, variables)
	for _, p := range boards[name].flat() {
		for _, target := range p.Targets {
			if p.Title != title || !strings.Contains(target.Expr, text) {
				continue
			}
			storage := promqltest.LoadedStorage(t, "load 1m\n  "+strings.Join(series, "\n  ")+"\n")
			engine := promqltest.NewTestEngineWithOpts(t, promql.EngineOpts{MaxSamples: 100_000, Timeout: time.Minute, EnableAtModifier: true})
			query, err := engine.NewInstantQuery(t.Context(), storage, nil, "round("+substitute(target.Expr, values)+", 0.001)", time.Unix(3600, 0))
			if err != nil {
				t.Fatal(err)
			}
			defer query.Close()
			vector, err := query.Exec(t.Context()).Vector()
			if err != nil {
				t.Fatal(err)
			}
			var found []float64
			for _, sample := range vector {
				found = append(found, sample.F)
			}
			return found
		}
	}
	t.Fatalf("%s has no panel %q with a query that contains %q", name, title, text)
	return nil
}

// An exporter restarts at 30m, and its new pod has another address. In both half hours, the device used
// energy.
func TestEnergyIsAddedOverARestart(t *testing.T) {
	series := podSeries("energy_joules_total", "")[:2]
	first := replicate([]string{series[0] + "0+60000x30 stale", series[1] + "0+60000x30 stale"}, "instance", []string{"10.0.0.1:9400"})
	second := replicate([]string{series[0] + "_x30 0+60000x30", series[1] + "_x30 0+60000x30"}, "instance", []string{"10.0.0.2:9400"})
	all := slices.Concat(first, second, podSeries("", "")[2:])
	for _, title := range []string{"Energy", "Device-hours of the last 7 days"} {
		got := evaluatePanel(t, "jobs.json", title, "energy", nil, all)
		if len(got) != 1 || got[0] < 1.9 || got[0] > 2.1 {
			t.Errorf("%s: %v kWh, want about 2", title, got)
		}
	}
}

// The stat Energy has only the energy of the selected owner, also of pods that ended.
func TestEnergyOfTheSelectedOwner(t *testing.T) {
	series := append(podSeries("energy_joules_total", "0+60000x60"),
		`plimsoll_pod_device_energy_joules_total{cluster="c",node="n",model="m",namespace="ml",pod="ended",attribution="device",uuid="c"} 0+60000x30 stale`,
		`pod:plimsoll_owner:info{cluster="c",namespace="ml",pod="ended",owner_kind="Job",owner_name="x"} 1x30 stale`,
		`plimsoll_pod_device_energy_joules_total{cluster="c",node="n",model="m",namespace="ml",pod="q",attribution="device",uuid="d"} 0+60000x60`,
		`pod:plimsoll_owner:info{cluster="c",namespace="ml",pod="q",owner_kind="Job",owner_name="y"} 1x60`)
	for owner, want := range map[string]float64{"x": 2.5, "y": 1, ".*": 3.5} {
		got := evaluatePanel(t, "jobs.json", "Energy", "energy", map[string]string{"owner": owner}, series)
		if len(got) != 1 || got[0] < want-0.05 || got[0] > want+0.05 {
			t.Errorf("owner %s: %v kWh, want about %g", owner, got, want)
		}
	}
}
