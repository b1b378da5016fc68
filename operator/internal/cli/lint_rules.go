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
)

func (l *linter) source(d *document, s *v1alpha1.MetricsSource) {
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

func (l *linter) policy(d *document, p *v1alpha1.ScoringPolicy) {
	l.required(d, "spec.sourceRef.name", p.Spec.SourceRef.Name)
	if f := p.Spec.Freshness; f != nil {
		l.expression(d, "spec.freshness.query", f.Query)
	}
	if len(p.Spec.Scores) == 0 {
		l.add(d, "spec", "scores must hold at least one")
	}
	seen := map[string]bool{}
	for i := range p.Spec.Scores {
		s := &p.Spec.Scores[i]
		path := fmt.Sprintf("spec.scores[%d]", i)
		l.required(d, path+".name", s.Name)
		if seen[s.Name] && s.Name != "" {
			l.add(d, path+".name", "%q is the name of two scores", s.Name)
		}
		seen[s.Name] = true
		l.expression(d, path+".query", s.Query)
		l.normalize(d, path+".normalize", &s.Normalize)
	}
	if t := p.Spec.Total; t != nil && seen[cmp.Or(t.Name, "total")] {
		l.add(d, "spec.total.name", "must differ from every scores[].name")
	}
}

func (l *linter) normalize(d *document, path string, n *v1alpha1.Normalize) {
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
			l.add(d, path+".type", "%s must be set exactly when type is %s", field, t)
		}
	}
	if n.Linear != nil && n.Linear.From.Cmp(n.Linear.To) == 0 {
		l.add(d, path+".linear", "from and to must differ")
	}
	for i := 1; i < len(n.Steps); i++ {
		if n.Steps[i].From.Cmp(n.Steps[i-1].From) <= 0 {
			l.add(d, fmt.Sprintf("%s.steps[%d].from", path, i), "steps must ascend")
		}
	}
}

func (l *linter) gate(d *document, g *v1alpha1.PlacementGate) {
	l.required(d, "spec.placementRef.namespace", g.Spec.PlacementRef.Namespace)
	l.required(d, "spec.placementRef.name", g.Spec.PlacementRef.Name)
	l.required(d, "spec.sourceRef.name", g.Spec.SourceRef.Name)
	if mk := g.Spec.MultiKueue; mk != nil && mk.Credentials.NameTemplate != "" && !strings.Contains(mk.Credentials.NameTemplate, "{cluster}") {
		l.add(d, "spec.multiKueue.credentials.nameTemplate", "must contain {cluster}: without it every MultiKueueCluster connects to the same worker")
	}
	for _, q := range gate.Questions(&g.Spec, "cluster") {
		path := "spec." + q.Name + ".query"
		if q.Condition != nil {
			i := slices.IndexFunc(g.Spec.Conditions, func(c v1alpha1.GateCondition) bool { return c.Name == q.Condition.Name })
			path = fmt.Sprintf("spec.conditions[%d].query", i)
		}
		_, problems := promql.ParseTemplate(q.Expr, gate.Variables)
		l.problems(d, path, problems)
	}
}

// across compares objects: a gate must not read a score that its policy, when it is
// among the files, does not publish.
func (l *linter) across() {
	published := map[string]*v1alpha1.ScoringPolicy{}
	for _, p := range l.policies {
		published[cmp.Or(p.Spec.Publish.Name, p.Name)] = p
	}
	for _, in := range l.gates {
		for i, ref := range in.gate.Spec.Policies {
			p, ok := published[ref.Name]
			if !ok {
				continue
			}
			if names := scoreNames(p); !slices.Contains(names, ref.Score) {
				l.add(in.doc, fmt.Sprintf("spec.policies[%d].score", i), "ScoringPolicy %s publishes no %q, only %s", p.Name, ref.Score, strings.Join(names, ", "))
			}
		}
	}
}

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

func (l *linter) required(d *document, path, value string) {
	if value == "" {
		l.add(d, path, "must be set")
	}
}

func (l *linter) expression(d *document, path, expr string) {
	if strings.TrimSpace(expr) == "" {
		l.add(d, path, "must be set")
		return
	}
	l.problems(d, path, promql.Check(expr))
}
