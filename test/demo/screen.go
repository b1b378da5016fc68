package main

import (
	"context"
	"fmt"
	"os"
	"strings"

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
	free, err := d.byCluster(ctx, queryFree)
	if err != nil {
		return "", err
	}
	onOneNode, err := d.byCluster(ctx, queryOnOneNode)
	if err != nil {
		return "", err
	}
	best, err := d.fleet.Decision(ctx, "plimsoll-fleet", "best")
	if err != nil {
		return "", err
	}
	var rows []row
	for _, c := range d.fleet.Workers {
		scores, err := d.fleet.Scores(ctx, "fleet", c.Name)
		if err != nil {
			return "", err
		}
		rows = append(rows, row{cluster: c.Name, free: free, onOneNode: onOneNode, scores: scores, isBest: len(best) == 1 && best[0] == c.Name})
	}
	return d.scores.format(rows)
}

// byCluster runs an instant query against Thanos and returns the values by cluster.
func (d *demo) byCluster(ctx context.Context, expr string) (map[string]float64, error) {
	samples, err := fleet.Query(ctx, d.fleet.Thanos, expr)
	values := map[string]float64{}
	for _, s := range samples {
		values[s.Labels["cluster"]] = s.Value
	}
	return values, err
}
