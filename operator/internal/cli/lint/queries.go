package lint

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/metrics/promql"
	"plimsoll.dev/plimsoll/operator/internal/policies/profile"
)

// fileQuery is one valid query of the files and where it stands.
type fileQuery struct {
	doc  *document
	path string
	text string
	expr promql.Expr
}

// queries returns the valid queries of all policies, capacity policies and gates.
func (l *linter) queries() []fileQuery {
	var found []fileQuery
	for _, o := range l.objects {
		add := func(source v1alpha1.LocalReference, path, query string, variables []string) {
			text, _ := promql.ExpandClusterLabel(query, cmp.Or(l.labelOf(source.Name), "cluster"))
			if template, problems := promql.ParseTemplate(text, variables); problems == nil {
				found = append(found, fileQuery{o.doc, path, text, template.Expr()})
			}
		}
		switch object := o.Object.(type) {
		case *v1alpha1.CapacityPolicy:
			for path, query := range capacityQueries(object) {
				add(object.Spec.SourceRef, path, query, nil)
			}
		case *v1alpha1.ReclaimPolicy:
			for path, query := range reclaimQueries(object) {
				add(object.Spec.SourceRef, path, query, nil)
			}
		case *v1alpha1.TrialPolicy:
			if q := object.Spec.ThroughputQuery; q != "" {
				add(object.Spec.SourceRef, "spec.throughputQuery", q, profile.Variables)
			}
		case *v1alpha1.ScoringPolicy:
			if f := object.Spec.Freshness; f != nil && f.Query != "" {
				add(object.Spec.SourceRef, freshnessPath, f.Query, nil)
			}
			for i := range object.Spec.Scores {
				add(object.Spec.SourceRef, fmt.Sprintf("spec.scores[%d].query", i), object.Spec.Scores[i].Query, nil)
			}
		case *v1alpha1.PlacementGate:
			for _, q := range gate.Queries(&object.Spec, "cluster") {
				if path, set := gateQueryPath(&object.Spec, q); set {
					add(object.Spec.SourceRef, path, q.Expr, q.Variables())
				}
			}
		}
	}
	return found
}

// queryRule is one rule of a file for Prometheus.
type queryRule struct {
	Record string            `json:"record"`
	Expr   string            `json:"expr"`
	Labels map[string]string `json:"labels"`
}

type ruleGroup struct {
	Name  string      `json:"name"`
	Rules []queryRule `json:"rules"`
}

// writeRules writes the valid queries as recording rules, one group for each object.
// Matchers of variables are left out, and numbers replace the other variables.
func (l *linter) writeRules(w io.Writer) error {
	file := struct {
		Groups []ruleGroup `json:"groups"`
	}{Groups: []ruleGroup{}}
	for _, q := range l.queries() {
		name := q.doc.file + ": " + q.doc.object
		if n := len(file.Groups); n == 0 || file.Groups[n-1].Name != name {
			file.Groups = append(file.Groups, ruleGroup{Name: name})
		}
		group := &file.Groups[len(file.Groups)-1]
		parser.Inspect(q.expr, func(node parser.Node, _ []parser.Node) error {
			if n, ok := node.(*parser.VectorSelector); ok {
				n.LabelMatchers = selectorsOf(n)[0].LabelMatchers
			}
			return nil
		})
		group.Rules = append(group.Rules, queryRule{
			Record: "plimsoll:query", Expr: q.expr.String(), Labels: map[string]string{"path": strings.TrimPrefix(q.path, "spec.")},
		})
	}
	content, err := yaml.Marshal(file)
	if err != nil {
		return err
	}
	_, err = w.Write(content)
	return err
}
