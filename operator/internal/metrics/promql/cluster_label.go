package promql

import "regexp"

// clusterLabelVariable is the variable of the cluster label.
var clusterLabelVariable = regexp.MustCompile(`\$cluster_label\b`)

// ExpandClusterLabel replaces the variable $cluster_label by the name of the label that
// identifies the cluster of a series. The name must be a valid label name. source converts an
// offset in the expanded expression to the offset in expr.
func ExpandClusterLabel(expr, label string) (expanded string, source func(offset int) int) {
	matches := clusterLabelVariable.FindAllStringIndex(expr, -1)
	if matches == nil {
		return expr, func(offset int) int { return offset }
	}
	return clusterLabelVariable.ReplaceAllLiteralString(expr, label), func(offset int) int {
		shift := 0 // of the text behind the variables so far, against expr
		for _, m := range matches {
			start := m[0] + shift
			switch {
			case offset < start:
				return offset - shift
			case offset < start+len(label):
				return m[0]
			}
			shift += len(label) - (m[1] - m[0])
		}
		return offset - shift
	}
}
