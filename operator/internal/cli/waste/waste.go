// Package waste shows idle devices: the command waste.
package waste

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"

	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/prometheus"
	"plimsoll.dev/plimsoll/operator/internal/format"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// Bounds of the report on waste.
const (
	defaultWasteWindow = "1d"
	maxWasteWindow     = 90 * 24 * time.Hour
	minWasteStep       = time.Minute
	// maxWasteSteps is the number of points in time at which devices are counted, whatever the
	// window: the cost of a query is at most this number times the number of held devices.
	maxWasteSteps = 1440
)

// Selectors of waste, over the shipped recording rules, as in the rules
// namespace:plimsoll_devices:count and namespace:plimsoll_idle_devices:count. The first argument
// is a matcher, the second the cluster label.
const (
	heldDevices = `device:plimsoll_allocation:info%[1]s`
	idleDevices = `(` + heldDevices + ` and on (%[2]s, node, uuid)` +
		` (device:plimsoll_utilization:ratio < 0.01 or plimsoll_device_idle_allocated_seconds{uuid=~"MIG-.+"} > 0))`
)

// wasteRow are the device-hours of one owner or namespace.
type wasteRow struct {
	Cluster   string `json:"cluster"`
	Namespace string `json:"namespace"`
	// Kind and Owner are empty in a report by namespace.
	Kind  string `json:"kind,omitempty"`
	Owner string `json:"owner,omitempty"`
	// IdleHours are those with less than 1% utilization, HeldHours all.
	IdleHours float64 `json:"idleHours"`
	HeldHours float64 `json:"heldHours"`
}

type wasteFlags struct {
	prometheus.Flags
	by, window string
	limit      int
	// reclaim shows the ReclaimPolicies of the hub instead.
	reclaim bool
}

// New returns the command waste.
func New(a *command.App) *cobra.Command {
	var (
		out   command.OutputFlag
		flags wasteFlags
	)
	cmd := &cobra.Command{
		Use:   "waste",
		Short: "Show who held devices without using them",
		Long: `Show who held devices without using them.

IDLE HOURS are device-hours within --window in which a pod held a device with less than 1%
utilization, HELD HOURS are all device-hours. The owner is the topmost controller of the pods,
such as a Job or a JobSet, if the exporter reports owners, and otherwise the pod. With
--namespace, only that namespace is shown.

Devices are counted at ` + strconv.Itoa(maxWasteSteps) + ` points in time at most. The Prometheus or Thanos must evaluate the
shipped recording rules and must have their results for the whole window.

With --reclaim, the command shows which workloads the ReclaimPolicies of the hub returned to their
queues, or would return in mode Shadow, and what their last round decided about idle workloads.
It reads their status and needs no metrics.

` + prometheus.Help,
		Example: "  kubectl plimsoll waste\n  kubectl plimsoll waste --by namespace --window 7d\n  kubectl plimsoll waste --reclaim",
		Args:    command.ExactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if flags.reclaim {
				if err := out.Check(); err != nil {
					return err
				}
				return showReclaims(cmd.Context(), a, &out)
			}
			window, err := flags.parse()
			if err := errors.Join(out.Check(), err); err != nil {
				return err
			}
			rows, err := waste(cmd.Context(), a, &flags, window)
			if err != nil {
				return err
			}
			if len(rows) == 0 {
				_, _ = fmt.Fprintln(a.ErrOut, "No pod held a device. Check that the series device:plimsoll_allocation:info exists, and the window.")
			}
			return out.Print(a.Out, "IdleOwnerList", rows, func(w io.Writer) { writeWaste(w, rows, &flags) })
		},
	}
	cmd.Flags().DurationVar(&flags.Timeout, "timeout", 2*time.Minute, "timeout of one query")
	cmd.Flags().StringVar(&flags.by, "by", "owner", "rows of the report: owner or namespace")
	cmd.Flags().StringVar(&flags.window, "window", defaultWasteWindow, "time up to now, such as 12h or 7d, at most 90d")
	cmd.Flags().IntVar(&flags.limit, "limit", 20, "number of rows in the table; 0 shows all")
	cmd.Flags().BoolVar(&flags.reclaim, "reclaim", false, "show what ReclaimPolicies returned to their queues, or would return")
	flags.AddHubSource(cmd.Flags())
	flags.Add(cmd)
	_ = cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions([]string{"owner", "namespace"}, cobra.ShellCompDirectiveNoFileComp)) // fails only for unknown flags
	out.Add(cmd)
	return cmd
}

