// Package cli is the kubectl plugin: it explains scores and placement decisions, and tests
// scoring policies before they are applied.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/common/version"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"plimsoll.dev/plimsoll/operator/internal/cli/backtest"
	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/connect"
	"plimsoll.dev/plimsoll/operator/internal/cli/doctor"
	"plimsoll.dev/plimsoll/operator/internal/cli/explain"
	"plimsoll.dev/plimsoll/operator/internal/cli/fit"
	"plimsoll.dev/plimsoll/operator/internal/cli/lint"
	"plimsoll.dev/plimsoll/operator/internal/cli/preview"
	"plimsoll.dev/plimsoll/operator/internal/cli/profile"
	"plimsoll.dev/plimsoll/operator/internal/cli/quota"
	"plimsoll.dev/plimsoll/operator/internal/cli/report"
	"plimsoll.dev/plimsoll/operator/internal/cli/top"
	"plimsoll.dev/plimsoll/operator/internal/cli/ui"
	"plimsoll.dev/plimsoll/operator/internal/cli/uninstall"
	"plimsoll.dev/plimsoll/operator/internal/cli/unittest"
	"plimsoll.dev/plimsoll/operator/internal/cli/waste"
	"plimsoll.dev/plimsoll/operator/internal/format"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1 // a request failed, or a command has findings
	exitUsage   = 2
)

// exitHelp is appended to the usage of every command.
const exitHelp = `
Exit codes: 0 on success; 1 if a request failed or the command found a fault, such as a finding
of lint; 2 if the command line is invalid. fit has 3 for a job that waits, and 4 for one that can
never start.
`

// Args returns the arguments of a command line. kubectl completes those of a plugin by the program
// kubectl_complete-NAME, which is this one by another name.
func Args(commandLine []string) []string {
	if strings.TrimSuffix(filepath.Base(commandLine[0]), ".exe") == "kubectl_complete-plimsoll" {
		return append([]string{cobra.ShellCompRequestCmd}, commandLine[1:]...)
	}
	return commandLine[1:]
}

// Main runs the plugin and returns its exit code: 0 on success, 1 for findings or a failed
// request, 2 for an invalid command line.
func Main(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	ctrllog.SetLogger(logr.Discard()) // commands print what the user needs
	return run(ctx, args, genericclioptions.IOStreams{In: in, Out: out, ErrOut: errOut}, time.Now)
}

func run(ctx context.Context, args []string, streams genericclioptions.IOStreams, now func() time.Time) int {
	a := &command.App{IOStreams: streams, Flags: genericclioptions.NewConfigFlags(true), Now: now, Paint: format.PainterFor(streams.Out)}
	root := newRoot(a)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var usage command.UsageError
	var code command.ExitError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, command.ErrFindings):
		return exitFailure
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &usage):
		_, _ = fmt.Fprintf(streams.ErrOut, "error: %v\nSee 'kubectl plimsoll --help'.\n", err)
		return exitUsage
	}
	_, _ = fmt.Fprintln(streams.ErrOut, "error:", err)
	return exitFailure
}

func newRoot(a *command.App) *cobra.Command {
	root := &cobra.Command{}
	*root = cobra.Command{
		Use:   "kubectl-plimsoll",
		Short: "Explain cluster scores and workload placement, and test scoring policies",
		Long: `Explain cluster scores and workload placement, and test scoring policies.

Output is colored only on a terminal, and only if NO_COLOR is not set.`,
		Annotations:  map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl plimsoll"},
		SilenceUsage: true, SilenceErrors: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return command.Usagef("unknown command %q%s", args[0], didYouMean(root, args[0]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.ErrOut)
	root.Version = cmp.Or(version.Version, "unknown") // cobra requires a value for --version
	root.SetVersionTemplate(version.Print("kubectl-plimsoll") + "\n")
	root.SetUsageTemplate(root.UsageTemplate() + exitHelp)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return command.Usagef("%w", err) })
	a.Flags.AddFlags(root.PersistentFlags())
	root.AddCommand(newVersion(a), explain.New(a), fit.New(a), top.New(a), ui.New(a), quota.New(a), profile.New(a), waste.New(a), lint.New(a), preview.New(a), report.New(a), backtest.New(a), unittest.New(a), connect.New(a), uninstall.NewRelease(a), doctor.New(a), uninstall.New(a))
	return root
}

// didYouMean suggests the commands with a name like that of an unknown one.
func didYouMean(root *cobra.Command, name string) string {
	root.SuggestionsMinimumDistance = 2
	if names := root.SuggestionsFor(name); len(names) > 0 {
		return ": did you mean " + strings.Join(names, " or ") + "?"
	}
	return ""
}

// newVersion returns the command version.
func newVersion(a *command.App) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Show the version of this program", Args: command.ExactArgs(0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(a.Out, version.Print("kubectl-plimsoll"))
			return err
		},
	}
}
