package round

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"plimsoll.dev/plimsoll/operator/internal/metrics/clustermap"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/scoring/score"
)

const (
	// maxExamples is the number of series and of clusters that a NoMatch lists.
	maxExamples = 3
	// maxSeriesText is the length of a listed series in bytes.
	maxSeriesText = 120
)

// NoMatch describes a response that matches no cluster: a query without the cluster label,
// a mapping to other names, a misspelled metric, several series per cluster.
type NoMatch struct {
	// Series is the number of series in the response.
	Series int
	// Seen are the labels of some series, and Expected those that would match.
	Seen, Expected []string
	// Hint is what to change.
	Hint string
}

// String describes the response beside the expectation.
func (n *NoMatch) String() string {
	seen, expected := "no series", "none: no selected ManagedCluster has the label or claim of clusterMapping"
	if n.Series > 0 {
		seen = fmt.Sprintf("%d series, such as %s", n.Series, strings.Join(n.Seen, " and "))
	}
	if len(n.Expected) > 0 {
		expected = "one series each for " + strings.Join(n.Expected, " and ")
	}
	return fmt.Sprintf("matches no cluster: seen %s; expected %s. %s", seen, expected, n.Hint)
}

// matchesCluster reports whether the response has exactly one series for the cluster.
func matchesCluster(in score.Input) bool {
	return in.Outcome == score.OK || in.Outcome == score.NaN || in.Outcome == score.Infinite
}

// markUnmatched replaces the outcome of every cluster in the response by
// Unmatched. It reports whether there is one.
func markUnmatched(inputs []score.Input) bool {
	found := false
	for i := range inputs {
		if o := inputs[i].Outcome; o == score.Absent || o == score.Duplicate {
			inputs[i].Outcome, found = score.Unmatched, true
		}
	}
	return found
}

func newNoMatch(groups clustermap.Groups, samples []query.Sample, clusters *clustermap.Mapping, mappingWarnings []string, hint string) *NoMatch {
	n := &NoMatch{Series: len(samples), Hint: noMatchHint(groups, len(samples), clusters, hint)}
	if len(mappingWarnings) > 0 {
		n.Hint = strings.Join(mappingWarnings, "; ")
	}
	if len(samples) == len(groups.Unlabeled)+len(groups.Unknown) {
		if label := labelWithClusters(samples, clusters); label != "" {
			n.Hint = fmt.Sprintf("These series carry your clusters in the label %s: set --cluster-label %[1]s, or clusterMapping.label: %[1]s in the MetricsSource", label)
		}
	}
	seen := map[string]bool{}
	for _, s := range samples {
		if s.Labels == nil && s.Cluster != "" {
			continue // only the first series of a response have all labels
		}
		seen[seriesText(s.Labels)] = true
	}
	all := slices.Sorted(maps.Keys(seen)) // the order of a response can change
	n.Seen = all[:min(maxExamples, len(all))]
	for _, value := range clusters.Values(maxExamples) {
		n.Expected = append(n.Expected, seriesText(map[string]string{clusters.Label(): value}))
	}
	return n
}

// labelWithClusters returns the label by which most series name a cluster; empty = none does.
func labelWithClusters(samples []query.Sample, clusters *clustermap.Mapping) (label string) {
	named := map[string]int{}
	for _, s := range samples {
		for name, value := range s.Labels {
			if _, ok := clusters.Cluster(value); ok {
				named[name]++
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		if named[name] > named[label] {
			label = name
		}
	}
	return label
}

// noMatchHint returns what to change if no warning of the mapping says it.
func noMatchHint(groups clustermap.Groups, series int, clusters *clustermap.Mapping, hint string) string {
	label := clusters.Label()
	switch {
	case series == 0:
		return "Check the names of the metric and its labels. A native histogram has no value of its own: use histogram_count or histogram_quantile"
	case len(groups.Unknown) > 0:
		return fmt.Sprintf("The label %s must name selected ManagedClusters: check clusterMapping of the MetricsSource", label)
	}
	return hint
}

// seriesText returns the labels of a series in the notation of PromQL. Control characters
// are escaped, and a long text is cut.
func seriesText(labels map[string]string) string {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, fmt.Sprintf("%s=%q", name, labels[name]))
	}
	text := "{" + strings.Join(pairs, ", ") + "}"
	if len(text) > maxSeriesText {
		text = strings.ToValidUTF8(text[:maxSeriesText-4], "") + "...}"
	}
	return text
}
