package round

import (
	"fmt"
	"math"

	"plimsoll.dev/plimsoll/operator/internal/query"
	"plimsoll.dev/plimsoll/operator/internal/score"
)

// Mapped is an answer, by cluster.
type Mapped struct {
	// Inputs has one per cluster of the index.
	Inputs []score.Input
	// Unlabeled counts series without the cluster label, Others the series of
	// clusters outside the fleet.
	Unlabeled, Others int
}

// Map gives every cluster its value, or the reason why it has none. Nothing is
// guessed: no series is Absent, two are Duplicate.
func Map(answer query.Result, label string, x *Index) Mapped {
	m := Mapped{Inputs: fill(len(x.names), score.Absent)}
	for _, s := range answer.Samples {
		key, ok := s.Labels[label]
		if !ok || key == "" {
			m.Unlabeled++
			continue
		}
		i, ok := x.byKey[key]
		switch {
		case !ok:
			m.Others++
		case x.shared[key] != nil:
			for _, i := range x.shared[key] {
				m.Inputs[i] = score.Input{Outcome: score.Duplicate}
			}
		case m.Inputs[i].Outcome != score.Absent:
			m.Inputs[i] = score.Input{Outcome: score.Duplicate}
		default:
			m.Inputs[i] = input(s.Value)
		}
	}
	return m
}

// Problem says what is wrong with an answer that no cluster can be found in.
func (m Mapped) Problem(label string) string {
	if m.Unlabeled == 0 {
		return ""
	}
	return fmt.Sprintf("%d series have no label %q: the query must keep it, as in sum by (%s) (...)", m.Unlabeled, label, label)
}

func input(v float64) score.Input {
	switch {
	case math.IsNaN(v):
		return score.Input{Outcome: score.NaN}
	case math.IsInf(v, 0):
		return score.Input{Outcome: score.Infinite}
	}
	return score.Input{Value: v}
}

func fill(n int, o score.Outcome) []score.Input {
	inputs := make([]score.Input, n)
	for i := range inputs {
		inputs[i].Outcome = o
	}
	return inputs
}
