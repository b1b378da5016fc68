package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// finding is one problem and its position in a file.
type finding struct {
	File         string `json:"file"`
	LineNumber   int    `json:"line"`
	ColumnNumber int    `json:"column"`
	Object       string `json:"object,omitempty"`
	Path         string `json:"path,omitempty"`
	Message      string `json:"message"`
}

// String returns file:line:column: object: path: message.
func (f finding) String() string {
	text := fmt.Sprintf("%s:%d:%d: ", f.File, f.LineNumber, f.ColumnNumber)
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
		out   outputFlag
		files []string
	)
	cmd := &cobra.Command{
		Use:   "lint -f FILE...",
		Short: "Check MetricsSources, ScoringPolicies and PlacementGates without a cluster",
		Long: `Check MetricsSources, ScoringPolicies and PlacementGates without a cluster.

lint reports the file, line and column of unknown fields, invalid PromQL, unknown variables
in the queries of a gate, and references to scores that their policy does not publish, if the
policy is in the files too.
Objects of other API groups are ignored. The exit code is 1 if there are findings.`,
		Example: "  kubectl plimsoll lint -f policies/\n  kustomize build . | kubectl plimsoll lint -f -",
		Args:    exactArgs(0, "no arguments besides -f FILE"),
		RunE: func(*cobra.Command, []string) error {
			if err := out.check(); err != nil {
				return err
			}
			if len(files) == 0 {
				return usagef("set a file or folder with -f; - reads standard input")
			}
			return lint(a, &out, files)
		},
	}
	cmd.Flags().StringSliceVarP(&files, "filename", "f", nil, "files, folders of .yaml and .yml files, or - for standard input")
	out.add(cmd)
	return cmd
}

// lint prints the findings in the files. It returns errFindings if there are any.
func lint(a *app, out *outputFlag, names []string) error {
	l := &linter{policies: map[string]*v1alpha1.ScoringPolicy{}, findings: []finding{}}
	files, err := expandFolders(names)
	if err != nil {
		return err
	}
	for _, file := range files {
		content, err := a.readFile(file)
		if err != nil {
			return err
		}
		l.checkFile(file, content)
	}
	l.checkReferences()
	slices.SortStableFunc(l.findings, func(a, b finding) int {
		return cmp.Or(cmp.Compare(slices.Index(files, a.File), slices.Index(files, b.File)), cmp.Compare(a.LineNumber, b.LineNumber), cmp.Compare(a.ColumnNumber, b.ColumnNumber))
	})
	err = out.print(a.Out, l.findings, func(w io.Writer) {
		for _, f := range l.findings {
			writeRow(w, f.String())
		}
	})
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(a.ErrOut, "%s checked, %s\n", pluralize(l.checked, "object"), pluralize(len(l.findings), "finding"))
	if len(l.findings) > 0 {
		return errFindings
	}
	return nil
}
