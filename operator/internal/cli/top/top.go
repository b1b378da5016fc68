// Package top shows the devices of the fleet: the command top.
package top

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

	"plimsoll.dev/plimsoll/operator/internal/admission/explain"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/hubclient"
	"plimsoll.dev/plimsoll/operator/internal/cli/prometheus"
	"plimsoll.dev/plimsoll/operator/internal/format"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// Queries of top, over the shipped recording rules. %s is the cluster label. Devices of different
// resources, such as GPUs and MIG instances, are not added.
const (
	freeDevicesQuery  = `sum by (%s, resource, model) (cluster_resource_model:plimsoll_free_devices:sum)`
	totalDevicesQuery = `sum by (%s, resource, model) (cluster_resource_model:plimsoll_devices:sum)`
)

// unknownCount stands for a number of devices that no series reports.
const unknownCount = -1

// topRow is one cluster.
type topRow struct {
	Cluster string `json:"cluster"`
	// Devices by resource and model.
	Devices []deviceCounts        `json:"devices,omitempty"`
	Scores  map[string]gate.Score `json:"scores,omitempty"`
}

// deviceCounts counts the devices of one resource and model. -1 means unknown.
type deviceCounts struct {
	Resource string `json:"resource"`
	Model    string `json:"model"`
	Free     int    `json:"free"`
	Total    int    `json:"total"`
}

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

