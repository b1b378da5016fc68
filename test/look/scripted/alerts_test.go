//go:build !race

package scripted

import (
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
)

// beyondHistory are the alerts that need days of samples, by name and severity. Promtool's tests
// of recovery drive them.
var beyondHistory = map[string]bool{
	"PlimsollDemandExceedsCapacity/warning": true,
	"PlimsollDemandExceedsCapacity/info":    true,
	"PlimsollHardwareShrinking/warning":     true,
	"PlimsollNamespaceIdle/info":            true,
}

// TestAlertsFireAndEnd drives each alert by a fault of a component, from the components' metrics
// through all shipped rules: it fires while the fault lasts, and neither before nor long after it.
func TestAlertsFireAndEnd(t *testing.T) {
	p := open(t, newFaultyFleet())
	files, err := RuleFiles(rulesFolder)
	if err != nil {
		t.Fatal(err)
	}
	rules, err := readRules(files)
	if err != nil {
		t.Fatal(err)
	}
	alerts := map[string]bool{}
	for _, r := range rules {
		if r.Alert != "" {
			alerts[r.Alert+"/"+r.Labels["severity"]] = true
		}
	}
	driven := map[string]bool{}
	for _, f := range faults {
		driven[f.alert] = true
		for _, moment := range []struct {
			name   string
			before time.Duration
			fires  bool
		}{{"before the fault", f.from, false}, {"in the fault", f.until, true}, {"at the end", 0, false}} {
			firing := p.firing(t, p.end.Add(-moment.before))
			if firing[f.alert] != moment.fires {
				t.Errorf("%s fires %s: %t", f.alert, moment.name, firing[f.alert])
			}
		}
	}
	for alert := range alerts {
		if driven[alert] == beyondHistory[alert] {
			t.Errorf("%s is driven by a fault: %t, and needs days of samples: %t", alert, driven[alert], beyondHistory[alert])
		}
	}
	for alert := range driven {
		if !alerts[alert] {
			t.Errorf("the alert %s does not exist", alert)
		}
	}
}

// firing returns the alerts that fire at a time, by name and severity.
func (p *Prometheus) firing(t *testing.T, at time.Time) map[string]bool {
	t.Helper()
	result, err := p.instant(t.Context(), `ALERTS{alertstate="firing"}`, at)
	if err != nil {
		t.Fatal(err)
	}
	firing := map[string]bool{}
	for _, s := range result.(promql.Vector) {
		firing[s.Metric.Get("alertname")+"/"+s.Metric.Get("severity")] = true
	}
	return firing
}

