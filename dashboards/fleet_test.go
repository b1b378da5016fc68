package dashboards

import (
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
)

// TestFleetFollowsTheResource: a cluster has GPUs and TPUs, and GPUs in MIG mode, whose model no
// resource has. With the resource nvidia.com/gpu, no panel shows the TPUs.
func TestFleetFollowsTheResource(t *testing.T) {
	boards, err := load(files)
	if err != nil {
		t.Fatal(err)
	}
	board := boards["fleet.json"]
	values := board.values()
	values["resource"] = "nvidia.com/gpu"
	storage := promqltest.LoadedStorage(t, `load 1m
  cluster_resource_model:plimsoll_devices:sum{cluster="c",resource="nvidia.com/gpu",model="gpu"} 8x60
  cluster_resource_model:plimsoll_devices:sum{cluster="c",resource="google.com/tpu",model="tpu"} 4x60
  cluster_resource_model:plimsoll_devices:sum{cluster="d",resource="google.com/tpu",model="gpu"} 4x60
  device:plimsoll_allocation:info{cluster="c",node="n",uuid="g",model="gpu"} 1x60
  device:plimsoll_allocation:info{cluster="c",node="n",uuid="t",model="tpu"} 1x60
  device:plimsoll_idle_since_timestamp_seconds:min{cluster="c",node="n",uuid="g",model="gpu"} 0x60
  device:plimsoll_idle_since_timestamp_seconds:min{cluster="c",node="n",uuid="t",model="tpu"} 0x60
  cluster_model_fault:plimsoll_faulty_devices:sum{cluster="c",model="gpu",fault="lost"} 1x60
  cluster_model_fault:plimsoll_faulty_devices:sum{cluster="c",model="tpu",fault="lost"} 2x60
  cluster_model_fault:plimsoll_faulty_devices:sum{cluster="c",model="mig",fault="lost"} 4x60
  cluster_model:plimsoll_gpu_utilization:avg{cluster="c",model="gpu"} 0.5x60
  cluster_model:plimsoll_gpu_utilization:avg{cluster="c",model="tpu"} 0.9x60
  cluster_model:plimsoll_power_watts:sum{cluster="c",model="gpu"} 100x60
  cluster_model:plimsoll_power_watts:sum{cluster="c",model="tpu"} 1000x60
  cluster_model:plimsoll_power_watts:sum{cluster="c",model="mig"} 10x60
  cluster_model:plimsoll_temperature_celsius:max{cluster="c",model="gpu"} 50x60
  cluster_model:plimsoll_temperature_celsius:max{cluster="c",model="tpu"} 90x60
`)
	engine := promqltest.NewTestEngineWithOpts(t, promql.EngineOpts{MaxSamples: 100_000, Timeout: time.Minute, EnableAtModifier: true})
	want := map[string]float64{"Idle": 1, "Broken": 5, "Utilization": 0.5, "Power": 110, "Hottest device": 50}
	for _, p := range board.flat() {
		value, ok := want[p.Title]
		if !ok {
			continue
		}
		delete(want, p.Title)
		query, err := engine.NewInstantQuery(t.Context(), storage, nil, substitute(p.Targets[0].Expr, values), time.Unix(3600, 0))
		if err != nil {
			t.Fatal(err)
		}
		defer query.Close()
		vector, err := query.Exec(t.Context()).Vector()
		if err != nil || len(vector) != 1 || vector[0].F != value {
			t.Errorf("panel %s: %v, want %g: %v", p.Title, vector, value, err)
		}
	}
	if len(want) > 0 {
		t.Errorf("panels not found: %v", want)
	}
}
