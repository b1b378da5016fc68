package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"plimsoll.dev/plimsoll/operator/internal/gate"
)

// Questions of top, over the shipped recording rules.
const (
	askFree  = `sum by (%s, model) (cluster_model:plimsoll_free_devices:sum)`
	askTotal = `sum by (%s, model) (cluster_model:plimsoll_devices:sum)`
)

// topRow is one cluster.
type topRow struct {
	Cluster string                `json:"cluster"`
	Models  map[string]devices    `json:"models,omitempty"`
	Scores  map[string]gate.Score `json:"scores,omitempty"`
}

// devices of one model; -1 where the answer is missing.
type devices struct {
	Free  int `json:"free"`
	Total int `json:"total"`
}

func newTop(a *app) *cobra.Command {
	var (
		out output
		q   asking
	)
	cmd := &cobra.Command{
		Use:   "top",
		Short: "The fleet at a glance: free devices and scores of each cluster",
		Long: `The fleet at a glance: free devices and scores of each cluster.

Scores are read from the hub. Free devices are asked from a Prometheus or Thanos
that has the shipped recording rules, if --prometheus names one.`,
		Example: "  kubectl plimsoll top --prometheus http://localhost:9090 -o wide",
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(out.check(), q.access.check()); err != nil {
				return err
			}
			rows, err := top(cmd.Context(), a, &q)
			if err != nil {
				return err
			}
			if len(rows) == 0 {
				_, _ = fmt.Fprintln(a.ErrOut, "No cluster has a score: is there a ScoringPolicy that is Ready? (kubectl get scoringpolicies)")
			}
			return out.print(a.Out, rows, func(w io.Writer) { writeTop(w, rows, q.url != "", out.wide(), a.now()) })
		},
	}
	cmd.Flags().StringVar(&q.url, "prometheus", "", "base URL of a Prometheus or Thanos to ask for free devices")
	q.access.add(cmd.Flags())
	completeSourceType(cmd)
	out.add(cmd)
	return cmd
}

func top(ctx context.Context, a *app, q *asking) ([]topRow, error) {
	c, _, err := a.connect()
	if err != nil {
		return nil, err
	}
	scores, err := readScores(ctx, c)
	if err != nil {
		return nil, reading("read hub", err)
	}
	models := map[string]map[string]devices{}
	if q.url != "" {
		if models, err = askDevices(ctx, a, q); err != nil {
			return nil, fmt.Errorf("--prometheus: %w", err)
		}
	}
	names := slices.Concat(slices.Collect(maps.Keys(scores)), slices.Collect(maps.Keys(models)))
	slices.Sort(names)
	rows := []topRow{}
	for _, name := range slices.Compact(names) {
		rows = append(rows, topRow{Cluster: name, Models: models[name], Scores: scores[name]})
	}
	return rows, nil
}

func askDevices(ctx context.Context, a *app, q *asking) (map[string]map[string]devices, error) {
	t := &trial{}
	if err := q.dial(a, t, nil, nil); err != nil {
		return nil, err
	}
	defer t.source.Close()
	label := t.info.ClusterLabel
	models := map[string]map[string]devices{}
	for _, expr := range []string{askFree, askTotal} {
		answer, err := t.source.Query(ctx, fmt.Sprintf(expr, label), a.now())
		if err != nil {
			return nil, err
		}
		for _, s := range answer.Samples {
			cluster, model := s.Labels[label], cmp.Or(s.Labels["model"], "unknown")
			if models[cluster] == nil {
				models[cluster] = map[string]devices{}
			}
			d, ok := models[cluster][model]
			if !ok {
				d = devices{-1, -1}
			}
			if expr == askFree {
				d.Free = int(s.Value)
			} else {
				d.Total = int(s.Value)
			}
			models[cluster][model] = d
		}
	}
	return models, nil
}

func writeTop(w io.Writer, rows []topRow, asked, wide bool, now time.Time) {
	if len(rows) == 0 {
		return
	}
	columns := []string{"CLUSTER", "FREE", "OF", "MODEL", "SCORES"}
	if !asked {
		columns = []string{"CLUSTER", "SCORES"}
	}
	line(w, columns...)
	for _, row := range rows {
		text := scoresText(row.Scores, now, wide)
		if text == "" {
			text = "none"
		}
		switch {
		case !asked:
			line(w, row.Cluster, text)
		case len(row.Models) == 0:
			line(w, row.Cluster, "?", "?", "no devices reported", text)
		}
		first := []string{row.Cluster, text}
		for _, model := range slices.Sorted(maps.Keys(row.Models)) {
			d := row.Models[model]
			line(w, first[0], known(d.Free), known(d.Total), model, first[1])
			first = []string{"", ""} // the cluster and its scores stand once
		}
	}
	if asked {
		line(w, sum(rows)...)
	}
}

func known(n int) string {
	if n < 0 {
		return "?"
	}
	return fmt.Sprint(n)
}

// sum of the fleet. A cluster that did not answer in full is left out and named.
func sum(rows []topRow) []string {
	free, total, without := 0, 0, []string{}
	for _, row := range rows {
		whole := len(row.Models) > 0
		for _, d := range row.Models {
			whole = whole && d.Free >= 0 && d.Total >= 0
		}
		if !whole {
			without = append(without, row.Cluster)
			continue
		}
		for _, d := range row.Models {
			free, total = free+d.Free, total+d.Total
		}
	}
	text := "all models"
	if len(without) > 0 {
		text += ", without " + strings.Join(without, ", ")
	}
	return []string{"fleet", fmt.Sprint(free), fmt.Sprint(total), text}
}
