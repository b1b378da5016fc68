// Package cli is the kubectl plugin: it shows why, and checks before you apply.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

// Exit codes.
const (
	exitDone     = 0
	exitFindings = 1 // also: something was asked that failed
	exitUsage    = 2
)

// exitHelp ends the help of every command.
const exitHelp = `
Exit codes: 0; 1 when lint or test found something or a request failed; 2 when the command
line can't be understood.
`

// errFindings ends a command whose output says all: lint found something.
var errFindings = errors.New("findings")

// usageError is a command line that can't be understood.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// app is what all commands share.
type app struct {
	genericclioptions.IOStreams
	flags *genericclioptions.ConfigFlags
	now   func() time.Time
	paint painter
}

// Main runs the plugin and returns its exit code: 0, 1 for findings or a failed
// request, 2 for a command line that can't be understood.
func Main(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	return run(ctx, args, genericclioptions.IOStreams{In: in, Out: out, ErrOut: errOut}, time.Now)
}

func run(ctx context.Context, args []string, streams genericclioptions.IOStreams, now func() time.Time) int {
	a := &app{IOStreams: streams, flags: genericclioptions.NewConfigFlags(true), now: now, paint: painterFor(streams.Out)}
	root := newRoot(a)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var usage usageError
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errFindings):
		return exitFindings
	case errors.As(err, &usage):
		_, _ = fmt.Fprintf(streams.ErrOut, "error: %v\nSee 'kubectl plimsoll --help'.\n", err)
		return exitUsage
	}
	_, _ = fmt.Fprintln(streams.ErrOut, "error:", err)
	return exitFindings
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-plimsoll",
		Short: "Why clusters score as they do, and why workloads go where they go",
		Long: `Why clusters score as they do, and why workloads go where they go.

Colors are left out where NO_COLOR is set or the output is not a terminal.`,
		Annotations:  map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl plimsoll"},
		SilenceUsage: true, SilenceErrors: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.ErrOut)
	root.SetUsageTemplate(root.UsageTemplate() + exitHelp)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	a.flags.AddFlags(root.PersistentFlags())
	root.AddCommand(newExplain(a), newTop(a), newLint(a), newPreview(a), newBacktest(a), newUnitTest(a), newRelease(a))
	return root
}

// exactly n arguments, or a usage error that says what is expected.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != n {
			return usagef("expected %s, got %d arguments", what, len(args))
		}
		return nil
	}
}
