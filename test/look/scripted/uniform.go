package scripted

import (
	"fmt"
	"io"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// NewUniform returns the script of clusters of the same size without faults. Jobs of two nodes hold
// two thirds of the nodes.
func NewUniform(end time.Time, clusters, nodes, devices int) *Fleet {
	f := &Fleet{end: end, labeled: true}
	for i := range clusters {
		c := &cluster{name: fmt.Sprintf("cluster-%d", i)}
		for n := range nodes {
			c.nodes = append(c.nodes, newNode(c.name, n, h100, devices))
		}
		for n := 0; n+2 <= nodes*2/3; n += 2 {
			hold(c.nodes[n:n+2], &job{fmt.Sprintf("team-%d", n%10), "Job", fmt.Sprintf("train-%d", n), training})
		}
		f.clusters = append(f.clusters, c)
	}
	return f
}

// WriteCluster writes the series of a cluster in the text format of Prometheus, with the label
// cluster. It writes them one by one, because a large fleet does not fit in memory.
func (f *Fleet) WriteCluster(w io.Writer, index int, at time.Time) {
	if index < 0 || index >= len(f.clusters) {
		return
	}
	c := f.clusters[index]
	f.exportCluster(&emitter{at: at, cluster: c.name, seen: func(series labels.Labels, v float64) {
		name, rest := series.Get(model.MetricNameLabel), labels.NewBuilder(series).Del(model.MetricNameLabel).Labels()
		_, _ = fmt.Fprintf(w, "%s%s %s\n", name, rest, formatFloat(v)) // A failed write ends with the connection.
	}}, c)
}
