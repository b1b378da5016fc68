package scripted

import (
	"bytes"
	"fmt"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// NewUniform returns the script of one cluster of equal nodes without faults. Jobs of two nodes hold
// two thirds of the nodes.
func NewUniform(end time.Time, nodes, devices int) *Fleet {
	c := &cluster{name: "cluster-0"}
	for n := range nodes {
		c.nodes = append(c.nodes, newNode(c.name, n, h100, devices))
	}
	for n := 0; n+2 <= nodes*2/3; n += 2 {
		hold(c.nodes[n:n+2], &job{fmt.Sprintf("team-%d", n%10), "Job", fmt.Sprintf("train-%d", n), training})
	}
	return &Fleet{end: end, labeled: true, clusters: []*cluster{c}}
}

// Write writes the series of the clusters in the text format of Prometheus, with the label cluster.
func (f *Fleet) Write(text *bytes.Buffer, at time.Time) {
	for _, c := range f.clusters {
		f.exportCluster(&emitter{at: at, cluster: c.name, seen: func(series labels.Labels, v float64) {
			name, rest := series.Get(model.MetricNameLabel), labels.NewBuilder(series).Del(model.MetricNameLabel).Labels()
			_, _ = fmt.Fprintf(text, "%s%s %s\n", name, rest, formatFloat(v)) // A buffer does not fail.
		}}, c)
	}
}
