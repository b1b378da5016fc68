//go:build !race

package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/promqltest"
)

// dashboard12239 are the queries of Grafana's dashboard 12239 and the number of series that
// each returns.
var dashboard12239 = map[string]int{
	`DCGM_FI_DEV_GPU_TEMP{instance=~"$instance", gpu=~"$gpu"}`:            8,
	`avg(DCGM_FI_DEV_GPU_TEMP{instance=~"$instance", gpu=~"$gpu"})`:       1,
	`DCGM_FI_DEV_POWER_USAGE{instance=~"$instance", gpu=~"$gpu"}`:         8,
	`sum(DCGM_FI_DEV_POWER_USAGE{instance=~"$instance", gpu=~"$gpu"})`:    1,
	`DCGM_FI_DEV_SM_CLOCK{instance=~"$instance", gpu=~"$gpu"} * 1000000`:  8,
	`DCGM_FI_DEV_GPU_UTIL{instance=~"$instance", gpu=~"$gpu"}`:            8,
	`DCGM_FI_DEV_FB_USED{instance=~"$instance", gpu=~"$gpu"}`:             8,
	`DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{instance=~"$instance", gpu=~"$gpu"}`: 8,
	// Queries of the variables.
	`group by (instance) (DCGM_FI_DEV_GPU_TEMP)`: 1,
	`group by (gpu) (DCGM_FI_DEV_GPU_TEMP)`:      8,
	// Counters keep their names in OpenMetrics, which Prometheus scrapes.
	`rate(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{instance=~"$instance", gpu=~"$gpu"}[5m])`: 8,
}

func TestDashboard12239QueriesReturnSeries(t *testing.T) {
	for _, compat := range []string{"legacy", "4.8"} {
		p := start(t, command(t, "--source=sim", "-k=false", "--compat="+compat))
		p.waitFor("/metrics", http.StatusOK, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{")
		for _, accept := range []string{"text/plain;version=0.0.4", "application/openmetrics-text;version=1.0.0"} {
			storage := promqltest.LoadedStorage(t, "load 1m\n"+strings.Join(p.scrapeSeries(accept), "\n"))
			engine := promqltest.NewTestEngine(t, false, 0, 1e6)
			for expression, series := range dashboard12239 {
				query, err := engine.NewInstantQuery(t.Context(), storage, nil, strings.NewReplacer("$instance", "node-1:9400", "$gpu", "0|1|2|3|4|5|6|7").Replace(expression), time.Unix(120, 0))
				if err != nil {
					t.Fatal(err)
				}
				result, err := query.Exec(t.Context()).Vector()
				if err != nil || len(result) != series {
					t.Errorf("%s, %s: %s has %d series: %v", compat, accept, expression, len(result), err)
				}
				query.Close()
			}
		}
	}
}
