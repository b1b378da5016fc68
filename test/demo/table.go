package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
)

// lowestScore is published for a cluster without fresh metrics.
const lowestScore = -100

// row is one cluster in the table that the legend describes.
type row struct {
	cluster         string
	free, onOneNode map[string]float64 // by cluster
	scores          map[string]int32   // by name
	isBest          bool
}

// scoreTable formats rows. It remembers which clusters have had a score, because the
// operator publishes the lowest score before the first metrics arrive.
type scoreTable struct{ scored map[string]bool }

func (t *scoreTable) format(rows []row) (string, error) {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	header := "      CLUSTER\tFREE H100\tON ONE NODE\tHEADROOM\tIDLE\tTOTAL"
	if slices.ContainsFunc(rows, func(r row) bool { return r.isBest }) {
		header += "\tOCM"
	}
	fmt.Fprintln(w, header)
	for _, r := range rows {
		mark := ""
		if r.isBest {
			mark = "\tbest"
		}
		fmt.Fprintf(w, "      %s\t%s\t%s\t%s\t%s\t%s%s\n", r.cluster, formatValue(r.free, r.cluster), formatValue(r.onOneNode, r.cluster),
			t.formatScore(r, "headroom"), t.formatScore(r, "idle"), t.formatScore(r, "total"), mark)
	}
	err := w.Flush()
	return b.String(), err
}

func (t *scoreTable) formatScore(r row, name string) string {
	value, ok := r.scores[name]
	if ok && value > lowestScore {
		if t.scored == nil {
			t.scored = map[string]bool{}
		}
		t.scored[r.cluster] = true
	}
	if !t.scored[r.cluster] {
		return "no score yet"
	}
	if !ok {
		return "-"
	}
	return fmt.Sprint(value)
}

func formatValue(values map[string]float64, cluster string) string {
	if v, ok := values[cluster]; ok {
		return fmt.Sprintf("%g", v)
	}
	return "unknown"
}
