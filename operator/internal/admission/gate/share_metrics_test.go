package gate_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/teststorage"

	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/metrics/promengine"
)

// series is a storage for promengine.
type series struct{ *teststorage.TestStorage }

func (s series) Store(ctx context.Context, at time.Time, samples []promengine.Sample) error {
	app := s.Appender(ctx)
	for _, sample := range samples {
		if _, err := app.Append(storage.SeriesRef(0), sample.Series, at.UnixMilli(), sample.Value); err != nil {
			return err
		}
	}
	return app.Commit()
}

// shareMetrics are samples of exporters.
type shareMetrics []promengine.Sample

func (m *shareMetrics) add(value float64, name string, pairs ...string) {
	*m = append(*m, promengine.Sample{Series: labels.FromStrings(append([]string{"__name__", name}, pairs...)...), Value: value})
}

// addNodes adds nodes that can take pods.
func (m *shareMetrics) addNodes(cluster string, n int) {
	for node := range n {
		m.add(1, "node:plimsoll_placeable:bool", "cluster", cluster, "node", fmt.Sprint(node))
		m.add(1, "node:plimsoll_sample_timestamp_seconds:trusted", "cluster", cluster, "node", fmt.Sprint(node))
	}
}

// recorded evaluates the rules of nodes and shares over the samples. The function that it returns evaluates an
// expression over both and returns the values by cluster.
func (m *shareMetrics) recorded(t *testing.T) func(expr string) map[string]float64 {
	t.Helper()
	at := time.Unix(1_700_000_000, 0)
	s := series{teststorage.New(t)}
	if err := s.Store(t.Context(), at, *m); err != nil {
		t.Fatal(err)
	}
	engine := promqltest.NewTestEngine(t, false, 0, 1e7)
	for _, file := range []string{"rules/recording-nodes.yaml", "rules/recording-shares.yaml"} {
		rules, err := promengine.DecodeRules(file, read(t, file))
		if err != nil {
			t.Fatal(err)
		}
		if err := promengine.NewRecorder(engine, s, rules).Evaluate(t.Context(), at); err != nil {
			t.Fatal(err)
		}
	}
	return func(expr string) map[string]float64 {
		result, err := promengine.Query(t.Context(), engine, s, expr, at)
		if err != nil {
			t.Fatal(err)
		}
		values := map[string]float64{}
		for _, sample := range result.Samples {
			values[sample.Labels["cluster"]] = sample.Value
		}
		return values
	}
}

// fitOf returns a function that evaluates the fit query of a sample gate, and returns the pods that fit by cluster,
// and the query.
func (m *shareMetrics) fitOf(t *testing.T, sample string) func(shape.PodSet) (fit map[string]float64, expr string) {
	t.Helper()
	recorded, template := m.recorded(t), sampleFit(t, sample)
	return func(p shape.PodSet) (map[string]float64, string) {
		expr, err := template.Render(shape.Facts{}.Vars(p))
		if err != nil {
			t.Fatal(err)
		}
		return recorded(expr), expr
	}
}

// podsOnDifferentDevices returns how many pods with k different devices each start on the devices of a
// node, which have so many slots: m pods do if min(slots, m) adds up to k·m.
func podsOnDifferentDevices(slots []int, k int) (pods int) {
	for m := 1; ; m++ {
		sum := 0
		for _, n := range slots {
			sum += min(n, m)
		}
		if sum < k*m {
			return m - 1
		}
	}
}
