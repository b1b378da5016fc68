package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// finding is one fault and where it stands.
type finding struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Object  string `json:"object,omitempty"`
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
}

// String is file:line:column: object: path: message.
func (f finding) String() string {
	text := fmt.Sprintf("%s:%d:%d: ", f.File, f.Line, f.Column)
	if f.Object != "" {
		text += f.Object + ": "
	}
	if f.Path != "" {
		text += f.Path + ": "
	}
	return text + f.Message
}

func newLint(a *app) *cobra.Command {
	var (
		out   output
		files []string
	)
	cmd := &cobra.Command{
		Use:   "lint -f FILE...",
		Short: "Check MetricsSources, ScoringPolicies and PlacementGates without a cluster",
		Long: `Check MetricsSources, ScoringPolicies and PlacementGates without a cluster.

Fields that don't exist, PromQL that does not parse, variables that a gate does not
have, and names that match nothing in the same files are told with file, line and
column. Objects of other groups are passed over. Exit code 1 when anything was found.`,
		Example: "  kubectl plimsoll lint -f policies/\n  kustomize build . | kubectl plimsoll lint -f -",
		Args:    exactly(0, "no arguments besides -f FILE"),
		RunE: func(*cobra.Command, []string) error {
			if err := out.check(); err != nil {
				return err
			}
			if len(files) == 0 {
				return usageError{errors.New("name a file or folder with -f; - reads standard input")}
			}
			return lint(a, &out, files)
		},
	}
	cmd.Flags().StringSliceVarP(&files, "filename", "f", nil, "files, folders of .yaml and .yml files, or - for standard input")
	out.add(cmd)
	return cmd
}

func lint(a *app, out *output, names []string) error {
	l := &linter{policies: map[string]*v1alpha1.ScoringPolicy{}}
	files, err := expand(names)
	if err != nil {
		return err
	}
	for _, file := range files {
		content, err := a.read(file)
		if err != nil {
			return err
		}
		l.file(file, content)
	}
	l.across()
	slices.SortStableFunc(l.found, func(a, b finding) int {
		return cmp.Or(cmp.Compare(slices.Index(files, a.File), slices.Index(files, b.File)), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if l.found == nil {
		l.found = []finding{}
	}
	err = out.print(a.Out, l.found, func(w io.Writer) {
		for _, f := range l.found {
			line(w, f.String())
		}
	})
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(a.ErrOut, "%s checked, %s\n", count(l.checked, "object"), count(len(l.found), "finding"))
	if len(l.found) > 0 {
		return errFindings
	}
	return nil
}

func (a *app) read(file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(a.In)
	}
	return os.ReadFile(file)
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
