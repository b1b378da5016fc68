package clustermap

import (
	"math"
	"slices"

	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// Outcome is the kind of result that a query has for a cluster.
type Outcome uint8

// Outcomes of a query for a cluster. Only Found comes with a usable value.
const (
	Absent    Outcome = iota // no series
	Found                    // one series with a finite value
	NaN                      // one series, and its value is not a number
	Infinite                 // one series, and its value is +Inf or -Inf
	Duplicate                // more than one series
	Ambiguous                // at least one series whose label value several clusters share
)

// Value is the result of a query for one cluster.
type Value struct {
	// Value of the series. Meaningful only if Outcome is Found, NaN or Infinite.
	Value   float64
	Outcome Outcome
}

// Groups are the samples of one query, grouped by cluster.
type Groups struct {
	// Names of the clusters in ascending order, and the value of each.
	Names  []string
	Values []Value
	// Unlabeled samples lack the cluster label, or their label is empty.
	Unlabeled []query.Sample
	// Unknown samples name a cluster outside the mapping.
	Unknown []query.Sample
	// Ambiguous samples have a label value that several clusters share.
	Ambiguous []query.Sample
}

// Group groups the samples of a query by cluster. Ambiguous outranks Duplicate.
func (m *Mapping) Group(samples []query.Sample) Groups {
	groups := Groups{Names: m.names, Values: make([]Value, len(m.names))}
	for _, sample := range samples {
		value := sample.Label(m.label)
		if value == "" {
			groups.Unlabeled = append(groups.Unlabeled, sample)
			continue
		}
		if sharers := m.shared[value]; sharers != nil {
			groups.Ambiguous = append(groups.Ambiguous, sample)
			groups.markAmbiguous(sharers)
			continue
		}
		i, ok := m.index[value]
		if !ok {
			groups.Unknown = append(groups.Unknown, sample)
			continue
		}
		switch v := &groups.Values[i]; v.Outcome {
		case Absent:
			*v = Value{Value: sample.Value, Outcome: outcomeOf(sample.Value)}
		case Ambiguous:
		default:
			*v = Value{Outcome: Duplicate}
		}
	}
	return groups
}

// ByCluster returns the values by cluster name, without Absent clusters.
func (g Groups) ByCluster() map[string]Value {
	values := make(map[string]Value, len(g.Names))
	for i, name := range g.Names {
		if g.Values[i].Outcome != Absent {
			values[name] = g.Values[i]
		}
	}
	return values
}

// markAmbiguous marks the clusters that share a label value, as far as the mapping
// has them.
func (g Groups) markAmbiguous(sharers []string) {
	for _, name := range sharers {
		if i, ok := slices.BinarySearch(g.Names, name); ok {
			g.Values[i] = Value{Outcome: Ambiguous}
		}
	}
}

func outcomeOf(value float64) Outcome {
	switch {
	case math.IsNaN(value):
		return NaN
	case math.IsInf(value, 0):
		return Infinite
	}
	return Found
}
