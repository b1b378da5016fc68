//go:build !race

package loop

import (
	"encoding/csv"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/world"
)

// traces is the folder with openb_node_list_gpu_node.csv and openb_pod_list_default.csv of cluster-trace-gpu-v2023 in
// github.com/alibaba/clusterdata.
var traces = os.Getenv("PLIMSOLL_TRACES")

// byDevices decides as the product does, but by the free devices of nodes alone.
func byDevices(in *gate.Inputs, now time.Time) gate.Decision {
	changed := *in
	changed.Candidates = slices.Clone(in.Candidates)
	for i := range changed.Candidates {
		c := &changed.Candidates[i]
		c.Shapes = slices.Clone(c.Shapes)
		for j := range c.Shapes {
			c.Shapes[j].Fit, c.Shapes[j].RequestFit = c.Shapes[j].DeviceFit, gate.Number{}
		}
	}
	return changed.Decide(now)
}

// withoutOutcomes makes a strategy forget what became of the jobs that it sent.
func withoutOutcomes(decide gate.Decider) gate.Decider {
	return func(in *gate.Inputs, now time.Time) gate.Decision {
		changed := *in
		changed.View = in.View.WithoutStarts()
		changed.Candidates = slices.Clone(in.Candidates)
		for i := range changed.Candidates {
			changed.Candidates[i].LastResort = ""
		}
		return decide(&changed, now)
	}
}

// outcomeStrategies are the rows of the table of outcomes in operator/docs/admission.md.
var outcomeStrategies = []strategy{
	{name: "free devices", decide: withoutOutcomes(byDevices)},
	{name: "free devices, outcomes", decide: byDevices},
	{name: "whole pods", decide: withoutOutcomes(outOfOrder)},
	{name: "whole pods, outcomes", decide: outOfOrder},
}

// openb has nodes and pods of the trace.
type openb struct {
	nodes []world.Pool
	jobs  []world.Job
}

func readOpenb(folder string) (o openb, err error) {
	nodes, err := readCSV(filepath.Join(folder, "openb_node_list_gpu_node.csv"), "model", "gpu", "cpu_milli", "memory_mib")
	if err != nil {
		return o, err
	}
	pods, err := readCSV(filepath.Join(folder, "openb_pod_list_default.csv"), "num_gpu", "cpu_milli", "memory_mib", "scheduled_time", "deletion_time")
	if err != nil {
		return o, err
	}
	for _, n := range nodes {
		o.nodes = append(o.nodes, world.Pool{Nodes: 1, Model: n.text["model"], Devices: n.number("gpu"), CPU: n.number("cpu_milli"), Memory: n.number("memory_mib")})
	}
	for _, p := range pods {
		j := world.Job{Devices: p.number("num_gpu"), CPU: p.number("cpu_milli"), Memory: p.number("memory_mib")}
		if j.Devices == 0 {
			continue
		}
		runs := time.Duration(p.number("deletion_time")-p.number("scheduled_time")) * time.Second
		j.Duration = min(max(runs, 30*time.Second), 2*time.Hour)
		o.jobs = append(o.jobs, j)
	}
	return o, nil
}

// row of a file with a header.
type row struct{ text map[string]string }

// number is the number of a column; an empty one is 0, such as the end of a pod that still ran.
func (r row) number(column string) int64 {
	n, _ := strconv.ParseInt(r.text[column], 10, 64)
	return n
}

// readCSV reads a file whose header has some columns.
func readCSV(path string, columns ...string) (rows []row, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, column := range columns {
		if len(lines) == 0 || !slices.Contains(lines[0], column) {
			return nil, fmt.Errorf("%s has no column %s", path, column)
		}
	}
	for _, line := range lines[1:] {
		text := map[string]string{}
		for i, column := range lines[0] {
			text[column] = line[i]
		}
		rows = append(rows, row{text})
	}
	return rows, nil
}

