package round

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/scoring/score"
)

const (
	free       = "cluster_resource:plimsoll_free_devices:sum"
	sampleTime = "time() - max by (cluster) (last_over_time(cluster:plimsoll_sample_timestamp_seconds:min[1h]))"
)

func TestDefaultFreshness(t *testing.T) {
	for name, tc := range map[string]struct {
		queries []string
		want    string // of the scores: a for one with an age, - for one without
	}{
		"recorded":                  {[]string{"sum by (cluster) (" + free + ")"}, "a"},
		"recorded beside others":    {[]string{"price", free, "cluster:price:max"}, "-a-"},
		"one of several selectors":  {[]string{"sum by (cluster) (DCGM_FI_DEV_POWER_USAGE) / " + free}, "a"},
		"raw":                       {[]string{"sum by (cluster) (plimsoll_node_free_devices)"}, ""},
		"recorded by others":        {[]string{"cluster:price:max"}, ""},
		"requests":                  {[]string{"node:kube_unrequested:placeable", "node:kube_allocatable:placeable"}, "aa"},
		"of other exporters":        {[]string{"cluster:plimsoll_gpu_utilization:avg", "cluster_model:plimsoll_power_watts:sum", "cluster_resource:plimsoll_demand_devices:sum"}, ""},
		"over a day":                {[]string{"cluster_resource:plimsoll_usable_devices:max1d"}, ""},
		"the operator's own metric": {[]string{"plimsoll:tolerated_taint:info"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			spec, policy, err := Compile(newSpec(tc.queries...), "cluster")
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, aged := range policy.Aged {
				got += map[bool]string{true: "a", false: "-"}[aged]
			}
			if got != tc.want || (spec.Freshness != nil) != (tc.want != "") || spec.Freshness != nil && spec.Freshness.Query != sampleTime {
				t.Errorf("aged %q, want %q; freshness %+v", got, tc.want, spec.Freshness)
			}
		})
	}
	limited := newSpec(free)
	limited.Freshness = &v1alpha1.Freshness{MaxAgeSeconds: 240}
	if spec, policy, err := Compile(limited, "cluster"); err != nil || spec.Freshness.Query != sampleTime || policy.MaxAge != 4*time.Minute {
		t.Errorf("with a limit of its own: %+v, %s, error %v", spec.Freshness, policy.MaxAge, err)
	}
	broken := newSpec("price", "sum by (cluster) (up")
	broken.Freshness = limited.Freshness.DeepCopy()
	broken.Freshness.Query = ""
	limited.Scores[0].Query = "price"
	if spec, policy, err := Compile(broken, "cluster"); err != nil || spec.Freshness.Query != sampleTime || !slices.Equal(policy.Aged, []bool{false, true}) {
		t.Errorf("a query can't be parsed: %+v, %v, %v", spec.Freshness, policy, err)
	}
	if _, _, err := Compile(limited, "cluster"); err == nil || !strings.HasPrefix(err.Error(), "freshness.query: must be set") {
		t.Errorf("a limit of no age gives the error %v", err)
	}
	own := newSpec(free)
	own.Freshness = &v1alpha1.Freshness{Query: "age"}
	if spec, policy, err := Compile(own, "cluster"); err != nil || spec.Freshness.Query != "age" || policy.Aged != nil {
		t.Errorf("with a query of its own: %+v, aged %v, error %v", spec.Freshness, policy.Aged, err)
	}
}

// A policy ranks clusters by free devices and by price. Only c1 and c2 have the recording rules.
func TestDefaultFreshnessJudgesRecordedSeriesOnly(t *testing.T) {
	fifty := int32(50)
	spec := newSpec(free, "price")
	spec.Scores[0].Missing = v1alpha1.Missing{Absent: "Fixed", FixedValue: &fifty}
	price := query.Result{Samples: []query.Sample{sample("c1", 3), sample("c2", 4), sample("without", 5)}}
	source := &fakeSource{responses: map[string]query.Result{
		free: {Samples: []query.Sample{sample("c1", 10), sample("c2", 20)}}, "price": price,
		sampleTime: {Samples: []query.Sample{sample("c1", 15), sample("c2", 15)}},
	}}
	req := newRequest(spec, source, "c1", "c2", "without")
	req.Previous = Run(context.Background(), req).Result

	req.Now = now.Add(time.Minute)
	source.responses[sampleTime] = query.Result{Samples: []query.Sample{sample("c1", 15), sample("c2", 121)}}
	r := Run(context.Background(), req).Result
	want := [][2]score.Outcome{{score.OK, score.OK}, {score.Stale, score.OK}, {score.None, score.OK}}
	for i, cluster := range r.Clusters {
		if row := r.Row(i); row[0].Outcome != want[i][0] || row[1].Outcome != want[i][1] {
			t.Errorf("%s: free is %s, price %s, want %s", cluster, row[0].Outcome, row[1].Outcome, want[i])
		}
	}
	at := req.Now
	if free, price := r.Row(0)[0].SampleTime.Time(), r.Row(0)[1].SampleTime.Time(); !free.Equal(at.Add(-15*time.Second)) || !price.Equal(at) {
		t.Errorf("sample times of c1: free %s, price %s, at %s", free, price, at)
	}
}

