package main

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql/promqltest"
)

// What the panels of Grafana's dashboard 12239 ask, and how many series answer.
var dashboard12239 = map[string]int{
	`DCGM_FI_DEV_GPU_TEMP{instance=~"$instance", gpu=~"$gpu"}`:            8,
	`avg(DCGM_FI_DEV_GPU_TEMP{instance=~"$instance", gpu=~"$gpu"})`:       1,
	`DCGM_FI_DEV_POWER_USAGE{instance=~"$instance", gpu=~"$gpu"}`:         8,
	`sum(DCGM_FI_DEV_POWER_USAGE{instance=~"$instance", gpu=~"$gpu"})`:    1,
	`DCGM_FI_DEV_SM_CLOCK{instance=~"$instance", gpu=~"$gpu"} * 1000000`:  8,
	`DCGM_FI_DEV_GPU_UTIL{instance=~"$instance", gpu=~"$gpu"}`:            8,
	`DCGM_FI_DEV_FB_USED{instance=~"$instance", gpu=~"$gpu"}`:             8,
	`DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{instance=~"$instance", gpu=~"$gpu"}`: 8,
	// What its variables are made from.
	`group by (instance) (DCGM_FI_DEV_GPU_TEMP)`: 1,
	`group by (gpu) (DCGM_FI_DEV_GPU_TEMP)`:      8,
	// Counters keep their names, also for who scrapes OpenMetrics, as Prometheus does.
	`rate(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{instance=~"$instance", gpu=~"$gpu"}[5m])`: 8,
}

func TestQueriesOfGrafanasDashboard12239Answer(t *testing.T) {
	for _, compat := range []string{"legacy", "4.8"} {
		p := start(t, command(t, "--source=sim", "-k=false", "--compat="+compat))
		p.until("/metrics", http.StatusOK, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{")
		for _, accept := range []string{"text/plain;version=0.0.4", "application/openmetrics-text;version=1.0.0"} {
			storage := promqltest.LoadedStorage(t, "load 1m\n"+strings.Join(p.scraped(accept), "\n"))
			engine := promqltest.NewTestEngine(t, false, 0, 1e6)
			for expression, series := range dashboard12239 {
				query, err := engine.NewInstantQuery(t.Context(), storage, nil, strings.NewReplacer("$instance", "node-1:9400", "$gpu", "0|1|2|3|4|5|6|7").Replace(expression), time.Unix(120, 0))
				if err != nil {
					t.Fatal(err)
				}
				answer, err := query.Exec(t.Context()).Vector()
				if err != nil || len(answer) != series {
					t.Errorf("%s, %s: %s has %d series: %v", compat, accept, expression, len(answer), err)
				}
				query.Close()
			}
		}
	}
}

// scraped are the series as Prometheus would store them, three times the same, in
// the words of its test language.
func (p *process) scraped(accept string) []string {
	p.t.Helper()
	request, err := http.NewRequest(http.MethodGet, p.base+"/metrics", http.NoBody)
	if err != nil {
		p.t.Fatal(err)
	}
	request.Header.Set("Accept", accept)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	parser, err := textparse.New(text, response.Header.Get("Content-Type"), labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	var out []string
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			p.t.Fatal(err)
		}
		if entry == textparse.EntrySeries {
			var l labels.Labels
			parser.Labels(&l)
			out = append(out, "\t"+labels.NewBuilder(l).Set("instance", "node-1:9400").Labels().String()+" 1+0x3")
		}
	}
}
