package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// screen prints lines for good and, on a terminal, a table below them that is
// redrawn. In a log the table is printed once a step, when the step settles.
type screen struct {
	out      *os.File
	terminal bool
	table    string
}

func newScreen(out *os.File) *screen {
	info, err := out.Stat()
	return &screen{out: out, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"}
}

func (s *screen) printf(format string, args ...any) {
	s.erase()
	fmt.Fprintf(s.out, format, args...)
	if s.terminal {
		fmt.Fprint(s.out, s.table)
	}
}

func (s *screen) draw(table string) {
	s.erase()
	s.table = table
	if s.terminal {
		fmt.Fprint(s.out, table)
	}
}

// settle leaves the last table standing.
func (s *screen) settle() {
	if !s.terminal {
		fmt.Fprint(s.out, s.table)
	}
	s.table = ""
}

func (s *screen) erase() {
	if lines := strings.Count(s.table, "\n"); s.terminal && lines > 0 {
		fmt.Fprintf(s.out, "\x1b[%dA\x1b[J", lines)
	}
}

// table of the fleet: what each cluster has, its scores, and OCM's best.
func (d *demo) table(ctx context.Context) (string, error) {
	free, err := fleet.Query(ctx, d.fleet.Thanos, `cluster_model:plimsoll_free_devices:sum{model="NVIDIA-H100-80GB-HBM3"}`)
	if err != nil {
		return "", err
	}
	node, err := fleet.Query(ctx, d.fleet.Thanos, `cluster_model:plimsoll_node_free_devices:max{model="NVIDIA-H100-80GB-HBM3"}`)
	if err != nil {
		return "", err
	}
	best, err := d.fleet.Decision(ctx, "plimsoll-system", "best")
	if err != nil {
		return "", err
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "      CLUSTER\tFREE H100\tON ONE NODE\tHEADROOM\tUTILISATION\tTOTAL\tOCM")
	for _, c := range d.fleet.Workers {
		scores, err := d.fleet.Scores(ctx, "fleet", c.Name)
		if err != nil {
			return "", err
		}
		mark := ""
		if len(best) == 1 && best[0] == c.Name {
			mark = "best"
		}
		fmt.Fprintf(w, "      %s\t%s\t%s\t%s\t%s\t%s\t%s\n", c.Name, sample(free, c.Name), sample(node, c.Name),
			points(scores, "headroom"), points(scores, "utilization"), points(scores, "total"), mark)
	}
	err = w.Flush()
	return b.String(), err
}

func sample(samples []fleet.Sample, cluster string) string {
	for _, s := range samples {
		if s.Labels["cluster"] == cluster {
			return fmt.Sprintf("%g", s.Value)
		}
	}
	return "unknown"
}

func points(scores map[string]int32, name string) string {
	if value, ok := scores[name]; ok {
		return fmt.Sprint(value)
	}
	return "-"
}
