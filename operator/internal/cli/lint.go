package cli

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/promql"
)

func newLint(streams genericclioptions.IOStreams) *cobra.Command {
	var files []string
	cmd := &cobra.Command{
		Use: "lint -f FILE...", Short: "Check MetricsSources, ScoringPolicies and PlacementGates without a cluster",
		Args: exactly(0, "no arguments besides -f FILE"),
		RunE: func(*cobra.Command, []string) error {
			if len(files) == 0 {
				return usageError{errors.New("name a file with -f; - reads standard input")}
			}
			found := 0
			for _, file := range files {
				n, err := lintFile(streams, file)
				if err != nil {
					return err
				}
				found += n
			}
			if found > 0 {
				return errFindings
			}
			return nil
		},
	}
	cmd.Flags().StringSliceVarP(&files, "filename", "f", nil, "files to check")
	return cmd
}

func lintFile(streams genericclioptions.IOStreams, file string) (found int, err error) {
	var content []byte
	if file == "-" {
		content, err = io.ReadAll(streams.In)
	} else {
		content, err = os.ReadFile(file)
	}
	if err != nil {
		return 0, err
	}
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	checked := 0
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return found, fmt.Errorf("%s: %w", file, err)
		}
		name, findings := lintDocument(document)
		if name != "" {
			checked++
		}
		for _, f := range findings {
			found++
			fmt.Fprintf(streams.Out, "%s: %s\n", file, f)
		}
	}
	fmt.Fprintf(streams.ErrOut, "%s: %d objects of plimsoll.dev checked, %d findings\n", file, checked, found)
	return found, nil
}

// lintDocument checks one object; name is empty when it is none of ours.
func lintDocument(document []byte) (name string, findings []string) {
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	object, kind, err := decoder.Decode(document, nil, nil)
	if kind == nil || kind.Group != v1alpha1.GroupVersion.Group {
		return "", nil
	}
	if err != nil {
		return kind.Kind, []string{fmt.Sprintf("%s: %v", kind.Kind, err)}
	}
	switch o := object.(type) {
	case *v1alpha1.ScoringPolicy:
		return o.Name, lintPolicy(o)
	case *v1alpha1.PlacementGate:
		return o.Name, lintGate(o)
	}
	return kind.Kind, nil
}

func lintPolicy(p *v1alpha1.ScoringPolicy) (findings []string) {
	check := func(field, query string) {
		for _, problem := range promql.Check(query) {
			findings = append(findings, fmt.Sprintf("ScoringPolicy %s: %s:%s", p.Name, field, problem))
		}
	}
	if p.Spec.Freshness != nil {
		check("freshness.query", p.Spec.Freshness.Query)
	}
	for _, s := range p.Spec.Scores {
		check("scores["+s.Name+"].query", s.Query)
	}
	return findings
}

func lintGate(g *v1alpha1.PlacementGate) (findings []string) {
	for _, q := range gate.Questions(&g.Spec, "cluster") {
		_, problems := promql.ParseTemplate(q.Expr, gate.Variables)
		for _, problem := range problems {
			findings = append(findings, fmt.Sprintf("PlacementGate %s: %s:%s", g.Name, q.Name, problem))
		}
	}
	return findings
}
