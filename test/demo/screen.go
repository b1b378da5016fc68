package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// screen prints lines and a table. On a terminal the table stays below the lines
// and is redrawn. Otherwise it is printed once at the end of each step.
type screen struct {
	file     *os.File
	terminal bool
	table    string
}

func newScreen(file *os.File) *screen {
	info, err := file.Stat()
	return &screen{file: file, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"}
}

func (s *screen) printf(format string, args ...any) {
	s.erase()
	fmt.Fprintf(s.file, format, args...)
	if s.terminal {
		fmt.Fprint(s.file, s.table)
	}
}

func (s *screen) draw(table string) {
	s.erase()
	s.table = table
	if s.terminal {
		fmt.Fprint(s.file, table)
	}
}

// settle ends a step: later lines are printed below the last table.
func (s *screen) settle() {
	if !s.terminal {
		fmt.Fprint(s.file, s.table)
	}
	s.table = ""
}

func (s *screen) erase() {
	if lines := strings.Count(s.table, "\n"); s.terminal && lines > 0 {
		fmt.Fprintf(s.file, "\x1b[%dA\x1b[J", lines)
	}
}

// table returns the table that the legend describes.
func (d *demo) table(ctx context.Context) (string, error) {
	free, err := fleet.Query(ctx, d.fleet.Thanos, `cluster_resource_model:plimsoll_free_devices:sum{model="NVIDIA-H100-80GB-HBM3"}`)
	if err != nil {
		return "", err
	}
	onOneNode, err := fleet.Query(ctx, d.fleet.Thanos, `cluster_resource_model:plimsoll_node_free_devices:max{model="NVIDIA-H100-80GB-HBM3"}`)
	if err != nil {
		return "", err
	}
	best, err := d.fleet.Decision(ctx, "plimsoll-fleet", "best")
	if err != nil {
		return "", err
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "      CLUSTER\tFREE H100\tON ONE NODE\tHEADROOM\tUTILIZATION\tTOTAL\tOCM")
	for _, c := range d.fleet.Workers {
		scores, err := d.fleet.Scores(ctx, "fleet", c.Name)
		if err != nil {
			return "", err
		}
		mark := ""
		if len(best) == 1 && best[0] == c.Name {
			mark = "best"
		}
		fmt.Fprintf(w, "      %s\t%s\t%s\t%s\t%s\t%s\t%s\n", c.Name, formatSample(free, c.Name), formatSample(onOneNode, c.Name),
			formatScore(scores, "headroom"), formatScore(scores, "utilization"), formatScore(scores, "total"), mark)
	}
	err = w.Flush()
	return b.String(), err
}

func formatSample(samples []fleet.Sample, cluster string) string {
	for _, s := range samples {
		if s.Labels["cluster"] == cluster {
			return fmt.Sprintf("%g", s.Value)
		}
	}
	return "unknown"
}

func formatScore(scores map[string]int32, name string) string {
	if value, ok := scores[name]; ok {
		return fmt.Sprint(value)
	}
	return "-"
}
