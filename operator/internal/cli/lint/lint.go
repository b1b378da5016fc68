// Package lint checks the objects of Plimsoll in files: the command lint.
package lint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/manifest"
	"plimsoll.dev/plimsoll/operator/internal/cli/prometheus"
	"plimsoll.dev/plimsoll/operator/internal/format"
)

// finding is one problem and its position in a file.
type finding struct {
	File         string `json:"file"`
	LineNumber   int    `json:"line"`
	ColumnNumber int    `json:"column"`
	Object       string `json:"object,omitempty"`
	Path         string `json:"path,omitempty"`
	Message      string `json:"message"`
	// Rule of operator/docs/lint.md; empty for objects that an API server would refuse.
	Rule string `json:"rule,omitempty"`
}

// String returns file:line:column: object: path: message (rule), without control characters.
func (f finding) String() string {
	text := fmt.Sprintf("%s:%d:%d: ", f.File, f.LineNumber, f.ColumnNumber)
	if f.Object != "" {
		text += f.Object + ": "
	}
	if f.Path != "" {
		text += f.Path + ": "
	}
	text += f.Message
	if f.Rule != "" {
		text += " (" + f.Rule + ")"
	}
	return format.Printable(text)
}

// New returns the command lint.
func New(a *command.App) *cobra.Command {
	var (
		out     command.OutputFlag
		files   []string
		asRules bool
		flags   prometheus.Flags
	)
	cmd := &cobra.Command{
		Use:   "lint FILE...",
		Short: "Check the objects of Plimsoll without a cluster",
		Long: `Check MetricsSources, ScoringPolicies, PlacementGates, CapacityPolicies, ReclaimPolicies and
TrialPolicies without a cluster.

lint reports the file, line and column of
  - what an API server would refuse: unknown fields, types, enums, bounds, patterns, CEL rules;
  - invalid PromQL, and unknown variables in queries;
  - queries that cannot work: they lose the cluster label, their operands never match, they
    read no series. operator/docs/lint.md lists the rules;
  - references to scores that their policy does not publish, if the policy is in the files.

With --prometheus, lint also reports selectors that match no series or too many. The comment
# lint:ignore RULE in a query, or on the line before it, turns a rule off for this query.

The items of a List are checked as well. Objects of other API groups are ignored. The exit
code is 1 if there are findings.

--as-rules prints the queries as recording rules instead, so that promtool and other linters
can read them.`,
		Example: "  kubectl plimsoll lint policies/\n  kustomize build . | kubectl plimsoll lint -f -\n  kubectl get scoringpolicies -o yaml | kubectl plimsoll lint -f -\n  kubectl plimsoll lint policies/ --as-rules | promtool check rules /dev/stdin",
		RunE: func(cmd *cobra.Command, args []string) error {
			files = append(files, args...)
			if err := errors.Join(out.Check(), flags.Check()); err != nil {
				return err
			}
			if len(files) == 0 {
				return command.Usagef("name a file or folder; - reads standard input")
			}
			l, err := readDocuments(a, files)
			if err != nil {
				return err
			}
			l.clusterLabel = flags.Label
			if asRules {
				return errors.Join(l.writeRules(a.Out), l.writeUndecoded(a.ErrOut))
			}
			return l.run(cmd.Context(), a, &out, &flags)
		},
	}
	cmd.Flags().StringSliceVarP(&files, "filename", "f", nil, "files, folders of .yaml and .yml files, or - for standard input")
	cmd.Flags().BoolVar(&asRules, "as-rules", false, "print the queries as a file of recording rules, and check only what an API server would refuse")
	cmd.Flags().DurationVar(&flags.Timeout, "timeout", flags.Timeout, "timeout of one query to the server; 0 uses the default of a source")
	flags.Add(cmd)
	out.Add(cmd)
	return cmd
}

// readDocuments reads and decodes all objects in the files. Findings so far are those of
// decoding.
func readDocuments(a *command.App, names []string) (*linter, error) {
	files, err := manifest.ExpandFolders(names)
	if err != nil {
		return nil, err
	}
	l := &linter{files: files, findings: []finding{}, policies: map[string]*v1alpha1.ScoringPolicy{}, sources: map[string]*v1alpha1.MetricsSource{}}
	for _, file := range files {
		content, err := manifest.ReadFile(a, file)
		if err != nil {
			return nil, err
		}
		if err := l.readFile(file, content); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// writeUndecoded writes the findings so far: objects whose queries can't be read. It returns
// command.ErrFindings if there are any.
func (l *linter) writeUndecoded(w io.Writer) error {
	for _, f := range l.findings {
		_, _ = fmt.Fprintln(w, f)
	}
	if len(l.findings) > 0 {
		return command.ErrFindings
	}
	return nil
}

// run checks the objects and prints all findings. It returns command.ErrFindings if there are any.
func (l *linter) run(ctx context.Context, a *command.App, out *command.OutputFlag, flags *prometheus.Flags) error {
	for _, o := range l.objects {
		l.checkObject(o)
	}
	l.checkReferences()
	if flags.URL != "" {
		if err := l.checkServer(ctx, a, flags); err != nil {
			return err
		}
	}
	slices.SortStableFunc(l.findings, func(a, b finding) int {
		return cmp.Or(cmp.Compare(slices.Index(l.files, a.File), slices.Index(l.files, b.File)), cmp.Compare(a.LineNumber, b.LineNumber), cmp.Compare(a.ColumnNumber, b.ColumnNumber))
	})
	err := out.Print(a.Out, "FindingList", l.findings, func(w io.Writer) {
		for _, f := range l.findings {
			format.Row(w, f.String())
		}
	})
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(a.ErrOut, "%s checked, %s\n", format.Plural(l.checked, "object"), format.Plural(len(l.findings), "finding"))
	if len(l.findings) > 0 {
		return command.ErrFindings
	}
	return nil
}