// world has 160 nodes in 8 clusters of different sizes, and jobs that use 85 % of their devices for three hours. On the
// second cluster no pod finds a node for half an hour, and on the third no pod becomes ready for half an hour.
func (o openb) world(seed uint64) world.Spec {
	const nodes, clusters, load, length = 160, 8, 0.85, 3 * time.Hour
	random := rand.New(rand.NewPCG(seed, 0x6f70656e62))
	s := newWorld()
	s.Queues = []world.Queue{{Name: "gpu", AnyModel: true}}
	s.Settings.ScrapeInterval = 30 * time.Second
	weights, sum := make([]float64, clusters), 0.0
	for i := range weights {
		weights[i] = 1 / float64(i+1)
		sum += weights[i]
		s.Clusters = append(s.Clusters, world.Cluster{Name: fmt.Sprint("cluster", i+1)})
	}
	devices := 0.0
	for i := range nodes {
		at, x := i%clusters, random.Float64()*sum // each cluster has a node
		if i >= clusters {
			for at = 0; x > weights[at]; at++ {
				x -= weights[at]
			}
		}
		n := o.nodes[random.IntN(len(o.nodes))]
		devices += float64(n.Devices)
		s.Clusters[at].Pools = append(s.Clusters[at].Pools, n)
	}
	mean := 0.0
	for _, j := range o.jobs {
		mean += float64(j.Devices) * j.Duration.Seconds() / float64(len(o.jobs))
	}
	for at := 60.0; at < length.Seconds(); at += random.ExpFloat64() * mean / (load * devices) {
		j := o.jobs[random.IntN(len(o.jobs))]
		j.Name, j.At = fmt.Sprint("j", len(s.Jobs)), time.Duration(at*float64(time.Second))
		j.Namespace = []string{"team-a", "team-b", "team-c"}[random.IntN(3)]
		s.Jobs = append(s.Jobs, j)
	}
	s.Faults = []world.Fault{{Kind: world.SchedulerDead, Cluster: "cluster2", At: 30 * time.Minute, Lasts: 30 * time.Minute}, {Kind: world.StartsFail, Cluster: "cluster3", At: 90 * time.Minute, Lasts: 30 * time.Minute}}
	return s
}

// BenchmarkTablesOutcomes prints the table of outcomes in operator/docs/admission.md: what it gains to judge pods whole,
// and to learn from those that did not start.
func BenchmarkTablesOutcomes(b *testing.B) {
	if traces == "" {
		b.Skip("PLIMSOLL_TRACES is not the folder with openb_node_list_gpu_node.csv and openb_pod_list_default.csv")
	}
	trace, err := readOpenb(traces)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		fmt.Print("\n| decides by | mean wait | longest | late by 1 min | by 5 min | with faults: mean wait | longest | late by 1 min | by 5 min |\n|---|---|---|---|---|---|---|---|---|\n")
		for _, s := range outcomeStrategies {
			fmt.Printf("| %s | %s | %s |\n", s.name, s.runOutcomes(trace, func(spec *world.Spec) { spec.Faults = nil }), s.runOutcomes(trace, func(*world.Spec) {}))
		}
	}
}

// runOutcomes runs ten worlds of a trace. It returns the mean and the longest wait in s, and how many jobs were not ready a
// minute and five minutes after a cluster admitted them.
func (s strategy) runOutcomes(trace openb, change func(*world.Spec)) string {
	var sum waits
	var late, hung int
	for seed := range uint64(10) {
		spec := trace.world(seed)
		change(&spec)
		w := s.run(spec, 0)
		of := waitsOf(w, all)
		sum.jobs, sum.total, sum.longest = sum.jobs+of.jobs, sum.total+of.total, max(sum.longest, of.longest)
		for _, r := range w.Runs() {
			late, hung = late+r.Hung(time.Minute), hung+r.Hung(5*time.Minute)
		}
	}
	return fmt.Sprintf("%.1f | %.0f | %d | %d", sum.mean(), sum.longest.Seconds(), late, hung)
}
