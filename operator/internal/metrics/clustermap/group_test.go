package clustermap

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

func sample(cluster string, value float64) query.Sample {
	return query.Sample{Labels: map[string]string{"cluster": cluster}, Value: value}
}

// sites maps a to "one", b and c to the shared "two", and leaves d without a value.
var sites = fromValues("cluster", map[string]string{"a": "one", "b": "two", "c": "two", "d": "", "e": "five"})

func TestGroup(t *testing.T) {
	bare := query.Sample{Value: 7}
	for _, tc := range []struct {
		name    string
		mapping *Mapping
		samples []query.Sample
		want    map[string]Value
		rest    Groups // Unlabeled, Unknown and Ambiguous
	}{
		{
			name: "no sample", mapping: sites, want: map[string]Value{},
		},
		{
			name: "one sample each", mapping: sites, samples: []query.Sample{sample("one", 1), sample("five", 0)},
			want: map[string]Value{"a": {Value: 1, Outcome: Found}, "e": {Outcome: Found}},
		},
		{
			name: "not a number", mapping: sites, samples: []query.Sample{sample("one", math.NaN())},
			want: map[string]Value{"a": {Value: math.NaN(), Outcome: NaN}},
		},
		{
			name: "both infinities", mapping: sites, samples: []query.Sample{sample("one", math.Inf(1)), sample("five", math.Inf(-1))},
			want: map[string]Value{"a": {Value: math.Inf(1), Outcome: Infinite}, "e": {Value: math.Inf(-1), Outcome: Infinite}},
		},
		{
			name: "two samples for one cluster", mapping: sites, samples: []query.Sample{sample("one", 1), sample("one", 1)},
			want: map[string]Value{"a": {Outcome: Duplicate}},
		},
		{
			name: "a duplicate after NaN", mapping: sites, samples: []query.Sample{sample("one", math.NaN()), sample("one", 1), sample("one", 2)},
			want: map[string]Value{"a": {Outcome: Duplicate}},
		},
		{
			name: "a shared value", mapping: sites, samples: []query.Sample{sample("two", 5)},
			want: map[string]Value{"b": {Outcome: Ambiguous}, "c": {Outcome: Ambiguous}},
			rest: Groups{Ambiguous: []query.Sample{sample("two", 5)}},
		},
		{
			name: "a shared value and a selection", mapping: sites.Select([]string{"a", "c"}), samples: []query.Sample{sample("one", 1), sample("two", 5), sample("five", 2)},
			want: map[string]Value{"a": {Value: 1, Outcome: Found}, "c": {Outcome: Ambiguous}},
			rest: Groups{Ambiguous: []query.Sample{sample("two", 5)}, Unknown: []query.Sample{sample("five", 2)}},
		},
		{
			name: "unlabeled and unknown", mapping: sites, samples: []query.Sample{bare, sample("", 3), sample("elsewhere", 4), sample("d", 5)},
			want: map[string]Value{},
			rest: Groups{Unlabeled: []query.Sample{bare, sample("", 3)}, Unknown: []query.Sample{sample("elsewhere", 4), sample("d", 5)}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			groups := tc.mapping.Group(tc.samples)
			if diff := cmp.Diff(tc.want, groups.ByCluster(), cmpopts.EquateNaNs()); diff != "" {
				t.Errorf("values (-want +got):\n%s", diff)
			}
			rest := Groups{Unlabeled: groups.Unlabeled, Unknown: groups.Unknown, Ambiguous: groups.Ambiguous}
			if diff := cmp.Diff(tc.rest, rest); diff != "" {
				t.Errorf("other samples (-want +got):\n%s", diff)
			}
			if len(groups.Values) != tc.mapping.Len() {
				t.Errorf("%d values for %d clusters", len(groups.Values), tc.mapping.Len())
			}
		})
	}
}

// FuzzGroup checks that only the cluster with a unique label value gets a value, and
// that this value is the one of the sample.
func FuzzGroup(f *testing.F) {
	f.Add("cluster", "one", 1.0, false)
	f.Add("cluster", "five", math.NaN(), true)
	f.Add("cluster", "two", math.Inf(1), false)
	f.Add("", "", 0.0, true)
	f.Fuzz(func(t *testing.T, label, value string, v float64, twice bool) {
		samples := []query.Sample{{Labels: map[string]string{label: value}, Value: v}}
		if twice {
			samples = append(samples, samples[0])
		}
		groups := sites.Group(samples)
		for i, got := range groups.Values {
			named := label == "cluster" && (value == "one" && groups.Names[i] == "a" || value == "five" && groups.Names[i] == "e")
			if got.Outcome == Found && (!named || twice || got.Value != v || math.IsNaN(v) || math.IsInf(v, 0)) {
				t.Fatalf("%s got %v from %q=%q %v (twice: %t)", groups.Names[i], got, label, value, v, twice)
			}
			if named && !twice && got.Outcome == Absent {
				t.Fatalf("%s lost the value %v", groups.Names[i], v)
			}
		}
		if kept := len(groups.Unlabeled) + len(groups.Unknown) + len(groups.Ambiguous); label != "cluster" && kept != len(samples) {
			t.Fatalf("%d of %d samples without the label are kept", kept, len(samples))
		}
	})
}
