// Package fit says where a job would start before it is submitted: the command fit.
package fit

import (
	"errors"

	"github.com/spf13/cobra"

	"plimsoll.dev/plimsoll/operator/internal/cli/ask"
	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/manifest"
	"plimsoll.dev/plimsoll/operator/internal/whatif"
)

// exitCodes by outcome.
var exitCodes = map[whatif.Outcome]command.ExitError{whatif.Unknown: 1, whatif.Later: 3, whatif.Never: 4}

// New returns the command fit.
func New(a *command.App) *cobra.Command {
	var out command.OutputFlag
	var question ask.Question
	cmd := &cobra.Command{
		Use:   "fit -f JOB --prometheus URL",
		Short: "Show where a job would start now, before it is submitted",
		Long: `Show where a job would start now, before it is submitted: on which cluster, or what it would wait for,
or why no cluster could ever start it. The job is of any kind that Kueue manages and whose pods are in its
manifest. Nothing is written.

` + ask.Help + `

The exit code is 0 if every job starts now, 3 if one waits, 4 if one can never start, and 1 if the metrics
do not tell.`,
		Example: "  kubectl plimsoll fit -f job.yaml\n  kubectl plimsoll fit -f job.yaml -f gate.yaml -f source.yaml -o json",
		Args:    command.ExactArgs(0, "no arguments besides -f JOB"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(out.Check(), question.Check()); err != nil {
				return err
			}
			m, err := manifest.Read(a, question.Files)
			if err != nil {
				return err
			}
			answers, err := question.Answer(cmd.Context(), a, m)
			if err != nil {
				return err
			}
			report := ask.ReportOf(answers)
			if err := report.Print(a, &out); err != nil {
				return err
			}
			if code := exitCodes[report.Worst()]; code != 0 {
				return code
			}
			return nil
		},
	}
	question.Add(cmd)
	cmd.Flags().StringVar(&question.GateName, "gate", "", "PlacementGate of the hub that decides, instead of that of the job's queue")
	cmd.Flags().Lookup("filename").Usage = "files or folders with jobs, or - for standard input; also a PlacementGate, its MetricsSource and Secrets, and ScoringPolicies"
	cmd.Flags().Lookup("clusters").Usage = "names of the eligible clusters, instead of those of the gate's Placement"
	out.Add(cmd)
	return cmd
}