// newFaultyFleet returns a script with the faults, and without those of NewFleet.
func newFaultyFleet() *Fleet {
	train := func(nodes ...*node) { hold(nodes, &job{"team", "Job", "train", training}) }
	clusterOf := func(name, model string, nodes, devices int) *cluster {
		c := &cluster{name: name}
		for i := range nodes {
			c.nodes = append(c.nodes, newNode(name, i, model, devices))
		}
		return c
	}
	gpus, split, removed := clusterOf("gpus", h100, 2, 8), clusterOf("split", h100, 2, 8), clusterOf("removed", h100, 2, 1)
	full, gone, shared, tpu := clusterOf("full", h100, 1, 2), clusterOf("gone", h100, 1, 1), clusterOf("shared", l40s, 1, 2), clusterOf("tpu", v5e, 1, 2)
	train(gpus.nodes[0])
	train(full.nodes[0], gone.nodes[0], tpu.nodes[0])
	for _, n := range split.nodes {
		holdSome(n, 0, 4, &job{"team", "Deployment", "serve", training})
	}
	removed.nodes[1].model = l40s
	for i, provider := range []string{"nvidia", "mps"} {
		d := shared.nodes[0].devices[i]
		d.shares, d.sharedBy, d.job = 4, provider, &job{"team", "Deployment", provider, inference}
	}
	f := &Fleet{end: time.Unix(1_700_000_000, 0), labeled: true, clusters: []*cluster{
		gpus, split, removed, full, gone, shared, tpu, clusterOf("spare", h100, 1, 1), clusterOf("silent", h100, 2, 1), clusterOf("dark", h100, 1, 1), clusterOf("stateless", h100, 1, 1)}}
	changes := map[string][]func(time.Time, labels.Labels, float64) (float64, bool){}
	add := func(f *Fleet, from, until time.Duration, c change) {
		changes[c.metric] = append(changes[c.metric], func(at time.Time, series labels.Labels, v float64) (float64, bool) {
			since := at.Sub(f.end.Add(-from))
			if !c.selects(series) {
				return v, true
			}
			if since <= 0 {
				return v, !c.begins
			}
			return c.apply(v, min(since, from-until).Minutes(), max(0, since-(from-until)).Minutes())
		})
	}
	for _, c := range healthy {
		add(f, history+time.Hour, -time.Hour, c)
	}
	for _, fault := range faults {
		for _, c := range fault.changes {
			add(f, fault.from, fault.until, c)
		}
	}
	f.alter = func(at time.Time, series labels.Labels, v float64) (float64, bool) {
		exists := true
		for _, metric := range []string{"", series.Get(model.MetricNameLabel)} {
			for _, change := range changes[metric] {
				var kept bool
				v, kept = change(at, series, v)
				exists = exists && kept
			}
		}
		return v, exists
	}
	f.extra = func(e *emitter) {
		e.cluster = "gpus"
		e.target("extra", "extra")
		device := []string{"node", "gpus-gpu-2", "uuid", gpus.nodes[1].devices[0].uuid, "gpu", "0", "model", h100}
		for xid, severity := range map[string]string{"79": "critical", "999": "unknown"} {
			e.add("plimsoll_xid_total", 0, append(device, "xid", xid, "severity", severity)...)
		}
		e.add("plimsoll_build_info", 1, "component", "exporter", "version", "2.0.0", "revision", "unknown")
	}
	return f
}

// change of the samples of a metric. The metric "" stands for all.
type change struct {
	metric string
	match  map[string]string
	// begins is true if the samples do not exist before the fault.
	begins bool
	// apply returns the value after some minutes in the fault, and some minutes after it, and
	// whether the sample exists.
	apply func(v, in, after float64) (float64, bool)
}

func (c change) selects(series labels.Labels) bool {
	for name, value := range c.match {
		if series.Get(name) != value {
			return false
		}
	}
	return true
}

func changeOf(apply func(v, in, after float64) (float64, bool), metric string, kv []string) change {
	c := change{metric: metric, match: map[string]string{}, apply: apply}
	for i := 0; i < len(kv); i += 2 {
		c.match[kv[i]] = kv[i+1]
	}
	return c
}

// set sets a value while the fault lasts.
func set(value float64, metric string, kv ...string) change {
	return changeOf(func(v, _, after float64) (float64, bool) {
		if after > 0 {
			return v, true
		}
		return value, true
	}, metric, kv)
}

// drop removes the samples while the fault lasts.
func drop(metric string, kv ...string) change {
	return changeOf(func(v, _, after float64) (float64, bool) { return v, after > 0 }, metric, kv)
}

// only removes the samples before and after the fault.
func only(metric string, kv ...string) change {
	c := changeOf(func(v, _, after float64) (float64, bool) { return v, after == 0 }, metric, kv)
	c.begins = true
	return c
}

// grow lets a counter grow by more in each minute of the fault, and of the time after it.
func grow(in, after float64, metric string, kv ...string) change {
	return changeOf(func(v, minutesIn, minutesAfter float64) (float64, bool) {
		return v + in*minutesIn + after*minutesAfter, true
	}, metric, kv)
}

// count replaces a counter by one that grows by the same number in each minute.
func count(perMinute float64, metric string, kv ...string) change {
	return changeOf(func(_, minutes, _ float64) (float64, bool) { return perMinute * minutes, true }, metric, kv)
}
