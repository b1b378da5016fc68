// Package profile shows what jobs used: the command profile.
package profile

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/hubclient"
	"plimsoll.dev/plimsoll/operator/internal/format"
)

// New returns the command profile.
func New(a *command.App) *cobra.Command {
	var out command.OutputFlag
	cmd := &cobra.Command{
		Use:   "profile [NAME]",
		Short: "Show what similar jobs used in their runs",
		Long: `Show what similar jobs used in their runs, by device model.

A JobProfile has the name of the label plimsoll.dev/profile of its jobs, or a hash of their
images, commands and devices. Durations, the utilization and the energy are medians; P90
marks 90th percentiles. -o wide adds activities, traffic, energy and trial runs.

Only workloads of a PlacementGate with the section profiles are profiled.`,
		Example: "  kubectl plimsoll profile -n team-a\n  kubectl plimsoll profile llama-7b -n team-a -o wide",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return command.Usagef("expected at most one name, got %d arguments", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			profiles, err := readProfiles(cmd.Context(), a, args)
			if err != nil {
				return err
			}
			if len(profiles) == 0 {
				_, _ = fmt.Fprintln(a.ErrOut, "No JobProfile in this namespace. Gates need the section profiles, and a job must have succeeded: kubectl get jobprofiles -A")
			}
			return out.Print(a.Out, "ProfileList", profiles, func(w io.Writer) { writeProfiles(w, profiles, out.IsWide(), a.Now()) })
		},
	}
	out.Add(cmd)
	return cmd
}

// readProfiles returns the profiles of the namespace, or the named one.
func readProfiles(ctx context.Context, a *command.App, names []string) ([]v1alpha1.JobProfile, error) {
	c, namespace, err := hubclient.Connect(a)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		list := &v1alpha1.JobProfileList{}
		if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, hubclient.Reading("JobProfiles", err)
		}
		return list.Items, nil
	}
	p := v1alpha1.JobProfile{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: names[0]}, &p); err != nil {
		return nil, hubclient.Reading("JobProfile "+namespace+"/"+names[0], err)
	}
	return []v1alpha1.JobProfile{p}, nil
}

func writeProfiles(w io.Writer, profiles []v1alpha1.JobProfile, wide bool, now time.Time) {
	if len(profiles) == 0 {
		return
	}
	header := []string{"PROFILE", "MODEL", "RUNS", "LAST RUN", "DURATION", "P90", "MEMORY P90", "UTILIZATION", "CLASS", "BOTTLENECK"}
	if wide {
		header = append(header, "TENSOR", "DRAM", "NVLINK", "PCIE", "ENERGY", "TRIALS", "THROUGHPUT")
	}
	format.Row(w, header...)
	for i := range profiles {
		for j := range profiles[i].Status.Models {
			m := &profiles[i].Status.Models[j]
			row := []string{
				profiles[i].Name, m.Model, fmt.Sprint(m.Runs), format.Age(now, m.LastRunTime.Time),
				formatMeasured(m.DurationP50Seconds, format.Seconds), formatMeasured(m.DurationP90Seconds, format.Seconds),
				formatMeasured(m.MemoryPeakP90Bytes, format.Memory), formatMeasured(m.UtilizationP50Percent, formatWholePercent), string(m.Class), string(m.Bottleneck),
			}
			if wide {
				row = append(row, formatMeasured(m.TensorActiveP50Percent, formatWholePercent), formatMeasured(m.DRAMActiveP50Percent, formatWholePercent),
					formatMeasured(m.NVLinkP50BytesPerSecond, formatTraffic), formatMeasured(m.PCIeP50BytesPerSecond, formatTraffic), formatMeasured(m.EnergyP50Joules, formatEnergy),
					fmt.Sprint(m.Trials), cmp.Or(m.ThroughputP50, "unknown"))
			}
			format.Row(w, row...)
		}
	}
}

// formatMeasured formats a value that may not have been measured.
func formatMeasured(v *int64, format func(int64) string) string {
	if v == nil {
		return "unknown"
	}
	return format(*v)
}

func formatWholePercent(n int64) string { return fmt.Sprintf("%d%%", n) }

func formatTraffic(n int64) string { return fmt.Sprintf("%.1fGB/s", float64(n)/1e9) }

// formatEnergy formats joules as kilowatt-hours.
func formatEnergy(n int64) string { return fmt.Sprintf("%.1fkWh", float64(n)/3.6e6) }
