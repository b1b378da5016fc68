package dashboards

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
)

// TestErrorsOfOneKind: a node can have only one of the two series of errors of TPUs. Its error
// is as visible as with both.
func TestErrorsOfOneKind(t *testing.T) {
	boards, err := load(files)
	if err != nil {
		t.Fatal(err)
	}
	board := boards["tpu.json"]
	engine := promqltest.NewTestEngineWithOpts(t, promql.EngineOpts{MaxSamples: 100_000, Timeout: time.Minute, EnableAtModifier: true})
	const labels = `{cluster="c",node="n",model="m",uuid="u"} `
	for _, tc := range []struct {
		name, samples    string
		count, state, of float64 // of is the value of the table
	}{
		{"only a slice error", "plimsoll_device_slice_error" + labels + "1", 1, 4, 1},
		{"only a megascale error", "plimsoll_device_megascale_error" + labels + "1", 1, 4, 2},
		{"both", "plimsoll_device_slice_error" + labels + "1\n  plimsoll_device_megascale_error" + labels + "1", 1, 4, 3},
		{"a slice error, and no megascale error", "plimsoll_device_slice_error" + labels + "1\n  plimsoll_device_megascale_error" + labels + "0", 1, 4, 1},
		{"neither", "plimsoll_device_slice_error" + labels + "0\n  plimsoll_device_megascale_error" + labels + "0", 0, 1, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			storage := promqltest.LoadedStorage(t, "load 30s\n  plimsoll_device_workload_up"+labels+"0\n  "+tc.samples)
			found := 0
			for _, p := range board.flat() {
				for _, target := range p.Targets {
					if !strings.Contains(target.Expr, "megascale_error") {
						continue
					}
					found++
					want := tc.state
					switch {
					case strings.HasPrefix(target.Expr, "count("):
						want = tc.count
					case strings.Contains(target.Expr, "2 * plimsoll_device_megascale_error"):
						want = tc.of
					}
					query, err := engine.NewInstantQuery(t.Context(), storage, nil, substitute(target.Expr, board.values()), time.Unix(0, 0))
					if err != nil {
						t.Fatal(err)
					}
					defer query.Close()
					vector, err := query.Exec(t.Context()).Vector()
					if err != nil || len(vector) != 1 || vector[0].F != want {
						t.Errorf("panel %s: %v, want %g: %v", p.Title, vector, want, err)
					}
				}
			}
			if found != 3 {
				t.Errorf("%d queries have the errors, want 3", found)
			}
		})
	}
}

// TestTPUsAreNotGPUs: AMD GPUs also have a busy ratio. They are on no panel of TPUs.
func TestTPUsAreNotGPUs(t *testing.T) {
	boards, err := load(files)
	if err != nil {
		t.Fatal(err)
	}
	board := boards["tpu.json"]
	engine := promqltest.NewTestEngineWithOpts(t, promql.EngineOpts{MaxSamples: 100_000, Timeout: time.Minute, EnableAtModifier: true})
	const gpu, tpu = `{cluster="c",node="gpus",model="g",uuid="g"} `, `{cluster="c",node="tpus",model="t",uuid="t"} `
	storage := promqltest.LoadedStorage(t, "load 30s\n  plimsoll_device_busy_ratio"+gpu+"0.9\n  plimsoll_device_busy_ratio"+tpu+"0.5\n  plimsoll_device_workload_up"+tpu+"1\n"+
		`  device:plimsoll_holder:info{cluster="c",node="gpus",model="g",uuid="g",namespace="ml",owner_kind="Job",owner_name="train"} 1`)
	var seen []string
	for _, p := range board.flat() {
		for _, target := range p.Targets {
			query, err := engine.NewInstantQuery(t.Context(), storage, nil, substitute(target.Expr, board.values()), time.Unix(0, 0))
			if err != nil {
				t.Fatal(err)
			}
			defer query.Close()
			vector, err := query.Exec(t.Context()).Vector()
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range vector {
				if s.Metric.Get("node") == "gpus" {
					t.Errorf("panel %s shows a GPU: %v", p.Title, s)
				}
				seen = append(seen, p.Title)
			}
			if p.Type == "stat" && len(vector) == 1 && vector[0].F > 1 || len(vector) == 1 && vector[0].F == 0.7 {
				t.Errorf("panel %s counts a GPU: %v", p.Title, vector)
			}
		}
	}
	if len(seen) < 6 {
		t.Errorf("only the panels %v show the TPU", seen)
	}
	for _, v := range board.Templating.List {
		if strings.Contains(v.Definition, "busy_ratio") {
			t.Errorf("the variable %s lists GPUs: %s", v.Name, v.Definition)
		}
	}
}

// The memory of chips follows the variable Node, whose name starts the label accelerator_id. Another node
// has a name that continues the first one.
func TestMemoryOfTheSelectedNode(t *testing.T) {
	var series []string
	for chip, used := range map[string]string{"pool-1-0": "8", "pool-1-10": "4", "pool-1-1-0": "2", "pool-2-0": "1"} {
		labels := `{cluster="c",make="cloud-tpu",model="v5e",accelerator_id="` + chip + `"} `
		series = append(series, "memory_used_node"+labels+used+"x60", "memory_total_node"+labels+"10x60")
	}
	for node, want := range map[string]struct{ used, chips []float64 }{
		".*":              {[]float64{0.375}, []float64{1, 2, 4, 8}},
		"pool-1":          {[]float64{0.6}, []float64{4, 8}},
		"(pool-1|pool-2)": {[]float64{0.433}, []float64{1, 4, 8}},
	} {
		variables := map[string]string{"node": node}
		if got := evaluatePanel(t, "tpu.json", "Memory used", "memory", variables, series); !slices.Equal(got, want.used) {
			t.Errorf("used memory of %s: %v, want %v", node, got, want.used)
		}
		got := evaluatePanel(t, "tpu.json", "Memory of chips", "memory", variables, series)
		slices.Sort(got)
		if !slices.Equal(got, want.chips) {
			t.Errorf("memory of the chips of %s: %v, want %v", node, got, want.chips)
		}
	}
}
