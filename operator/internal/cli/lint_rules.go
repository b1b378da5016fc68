package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/promql"
	"plimsoll.dev/plimsoll/operator/internal/query"
	"plimsoll.dev/plimsoll/operator/internal/shape"
)

func (l *linter) checkSource(d *document, s *v1alpha1.MetricsSource) {
	topology := s.Spec.Topology
	switch {
	case topology != nil && topology.Type == v1alpha1.TopologyPerCluster:
		if _, err := query.ExpandURL(topology.URLTemplate, "cluster"); err != nil {
			l.add(d, "spec.topology.urlTemplate", "%s", err)
		}
	case s.Spec.URL == "":
		l.add(d, "spec", "url must be set unless topology.type is PerCluster")
	default:
		if err := query.CheckURL(s.Spec.URL); err != nil {
			l.add(d, "spec.url", "%s", err)
		}
	}
	for i, h := range s.Spec.Headers {
		if strings.EqualFold(h.Name, "authorization") {
			l.add(d, fmt.Sprintf("spec.headers[%d].name", i), "Authorization must be set by spec.auth")
		}
	}
}

func (l *linter) checkPolicy(d *document, p *v1alpha1.ScoringPolicy) {
	l.checkRequired(d, "spec.sourceRef.name", p.Spec.SourceRef.Name)
	if f := p.Spec.Freshness; f != nil {
		l.checkExpression(d, "spec.freshness.query", f.Query)
	}
	if len(p.Spec.Scores) == 0 {
		l.add(d, "spec", "scores must have at least one entry")
	}
	seen := map[string]bool{}
	for i := range p.Spec.Scores {
		s := &p.Spec.Scores[i]
		path := fmt.Sprintf("spec.scores[%d]", i)
		l.checkRequired(d, path+".name", s.Name)
		if seen[s.Name] && s.Name != "" {
			l.add(d, path+".name", "two scores have the name %q", s.Name)
		}
		seen[s.Name] = true
		l.checkExpression(d, path+".query", s.Query)
		l.checkNormalize(d, path+".normalize", &s.Normalize)
	}
	if t := p.Spec.Total; t != nil && seen[cmp.Or(t.Name, "total")] {
		l.add(d, "spec.total.name", "must differ from the name of every score")
	}
}

func (l *linter) checkNormalize(d *document, path string, n *v1alpha1.Normalize) {
	given := map[v1alpha1.NormalizeType]bool{
		v1alpha1.NormalizeLinear: n.Linear != nil, v1alpha1.NormalizeSteps: len(n.Steps) > 0, v1alpha1.NormalizeFleet: n.Fleet != nil,
	}
	known := []v1alpha1.NormalizeType{v1alpha1.NormalizeLinear, v1alpha1.NormalizeSteps, v1alpha1.NormalizeFleet, v1alpha1.NormalizeIdentity}
	if !slices.Contains(known, n.Type) {
		l.add(d, path+".type", "must be Linear, Steps, Fleet or Identity")
		return
	}
	for _, t := range known[:3] {
		if given[t] != (n.Type == t) {
			field := strings.ToLower(string(t))
			l.add(d, path+".type", "%s must be set if, and only if, type is %s", field, t)
		}
	}
	if n.Linear != nil && n.Linear.From.Cmp(n.Linear.To) == 0 {
		l.add(d, path+".linear", "from and to must differ")
	}
	for i := 1; i < len(n.Steps); i++ {
		if n.Steps[i].From.Cmp(n.Steps[i-1].From) <= 0 {
			l.add(d, fmt.Sprintf("%s.steps[%d].from", path, i), "must be greater than from of the preceding step")
		}
	}
}

func (l *linter) checkGate(d *document, g *v1alpha1.PlacementGate) {
	l.checkRequired(d, "spec.placementRef.namespace", g.Spec.PlacementRef.Namespace)
	l.checkRequired(d, "spec.placementRef.name", g.Spec.PlacementRef.Name)
	l.checkRequired(d, "spec.sourceRef.name", g.Spec.SourceRef.Name)
	if mk := g.Spec.MultiKueue; mk != nil && mk.Credentials.NameTemplate != "" && !strings.Contains(mk.Credentials.NameTemplate, "{cluster}") {
		l.add(d, "spec.multiKueue.credentials.nameTemplate", "must contain {cluster}: without it every MultiKueueCluster connects to the same worker")
	}
	for _, q := range gate.Queries(&g.Spec, "cluster") {
		path := "spec.queries." + q.Name
		if q.Condition != nil {
			i := slices.IndexFunc(g.Spec.Conditions, func(c v1alpha1.GateCondition) bool { return c.Name == q.Condition.Name })
			path = fmt.Sprintf("spec.conditions[%d].query", i)
		}
		_, problems := promql.ParseTemplate(q.Expr, shape.Variables)
		l.addProblems(d, path, problems)
	}
}

// checkReferences checks that every score that a gate reads is published by its policy, if
// the policy is in the files too.
func (l *linter) checkReferences() {
	published := map[string]*v1alpha1.ScoringPolicy{}
	for _, p := range l.policies {
		published[cmp.Or(p.Spec.Publish.Name, p.Name)] = p
	}
	for _, g := range l.gates {
		for i, ref := range g.gate.Spec.Policies {
			p, ok := published[ref.Policy]
			if !ok {
				continue
			}
			if names := scoreNames(p); !slices.Contains(names, ref.Score) {
				l.add(g.doc, fmt.Sprintf("spec.policies[%d].score", i), "ScoringPolicy %s does not publish the score %q; its scores are %s", p.Name, ref.Score, strings.Join(names, ", "))
			}
		}
	}
}

// scoreNames returns the names of all scores of a policy, the total included.
func scoreNames(p *v1alpha1.ScoringPolicy) []string {
	var names []string
	for _, s := range p.Spec.Scores {
		names = append(names, s.Name)
	}
	if t := p.Spec.Total; t != nil {
		names = append(names, cmp.Or(t.Name, "total"))
	}
	return names
}

func (l *linter) checkRequired(d *document, path, value string) {
	if value == "" {
		l.add(d, path, "must be set")
	}
}

func (l *linter) checkExpression(d *document, path, expr string) {
	if strings.TrimSpace(expr) == "" {
		l.add(d, path, "must be set")
		return
	}
	l.addProblems(d, path, promql.Check(expr))
}
