package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"plimsoll.dev/plimsoll/operator/internal/format"
)

// errFindings makes a command exit with exitFailure without an error message, because its
// output already lists the findings.
var errFindings = errors.New("findings")

// usageError is the error of an invalid command line.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// app holds the state that all commands share.
type app struct {
	genericclioptions.IOStreams
	flags *genericclioptions.ConfigFlags
	now   func() time.Time
	paint format.Painter
}

// exactArgs requires n arguments. expected describes them in the error message.
func exactArgs(n int, expected string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != n {
			return usagef("expected %s, got %d arguments", expected, len(args))
		}
		return nil
	}
}
