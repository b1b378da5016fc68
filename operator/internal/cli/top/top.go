// Package top shows the devices of the fleet: the command top.
package top

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"plimsoll.dev/plimsoll/operator/internal/admission/explain"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/fleet"
	"plimsoll.dev/plimsoll/operator/internal/cli/hubclient"
	"plimsoll.dev/plimsoll/operator/internal/cli/prometheus"
	"plimsoll.dev/plimsoll/operator/internal/format"
)

// New returns the command top.
func New(a *command.App) *cobra.Command {
	var (
		out   command.OutputFlag
		flags prometheus.Flags
	)
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show free devices and scores of each cluster",
		Long: `Show free devices and scores of each cluster.

Scores are read from the hub, if there is one. Free devices are queried from a Prometheus or Thanos that
evaluates the shipped recording rules. -o wide adds the free devices of the node that
has most of them, and the devices that no pod can get. A warning names each response that lacks data: the sums
are then too small.

` + prometheus.Help,
		Example: "  kubectl plimsoll top -o wide",
		Args:    command.ExactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(out.Check(), flags.Check()); err != nil {
				return err
			}
			rows, withDevices, err := top(cmd.Context(), a, &flags)
			if err != nil {
				return err
			}
			if len(rows) == 0 {
				_, _ = fmt.Fprintln(a.ErrOut, "No cluster has a score. Check that a ScoringPolicy is Ready: kubectl get scoringpolicies")
			}
			return out.Print(a.Out, "ClusterList", rows, func(w io.Writer) { writeTop(w, rows, withDevices, out.IsWide(), a.Now()) })
		},
	}
	flags.AddHubSource(cmd.Flags())
	flags.Add(cmd)
	out.Add(cmd)
	return cmd
}

// top returns the scores and devices of each cluster. withDevices is false if no source of devices was found.
func top(ctx context.Context, a *command.App, flags *prometheus.Flags) (rows []fleet.Cluster, withDevices bool, err error) {
	scores, scoresErr := readScores(ctx, a)
	devices, devicesErr := fleet.QueryDevices(ctx, a, flags)
	switch {
	case devicesErr != nil && flags.URL != "":
		return nil, false, fmt.Errorf("--prometheus: %w", devicesErr)
	case devicesErr != nil && scoresErr != nil:
		return nil, false, scoresErr
	case devicesErr != nil:
		_, _ = fmt.Fprintf(a.ErrOut, "without free devices: %v\n", devicesErr)
	case scoresErr != nil:
		_, _ = fmt.Fprintf(a.ErrOut, "without scores, because the hub can't be read: %v\n", scoresErr)
	}
	return fleet.Clusters(scores, devices), devicesErr == nil, nil
}

// readScores returns the scores of the hub, by cluster and score key.
func readScores(ctx context.Context, a *command.App) (map[string]map[string]gate.Score, error) {
	c, _, err := hubclient.Connect(a)
	if err != nil {
		return nil, err
	}
	scores, err := hubclient.ReadScores(ctx, c)
	return scores, hubclient.Reading("read hub", err)
}

func writeTop(w io.Writer, clusters []fleet.Cluster, withDevices, wide bool, now time.Time) {
	if len(clusters) == 0 {
		return
	}
	columns := []string{"CLUSTER", "FREE", "TOTAL", "RESOURCE", "MODEL", "SCORES"}
	switch {
	case !withDevices:
		columns = []string{"CLUSTER", "SCORES"}
	case wide:
		columns = []string{"CLUSTER", "FREE", "TOTAL", "LARGEST FIT", "UNUSABLE", "RESOURCE", "MODEL", "SCORES"}
	}
	format.Row(w, columns...)
	for _, c := range clusters {
		scores := cmp.Or(explain.Scores(c.Scores, now, wide), "none")
		switch {
		case !withDevices:
			format.Row(w, c.Cluster, scores)
		case len(c.Devices) == 0:
			cells := slices.Repeat([]string{format.Unknown}, len(columns)-3)
			format.Row(w, append(append([]string{c.Cluster}, cells...), "no devices reported", scores)...)
		}
		name := c.Cluster
		for _, d := range c.Devices {
			cells := []string{name, fleet.Count(d.Free), fleet.Count(d.Total)}
			if wide {
				cells = append(cells, fleet.Count(d.LargestFit), d.UnusableText())
			}
			format.Row(w, append(cells, d.Resource, d.Model, scores)...)
			name, scores = "", "" // only in the first row of a cluster
		}
	}
	if withDevices {
		writeSums(w, fleet.Sums(clusters), wide)
	}
}

// writeSums writes for each resource the sum of all clusters. The node with most free devices is no sum.
func writeSums(w io.Writer, sums []fleet.Sum, wide bool) {
	row := func(name, free, total, resource, models string) {
		cells := []string{name, free, total}
		if wide {
			cells = append(cells, "", "")
		}
		format.Row(w, append(cells, resource, models)...)
	}
	if len(sums) == 0 {
		row("fleet", format.Unknown, format.Unknown, format.Unknown, "no devices reported")
	}
	name := "fleet"
	for _, s := range sums {
		models := "all models"
		if len(s.Without) > 0 {
			models += ", without " + strings.Join(s.Without, ", ")
		}
		row(name, fmt.Sprint(s.Free), fmt.Sprint(s.Total), s.Resource, models)
		name = "" // only in the first row
	}
}