// parse checks the flags and returns the window.
func (f *wasteFlags) parse() (time.Duration, error) {
	window, err := model.ParseDuration(f.window)
	switch {
	case err != nil || time.Duration(window) < minWasteStep || time.Duration(window) > maxWasteWindow:
		return 0, command.Usagef("--window must be a duration from 1m to 90d, such as 12h or 7d, not %q", f.window)
	case f.by != "owner" && f.by != "namespace":
		return 0, command.Usagef("--by must be owner or namespace, not %q", f.by)
	case f.limit < 0:
		return 0, command.Usagef("--limit must not be negative")
	}
	return time.Duration(window), f.Check()
}

// waste returns the rows, the most idle hours first.
func waste(ctx context.Context, a *command.App, flags *wasteFlags, window time.Duration) ([]wasteRow, error) {
	source, err := flags.ConnectFleet(ctx, a)
	if err != nil {
		return nil, err
	}
	defer source.Client.Close()
	label, matcher := source.Info.ClusterLabel, ""
	if namespace := *a.Flags.Namespace; namespace != "" {
		matcher = "{namespace=" + strconv.Quote(namespace) + "}"
	}
	byKey := map[wasteRow]*wasteRow{}
	add := func(what, devices string, set func(row *wasteRow, hours float64)) error {
		result, err := source.Client.Query(ctx, deviceHoursQuery(devices, label, flags.by, window), a.Now())
		if err != nil {
			return err
		}
		prometheus.WarnIncomplete(a, what, result)
		source.ByCluster(a, what, result.Samples, func(cluster string, s *query.Sample) {
			key := wasteRow{Cluster: cluster, Namespace: s.Labels["namespace"], Kind: s.Labels["owner_kind"], Owner: s.Labels["owner_name"]}
			if byKey[key] == nil {
				byKey[key] = &wasteRow{Cluster: key.Cluster, Namespace: key.Namespace, Kind: key.Kind, Owner: key.Owner}
			}
			set(byKey[key], s.Value)
		})
		return nil
	}
	if err := add("held hours", fmt.Sprintf(heldDevices, matcher, label), func(row *wasteRow, hours float64) { row.HeldHours = hours }); err != nil {
		return nil, err
	}
	if err := add("idle hours", fmt.Sprintf(idleDevices, matcher, label), func(row *wasteRow, hours float64) { row.IdleHours = hours }); err != nil {
		return nil, err
	}
	rows := make([]wasteRow, 0, len(byKey))
	for _, row := range byKey {
		rows = append(rows, *row)
	}
	slices.SortFunc(rows, func(a, b wasteRow) int {
		return cmp.Or(cmp.Compare(b.IdleHours, a.IdleHours), cmp.Compare(b.HeldHours, a.HeldHours), cmp.Compare(a.Cluster, b.Cluster),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Owner, b.Owner))
	})
	return rows, nil
}

// deviceHoursQuery returns the query for the device-hours of a selector within the window. The
// step is a whole number of minutes.
func deviceHoursQuery(devices, label, by string, window time.Duration) string {
	step := max(minWasteStep, ((window / maxWasteSteps) + time.Minute - 1).Truncate(time.Minute))
	group := label + ", namespace"
	if by == "owner" {
		group += ", owner_kind, owner_name"
	}
	return fmt.Sprintf("sum by (%s) (count_over_time(%s[%s:%s])) * %g / 3600", group, devices, model.Duration(window), model.Duration(step), step.Seconds())
}

// writeWaste writes the first rows with idle hours, and the sum of all rows.
func writeWaste(w io.Writer, rows []wasteRow, flags *wasteFlags) {
	columns := []string{"CLUSTER", "NAMESPACE", "OWNER", "IDLE HOURS", "HELD HOURS", "IDLE"}
	if flags.by == "namespace" {
		columns = slices.Delete(columns, 2, 3)
	}
	format.Row(w, columns...)
	write := func(row wasteRow, owner string) {
		cells := []string{row.Cluster, row.Namespace, owner, formatHours(row.IdleHours), formatHours(row.HeldHours), format.Unknown}
		if row.HeldHours > 0 {
			cells[5] = format.Percent(min(1, row.IdleHours/row.HeldHours))
		}
		if flags.by == "namespace" {
			cells = slices.Delete(cells, 2, 3)
		}
		format.Row(w, cells...)
	}
	sum := wasteRow{Cluster: "fleet"}
	for i, row := range rows {
		sum.IdleHours, sum.HeldHours = sum.IdleHours+row.IdleHours, sum.HeldHours+row.HeldHours
		if row.IdleHours > 0 && (flags.limit == 0 || i < flags.limit) {
			write(row, row.Kind+"/"+row.Owner)
		}
	}
	write(sum, "all")
}

// formatHours returns device-hours with one decimal at most.
func formatHours(hours float64) string { return format.Decimal(format.RoundTenth(hours)) }
