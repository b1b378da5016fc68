package dashboards

import (
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
)

// errorSeries are the series of the panel "Memory and link errors", in the order of its columns.
var errorSeries = []string{
	"device:plimsoll_uncorrectable_ecc:sum", "device:plimsoll_correctable_ecc:sum", "device:plimsoll_remapped_rows:sum",
	"plimsoll_device_row_remap_pending", "device:plimsoll_row_remap_failure:max", "device:plimsoll_nvlink_errors:sum",
}

// A GPU in MIG mode before Hopper has no utilization, an A30 has no NVLink counters, and a GPU without
// ECC has no errors of its memory. Each error is visible without the other series, together with
// the other columns of the device. A device without errors has no row.
func TestErrorsOfDevicesWithoutOtherSeries(t *testing.T) {
	const labels = `{cluster="c",node="n",model="m",uuid="GPU-a"}`
	for i, bad := range errorSeries {
		for _, other := range []string{bad, errorSeries[(i+1)%len(errorSeries)]} {
			t.Run(bad+" with "+other, func(t *testing.T) {
				column := other + `{cluster=~"$cluster",node=~"$node",model=~"$model",uuid=~"$device"}) and on`
				series, want := []string{bad + labels + " 2x60"}, []float64{2}
				if other != bad {
					series, want = append(series, other+labels+" 0x60"), []float64{0}
				}
				if got := evaluatePanel(t, "devices.json", "Memory and link errors", column, nil, series); !slices.Equal(got, want) {
					t.Errorf("with the error: %v, want %v", got, want)
				}
				series[0] = bad + labels + " 0x60"
				if got := evaluatePanel(t, "devices.json", "Memory and link errors", column, nil, series); len(got) > 0 {
					t.Errorf("without an error: %v, want no row", got)
				}
			})
		}
	}
}

// A GPU in MIG mode before Hopper, and a device that is lost or hung, has no utilization. It counts, and
// can be selected. dcgm-exporter only has the utilization.
func TestDevicesWithoutUtilizationAreListed(t *testing.T) {
	series := []string{
		`plimsoll_device_lost{cluster="c",node="busy",model="busy",uuid="busy"} 0x60`,
		`device:plimsoll_utilization:ratio{cluster="c",node="busy",model="busy",uuid="busy"} 0.5x60`,
		`plimsoll_device_lost{cluster="c",node="mig",model="mig",uuid="mig"} 0x60`,
		`device:plimsoll_utilization:ratio{cluster="c",node="dcgm",model="dcgm",uuid="dcgm"} 0.5x60`,
	}
	for _, replicas := range [][]string{{"a"}, {"a", "b"}} {
		if got := evaluatePanel(t, "devices.json", "Devices", "count", nil, replicate(series, "replica", replicas)); !slices.Equal(got, []float64{3}) {
			t.Errorf("with the replicas %v: %v devices, want 3", replicas, got)
		}
	}
	if got := evaluatePanel(t, "devices.json", "Allocated", "holder", nil, series[2:3]); !slices.Equal(got, []float64{0}) {
		t.Errorf("a device without utilization that no pod holds: %v are allocated, want 0", got)
	}

	boards, err := load(files)
	if err != nil {
		t.Fatal(err)
	}
	board := boards["devices.json"]
	storage := promqltest.LoadedStorage(t, "load 1m\n  "+series[0]+"\n  "+series[1]+"\n  "+series[2]+"\n  "+series[3])
	engine := promqltest.NewTestEngineWithOpts(t, promql.EngineOpts{MaxSamples: 100_000, Timeout: time.Minute, EnableAtModifier: true})
	labels := map[string]string{"node": "node", "model": "model", "device": "uuid"}
	for _, v := range board.Templating.List {
		label, ok := labels[v.Name]
		if !ok {
			continue
		}
		delete(labels, v.Name)
		expr, err := labelValues(v.Definition)
		if err != nil {
			t.Fatal(err)
		}
		query, err := engine.NewInstantQuery(t.Context(), storage, nil, substitute(expr, board.values()), time.Unix(3600, 0))
		if err != nil {
			t.Fatal(err)
		}
		defer query.Close()
		vector, err := query.Exec(t.Context()).Vector()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range vector {
			got = append(got, s.Metric.Get(label))
		}
		slices.Sort(got)
		if want := []string{"busy", "dcgm", "mig"}; !slices.Equal(got, want) {
			t.Errorf("the variable %s offers %v, want %v", v.Name, got, want)
		}
	}
	if len(labels) > 0 {
		t.Errorf("variables not found: %v", labels)
	}
}
