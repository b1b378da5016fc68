// Package command holds what all commands of the plugin share: streams, flags, errors and output.
package command

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"plimsoll.dev/plimsoll/operator/internal/format"
)

// ErrFindings makes a command exit with exitFailure without an error message, because its
// output already lists the findings.
var ErrFindings = errors.New("findings")

// ExitError makes a command exit with a code of its own, without an error message: its output says the same.
type ExitError int

func (e ExitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// UsageError is the error of an invalid command line.
type UsageError struct{ error }

// Usagef returns a UsageError.
func Usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// App holds the state that all commands share.
type App struct {
	genericclioptions.IOStreams
	Flags *genericclioptions.ConfigFlags
	Now   func() time.Time
	Paint format.Painter
}

// ExactArgs requires n arguments. expected describes them in the error message.
func ExactArgs(n int, expected string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != n {
			return Usagef("expected %s, got %d arguments", expected, len(args))
		}
		return nil
	}
}
