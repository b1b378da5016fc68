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

	"plimsoll.dev/plimsoll/operator/internal/explain"
	"plimsoll.dev/plimsoll/operator/internal/format"
	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/query"
)

// Queries of top, over the shipped recording rules. %s is the cluster label.
const (
	freeDevicesQuery  = `sum by (%s, model) (cluster_resource_model:plimsoll_free_devices:sum)`
	totalDevicesQuery = `sum by (%s, model) (cluster_resource_model:plimsoll_devices:sum)`
)

// unknownCount stands for a number of devices that no series reports.
const unknownCount = -1

// topRow is one cluster.
type topRow struct {
	Cluster string                  `json:"cluster"`
	Models  map[string]deviceCounts `json:"models,omitempty"`
	Scores  map[string]gate.Score   `json:"scores,omitempty"`
}

// deviceCounts counts the devices of one model. -1 means unknown.
type deviceCounts struct {
	Free  int `json:"free"`
	Total int `json:"total"`
}

// clusterDevices maps clusters to models to counts.
type clusterDevices map[string]map[string]deviceCounts

func newTop(a *app) *cobra.Command {
	var (
		out   outputFlag
		flags connectionFlags
	)
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show free devices and scores of each cluster",
		Long: `Show free devices and scores of each cluster.

Scores are read from the hub. Free devices are queried from the Prometheus or Thanos of
--prometheus, which must evaluate the shipped recording rules. A warning names each response that
lacks data: the sums are then too small.`,
		Example: "  kubectl plimsoll top --prometheus http://localhost:9090 -o wide",
		Args:    exactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(out.check(), flags.check()); err != nil {
				return err
			}
			rows, err := top(cmd.Context(), a, &flags)
			if err != nil {
				return err
			}
			if len(rows) == 0 {
				_, _ = fmt.Fprintln(a.ErrOut, "No cluster has a score. Check that a ScoringPolicy is Ready: kubectl get scoringpolicies")
			}
			return out.print(a.Out, rows, func(w io.Writer) { writeTop(w, rows, flags.url != "", out.isWide(), a.now()) })
		},
	}
	cmd.Flags().StringVar(&flags.url, "prometheus", "", "base URL of a Prometheus or Thanos to query for free devices")
	flags.addHubSource(cmd.Flags())
	flags.add(cmd.Flags())
	registerSourceTypeCompletion(cmd)
	out.add(cmd)
	return cmd
}

func top(ctx context.Context, a *app, flags *connectionFlags) ([]topRow, error) {
	c, _, err := a.connect()
	if err != nil {
		return nil, err
	}
	scores, err := readScores(ctx, c)
	if err != nil {
		return nil, reading("read hub", err)
	}
	devices := clusterDevices{}
	if flags.url != "" {
		if devices, err = queryDevices(ctx, a, flags); err != nil {
			return nil, fmt.Errorf("--prometheus: %w", err)
		}
	}
	names := slices.Concat(slices.Collect(maps.Keys(scores)), slices.Collect(maps.Keys(devices)))
	slices.Sort(names)
	rows := []topRow{}
	for _, name := range slices.Compact(names) {
		rows = append(rows, topRow{Cluster: name, Models: devices[name], Scores: scores[name]})
	}
	return rows, nil
}

// queryDevices returns the devices of each cluster and model.
func queryDevices(ctx context.Context, a *app, flags *connectionFlags) (clusterDevices, error) {
	source, err := flags.connectFleet(ctx, a)
	if err != nil {
		return nil, err
	}
	defer source.client.Close()
	devices := clusterDevices{}
	add := func(what, expr string, set func(counts *deviceCounts, n int)) error {
		result, err := source.client.Query(ctx, fmt.Sprintf(expr, source.info.ClusterLabel), a.now())
		if err != nil {
			return err
		}
		a.warnIncomplete(what, result)
		source.byCluster(a, what, result.Samples, func(cluster string, s *query.Sample) {
			model := cmp.Or(s.Labels["model"], "unknown")
			if devices[cluster] == nil {
				devices[cluster] = map[string]deviceCounts{}
			}
			counts, ok := devices[cluster][model]
			if !ok {
				counts = deviceCounts{unknownCount, unknownCount}
			}
			set(&counts, int(s.Value))
			devices[cluster][model] = counts
		})
		return nil
	}
	if err := add("free devices", freeDevicesQuery, func(counts *deviceCounts, n int) { counts.Free = n }); err != nil {
		return nil, err
	}
	return devices, add("total devices", totalDevicesQuery, func(counts *deviceCounts, n int) { counts.Total = n })
}

func writeTop(w io.Writer, rows []topRow, withDevices, wide bool, now time.Time) {
	if len(rows) == 0 {
		return
	}
	columns := []string{"CLUSTER", "FREE", "TOTAL", "MODEL", "SCORES"}
	if !withDevices {
		columns = []string{"CLUSTER", "SCORES"}
	}
	format.Row(w, columns...)
	for _, row := range rows {
		scores := cmp.Or(explain.Scores(row.Scores, now, wide), "none")
		switch {
		case !withDevices:
			format.Row(w, row.Cluster, scores)
		case len(row.Models) == 0:
			format.Row(w, row.Cluster, format.Unknown, format.Unknown, "no devices reported", scores)
		}
		cluster := row.Cluster
		for _, model := range slices.Sorted(maps.Keys(row.Models)) {
			counts := row.Models[model]
			format.Row(w, cluster, formatCount(counts.Free), formatCount(counts.Total), model, scores)
			cluster, scores = "", "" // only in the first row of a cluster
		}
	}
	if withDevices {
		format.Row(w, sumDevices(rows)...)
	}
}

func formatCount(n int) string {
	if n == unknownCount {
		return format.Unknown
	}
	return fmt.Sprint(n)
}

// sumDevices returns the row with the sums of all clusters. Clusters with unknown counts
// are excluded and listed.
func sumDevices(rows []topRow) []string {
	free, total, excluded := 0, 0, []string{}
	for _, row := range rows {
		if !row.isComplete() {
			excluded = append(excluded, row.Cluster)
			continue
		}
		for _, counts := range row.Models {
			free, total = free+counts.Free, total+counts.Total
		}
	}
	text := "all models"
	if len(excluded) > 0 {
		text += ", without " + strings.Join(excluded, ", ")
	}
	return []string{"fleet", fmt.Sprint(free), fmt.Sprint(total), text}
}

// isComplete reports whether both counts of all models are known.
func (r *topRow) isComplete() bool {
	for _, counts := range r.Models {
		if counts.Free == unknownCount || counts.Total == unknownCount {
			return false
		}
	}
	return len(r.Models) > 0
}
