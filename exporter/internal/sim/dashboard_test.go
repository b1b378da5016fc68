package sim

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
)

// dashboardQueries are queries of dashboards for dcgm-exporter and for this exporter, with
// the number of series in the result. The first queries are from Grafana's dashboard 12239.
var dashboardQueries = map[string]int{
	`DCGM_FI_DEV_GPU_TEMP{instance=~"node-1:9400",gpu=~"0|1"}`:            2,
	`avg(DCGM_FI_DEV_GPU_TEMP{instance=~"node-1:9400",gpu=~".*"})`:        1,
	`DCGM_FI_DEV_POWER_USAGE{instance=~"node-1:9400",gpu=~".*"}`:          8,
	`sum(DCGM_FI_DEV_POWER_USAGE{instance=~"node-1:9400",gpu=~"0|1"})`:    1,
	`DCGM_FI_DEV_SM_CLOCK{instance=~"node-1:9400",gpu=~".*"} * 1000000`:   8,
	`DCGM_FI_DEV_GPU_UTIL{instance=~"node-1:9400",gpu=~".*"}`:             8,
	`DCGM_FI_DEV_FB_USED{instance=~"node-1:9400",gpu=~".*"}`:              8,
	`DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{instance=~"node-1:9400",gpu=~".*"}`:  8,
	`DCGM_FI_PROF_DRAM_ACTIVE{instance=~"node-1:9400",gpu=~".*"} > 0.1`:   8,
	`DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL{instance=~"node-1:9400"} > 1000`:  8,
	`DCGM_FI_DEV_ENFORCED_POWER_LIMIT - DCGM_FI_DEV_POWER_USAGE > 0`:      8,
	`count(DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{instance=~"node-1:9400"})`:  1,
	`DCGM_EXP_CLOCK_EVENTS_COUNT{window_size_in_ms="300000"}`:             8,
	`DCGM_FI_PROF_PCIE_RX_BYTES / DCGM_FI_PROF_PCIE_TX_BYTES`:             8,
	`plimsoll_device_thermal_headroom_celsius{node="n"} > 0`:              8,
	`plimsoll_device_memory_headroom_bytes{node="n"} > 1e9`:               8,
	`sum by (uuid) (plimsoll_device_pcie_bytes_total{node="n"})`:          8,
	`plimsoll_device_throttled_seconds_total{reason="hw_thermal"} == 0`:   8,
	`DCGM_FI_DEV_GPU_TEMP_LIMIT + DCGM_FI_DEV_GPU_TEMP == 87`:             8,
	`DCGM_FI_DEV_POWER_MGMT_LIMIT_MIN < DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX`: 8,
}

func TestDashboardQueriesReturnSeries(t *testing.T) {
	n := startScenario(t, "steady")
	n.scrapeAt(0)
	var load strings.Builder
	load.WriteString("load 30s\n")
	for line := range strings.Lines(n.scrapeAt(10 * time.Second)) {
		if name, rest, ok := strings.Cut(line, "{"); ok && !strings.HasPrefix(line, "#") {
			labels, v, _ := strings.Cut(rest, "} ")
			fmt.Fprintf(&load, "  %s{instance=\"node-1:9400\",%s} %s\n", name, labels, strings.TrimSpace(v))
		}
	}
	storage := promqltest.LoadedStorage(t, load.String())
	engine := promqltest.NewTestEngineWithOpts(t, promql.EngineOpts{MaxSamples: 100_000, Timeout: time.Minute})
	for text, want := range dashboardQueries {
		t.Run(text, func(t *testing.T) {
			query, err := engine.NewInstantQuery(t.Context(), storage, nil, text, time.Unix(0, 0))
			if err != nil {
				t.Fatal(err)
			}
			defer query.Close()
			vector, err := query.Exec(t.Context()).Vector()
			if err != nil || len(vector) != want {
				t.Errorf("%d series, want %d: %v", len(vector), want, err)
			}
		})
	}
}