Scores are read from the hub, if there is one. Free devices are queried from the Prometheus or Thanos of
--prometheus, which must evaluate the shipped recording rules. A warning names each response that
lacks data: the sums are then too small.`,
		Example: "  kubectl plimsoll top --prometheus http://localhost:9090 -o wide",
		Args:    command.ExactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(out.Check(), flags.Check()); err != nil {
				return err
			}
			rows, err := top(cmd.Context(), a, &flags)
			if err != nil {
				return err
			}
			if len(rows) == 0 {
				_, _ = fmt.Fprintln(a.ErrOut, "No cluster has a score. Check that a ScoringPolicy is Ready: kubectl get scoringpolicies")
			}
			return out.Print(a.Out, "ClusterList", rows, func(w io.Writer) { writeTop(w, rows, flags.URL != "", out.IsWide(), a.Now()) })
		},
	}
	cmd.Flags().StringVar(&flags.URL, "prometheus", "", "base URL of a Prometheus or Thanos to query for free devices")
	flags.AddHubSource(cmd.Flags())
	flags.Add(cmd)
	out.Add(cmd)
	return cmd
}

func top(ctx context.Context, a *command.App, flags *prometheus.Flags) ([]topRow, error) {
	scores, err := readScores(ctx, a)
	if err != nil && flags.URL == "" {
		return nil, err
	}
	if err != nil {
		_, _ = fmt.Fprintf(a.ErrOut, "without scores, because the hub can't be read: %v\n", err)
	}
	devices := map[string][]deviceCounts{}
	if flags.URL != "" {
		if devices, err = queryDevices(ctx, a, flags); err != nil {
			return nil, fmt.Errorf("--prometheus: %w", err)
		}
	}
	names := slices.Concat(slices.Collect(maps.Keys(scores)), slices.Collect(maps.Keys(devices)))
	slices.Sort(names)
	rows := []topRow{}
	for _, name := range slices.Compact(names) {
		rows = append(rows, topRow{Cluster: name, Devices: devices[name], Scores: scores[name]})
	}
	return rows, nil
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

// queryDevices returns the devices of each cluster, by resource and model.
func queryDevices(ctx context.Context, a *command.App, flags *prometheus.Flags) (map[string][]deviceCounts, error) {
	source, err := flags.ConnectFleet(ctx, a)
	if err != nil {
		return nil, err
	}
	defer source.Client.Close()
	devices := map[string][]deviceCounts{}
	add := func(what, expr string, set func(counts *deviceCounts, n int)) error {
		result, err := source.Client.Query(ctx, fmt.Sprintf(expr, source.Info.ClusterLabel), a.Now())
		if err != nil {
			return err
		}
		prometheus.WarnIncomplete(a, what, result)
		source.ByCluster(a, what, result.Samples, func(cluster string, s *query.Sample) {
			found := deviceCounts{Resource: cmp.Or(s.Labels["resource"], "unknown"), Model: cmp.Or(s.Labels["model"], "unknown"), Free: unknownCount, Total: unknownCount}
			i, ok := slices.BinarySearchFunc(devices[cluster], found, deviceCounts.compare)
			if !ok {
				devices[cluster] = slices.Insert(devices[cluster], i, found)
			}
			set(&devices[cluster][i], int(s.Value))
		})
		return nil
	}
	if err := add("free devices", freeDevicesQuery, func(counts *deviceCounts, n int) { counts.Free = n }); err != nil {
		return nil, err
	}
	return devices, add("total devices", totalDevicesQuery, func(counts *deviceCounts, n int) { counts.Total = n })
}

// compare orders counts by resource, then by model.
func (d deviceCounts) compare(other deviceCounts) int {
	return cmp.Or(cmp.Compare(d.Resource, other.Resource), cmp.Compare(d.Model, other.Model))
}

func writeTop(w io.Writer, rows []topRow, withDevices, wide bool, now time.Time) {
	if len(rows) == 0 {
		return
	}
	columns := []string{"CLUSTER", "FREE", "TOTAL", "RESOURCE", "MODEL", "SCORES"}
	if !withDevices {
		columns = []string{"CLUSTER", "SCORES"}
	}
	format.Row(w, columns...)
	for _, row := range rows {
		scores := cmp.Or(explain.Scores(row.Scores, now, wide), "none")
		switch {
		case !withDevices:
			format.Row(w, row.Cluster, scores)
		case len(row.Devices) == 0:
			format.Row(w, row.Cluster, format.Unknown, format.Unknown, format.Unknown, "no devices reported", scores)
		}
		cluster := row.Cluster
		for _, counts := range row.Devices {
			format.Row(w, cluster, formatCount(counts.Free), formatCount(counts.Total), counts.Resource, counts.Model, scores)
			cluster, scores = "", "" // only in the first row of a cluster
		}
	}
	if withDevices {
		writeFleet(w, rows)
	}
}

func formatCount(n int) string {
	if n == unknownCount {
		return format.Unknown
	}
	return fmt.Sprint(n)
}

// writeFleet writes for each resource the sum of all clusters.
func writeFleet(w io.Writer, rows []topRow) {
	resources := map[string]bool{}
	for _, row := range rows {
		for _, counts := range row.Devices {
			resources[counts.Resource] = true
		}
	}
	if len(resources) == 0 {
		format.Row(w, "fleet", format.Unknown, format.Unknown, format.Unknown, "no devices reported")
	}
	fleet := "fleet"
	for _, resource := range slices.Sorted(maps.Keys(resources)) {
		free, total, models := sumDevices(rows, resource)
		format.Row(w, fleet, fmt.Sprint(free), fmt.Sprint(total), resource, models)
		fleet = "" // only in the first row
	}
}

// sumDevices returns the sums of all clusters for a resource. Clusters with unknown counts are excluded
// and listed.
func sumDevices(rows []topRow, resource string) (free, total int, models string) {
	var excluded []string
	for _, row := range rows {
		sum, isKnown := deviceCounts{}, len(row.Devices) > 0
		for _, counts := range row.Devices {
			if counts.Resource == resource {
				isKnown = isKnown && counts.Free != unknownCount && counts.Total != unknownCount
				sum.Free, sum.Total = sum.Free+counts.Free, sum.Total+counts.Total
			}
		}
		if !isKnown {
			excluded = append(excluded, row.Cluster)
			continue
		}
		free, total = free+sum.Free, total+sum.Total
	}
	models = "all models"
	if len(excluded) > 0 {
		models += ", without " + strings.Join(excluded, ", ")
	}
	return free, total, models
}