// The source has recorded series, but not the one of the sample times.
func TestDefaultFreshnessDoesNotCountWithoutSampleTimes(t *testing.T) {
	source := &fakeSource{responses: map[string]query.Result{free: {Samples: []query.Sample{sample("c1", 10), sample("c2", 20)}}, sampleTime: {}}}
	r := runRound(newSpec(free), source)
	if a := r.Result.Row(0)[0]; a.Outcome != score.OK || a.Value != 10 {
		t.Errorf("c1 is %s %d", a.Outcome, a.Value)
	}
	f := r.Freshness
	if f == nil || f.NoMatch != nil || !f.Optional || len(f.Warnings) != 1 || !strings.Contains(f.Warnings[0], "the age of samples does not count") {
		t.Errorf("report %+v", f)
	}
	// Once it had matched, a lack of sample times means that the clusters were lost.
	source.responses[sampleTime] = query.Result{Samples: []query.Sample{sample("c1", 1), sample("c2", 1)}}
	req := newRequest(newSpec(free), source, "c1", "c2")
	req.Previous = Run(context.Background(), req).Result
	source.responses[sampleTime] = query.Result{}
	if a := Run(context.Background(), req).Result.Row(0)[0]; a.Outcome != score.Stale {
		t.Errorf("after the loss, c1 is %s", a.Outcome)
	}
}

// The source is Thanos, has no sample times, and loses a store; or the query for the sample times fails from the start.
func TestDefaultFreshnessDoesNotCountBeforeItMatched(t *testing.T) {
	values := query.Result{Samples: []query.Sample{sample("c1", 10), sample("c2", 20)}}
	for name, responses := range map[string]map[string]query.Result{
		"a partial response": {free: values, sampleTime: {Partial: true}},
		"a failure":          {free: values},
	} {
		t.Run(name, func(t *testing.T) {
			r := runRound(newSpec(free), &fakeSource{responses: responses})
			if a := r.Result.Row(0)[0]; a.Outcome != score.OK || a.Value != 10 {
				t.Errorf("c1 is %s %d", a.Outcome, a.Value)
			}
			f := r.Freshness
			if f.Err != nil || f.NoMatch != nil || len(f.Warnings) != 1 || !strings.Contains(f.Warnings[0], "the age of samples does not count") {
				t.Errorf("report %+v", f)
			}
		})
	}
}

// Both clusters have free devices, and only c1 has a sample time. Once an age was known, its lack counts.
func TestDefaultFreshnessCountsByCluster(t *testing.T) {
	source := &fakeSource{responses: map[string]query.Result{
		free: {Samples: []query.Sample{sample("c1", 10), sample("c2", 20)}}, sampleTime: {Samples: []query.Sample{sample("c1", 15)}},
	}}
	req := newRequest(newSpec(free), source, "c1", "c2")
	check := func(c1, c2 score.Outcome) *Report {
		t.Helper()
		r := Run(context.Background(), req)
		if got := [2]score.Outcome{r.Result.Row(0)[0].Outcome, r.Result.Row(1)[0].Outcome}; got != [2]score.Outcome{c1, c2} {
			t.Errorf("c1 is %s, c2 %s, want %s and %s", got[0], got[1], c1, c2)
		}
		req.Previous, req.Now = r.Result, req.Now.Add(time.Minute)
		return r
	}
	if w := check(score.OK, score.OK).Freshness.Warnings; len(w) != 1 || !strings.Contains(w[0], "no sample time, such as c2") {
		t.Errorf("warnings %q", w)
	}
	source.responses[sampleTime] = query.Result{Samples: []query.Sample{sample("c2", 15)}}
	check(score.Stale, score.OK)
	source.responses[sampleTime] = query.Result{}
	check(score.Stale, score.Stale)
	delete(source.responses, sampleTime)
	check(score.Failed, score.Failed)
	req.Previous = req.Previous.Without([]string{"c2"}) // another cluster of the same name
	check(score.Failed, score.OK)
}
