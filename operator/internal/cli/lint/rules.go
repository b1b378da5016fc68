package lint

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
	"plimsoll.dev/plimsoll/operator/internal/metrics/dial"
	"plimsoll.dev/plimsoll/operator/internal/metrics/promql"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/metrics/querylint"
	"plimsoll.dev/plimsoll/operator/internal/policies/profile"
	"plimsoll.dev/plimsoll/operator/internal/policies/reclaim"
	"plimsoll.dev/plimsoll/operator/internal/scoring/round"
	"plimsoll.dev/plimsoll/operator/internal/scoring/score"
)

func (l *linter) checkSource(d *document, s *v1alpha1.MetricsSource) {
	switch {
	case s.Spec.URLTemplate != "":
		if _, err := query.ExpandURL(s.Spec.URLTemplate, "cluster"); err != nil {
			l.add(d, "spec.urlTemplate", "%s", err)
		}
	case strings.HasPrefix(s.Spec.URL, "http://"), strings.HasPrefix(s.Spec.URL, "https://"): // the schema refuses others
		if err := query.CheckURL(s.Spec.URL); err != nil {
			l.add(d, "spec.url", "%s", err)
		}
	}
}

func (l *linter) checkPolicy(d *document, p *v1alpha1.ScoringPolicy) {
	l.checkSelector(d, p.Spec.ClusterSelector)
	label := l.labelOf(p.Spec.SourceRef.Name)
	compiled, _, err := round.Compile(&p.Spec, cmp.Or(label, "cluster"))
	if f := p.Spec.Freshness; f != nil && f.Query != "" {
		l.checkQuery(d, freshnessPath, f.Query, nil, querylint.Options{Use: querylint.Age, ClusterLabel: label})
	}
	weighted, isAgeUnknown := false, err == nil && (p.Spec.Freshness == nil || p.Spec.Freshness.Query == "")
	for i := range p.Spec.Scores {
		s := &p.Spec.Scores[i]
		path := fmt.Sprintf("spec.scores[%d]", i)
		options := querylint.Options{Use: querylint.Number, ClusterLabel: label,
			AbsentAccepted: s.Missing.Absent != "" && s.Missing.Absent != v1alpha1.AbsentUnknown,
			LessIsBetter:   isDescending(&s.Normalize),
			AgeUnknown:     isAgeUnknown && !round.HasSampleTime(compiled.Scores[i].Query)}
		if s.NameFrom != nil {
			options.NameLabel = s.NameFrom.Label
		}
		if rules := l.checkQuery(d, path+".query", s.Query, nil, options); slices.Contains(rules, querylint.RuleFreshness) {
			isAgeUnknown = false // reported
		}
		l.checkPoints(d, path, s)
		if problem := score.KeepProblem(compiled, s); problem != "" {
			l.add(d, path+".missing.keepLastSeconds", "%s", problem)
		}
		weighted = weighted || s.Weight == nil || *s.Weight > 0
	}
	switch {
	case err != nil:
		field, message, _ := strings.Cut(err.Error(), ": ")
		l.add(d, "spec."+field, "%s", message)
	case p.Spec.Total != nil && p.Spec.Total.Expression == "" && !weighted && len(p.Spec.Scores) > 0:
		l.add(d, "spec.total", "is never published: every score has the weight 0")
	}
}

// isDescending reports whether the smallest value gets the most points.
func isDescending(n *v1alpha1.Normalize) bool {
	switch {
	case n.Linear != nil:
		return n.Linear.From.Cmp(n.Linear.To) > 0
	case n.Fleet != nil:
		return n.Fleet.Descending
	case len(n.Steps) > 0:
		return n.Steps[0].Points > n.Steps[len(n.Steps)-1].Points
	}
	return false
}

// checkSelector checks a selector of clusters.
func (l *linter) checkSelector(d *document, selector *metav1.LabelSelector) {
	if _, err := hubstate.SelectNames(nil, selector); err != nil {
		l.add(d, "spec.clusterSelector", "%s: operators are In, NotIn, Exists and DoesNotExist", err)
	}
}

// checkCapacityPolicy checks the queries of a CapacityPolicy.
func (l *linter) checkCapacityPolicy(d *document, p *v1alpha1.CapacityPolicy) {
	l.checkSelector(d, p.Spec.ClusterSelector)
	for path, q := range capacityQueries(p) {
		use := querylint.Number
		if path == freshnessPath {
			use = querylint.Age
		}
		l.checkQuery(d, path, q, nil, querylint.Options{Use: use, ClusterLabel: l.labelOf(p.Spec.SourceRef.Name)})
	}
}

// checkReclaimPolicy checks the queries of a ReclaimPolicy.
func (l *linter) checkReclaimPolicy(d *document, p *v1alpha1.ReclaimPolicy) {
	for path, q := range reclaimQueries(p) {
		// The rules for one value per cluster do not apply to a result with one per device.
		options := querylint.Options{Use: querylint.FleetRequirement, ClusterLabel: l.labelOf(p.Spec.SourceRef.Name), Required: reclaim.DeviceLabels()}
		if path == freshnessPath {
			options.Use, options.Required = querylint.Age, nil
		}
		l.checkQuery(d, path, q, nil, options)
	}
}

// reclaimQueries yields the queries that a ReclaimPolicy sets, with their paths.
func reclaimQueries(p *v1alpha1.ReclaimPolicy) iter.Seq2[string, string] {
	return func(yield func(path, query string) bool) {
		if f := p.Spec.Freshness; f != nil && f.Query != "" && !yield(freshnessPath, f.Query) {
			return
		}
		if q := p.Spec.IdleQuery; q != "" {
			yield("spec.idleQuery", q)
		}
	}
}

// checkTrialPolicy checks the query of a TrialPolicy.
func (l *linter) checkTrialPolicy(d *document, p *v1alpha1.TrialPolicy) {
	if q := p.Spec.ThroughputQuery; q != "" {
		l.checkQuery(d, "spec.throughputQuery", q, profile.Variables, querylint.Options{Use: querylint.Number, ClusterLabel: l.labelOf(p.Spec.SourceRef.Name)})
	}
}

// freshnessPath is the path of the query for the age of samples.
const freshnessPath = "spec.freshness.query"

// capacityQueries yields the queries of a CapacityPolicy with their paths.
func capacityQueries(p *v1alpha1.CapacityPolicy) iter.Seq2[string, string] {
	return func(yield func(path, query string) bool) {
		if f := p.Spec.Freshness; f != nil && f.Query != "" && !yield(freshnessPath, f.Query) {
			return
		}
		for i := range p.Spec.Quotas {
			path := fmt.Sprintf("spec.quotas[%d].", i)
			if !yield(path+"query", p.Spec.Quotas[i].Query) {
				return
			}
			if q := p.Spec.Quotas[i].UnhealthyQuery; q != "" && !yield(path+"unhealthyQuery", q) {
				return
			}
		}
	}
}

// checkPoints checks the conversion of a score to points.
func (l *linter) checkPoints(d *document, path string, s *v1alpha1.ScoreSpec) {
	n := &s.Normalize
	if n.Type == v1alpha1.NormalizeIdentity && (querylint.IsRatio(s.Query) || querylint.IsQuotient(s.Query)) {
		l.addPoints(d, path, path+".normalize", querylint.RuleRatio, "Identity takes the values as points, and a ratio is from 0 to 1: use Linear, such as from \"0\" to \"1\"")
	}
	if n.Type == v1alpha1.NormalizeIdentity && s.Range != v1alpha1.RangeFull && querylint.IsNegated(s.Query) {
		l.addPoints(d, path, path+".normalize", querylint.RuleNegative, "Identity takes the values as points, and values below 0 count as 0: leave the sign out and use Linear with from above to, or set range: Full")
	}
	if n.Linear != nil && n.Linear.From.Cmp(n.Linear.To) == 0 {
		l.add(d, path+".normalize.linear", "from and to must differ")
	}
	lowest := int32(0)
	if s.Range == v1alpha1.RangeFull {
		lowest = score.Lowest
	}
	for i, step := range n.Steps {
		at := fmt.Sprintf("%s.normalize.steps[%d]", path, i)
		if i > 0 && step.From.Cmp(n.Steps[i-1].From) <= 0 {
			l.add(d, at+".from", "must be greater than from of the preceding step")
		}
		if step.Points < lowest {
			l.add(d, at+".points", "%d is outside of the range and counts as %d: set range: Full", step.Points, lowest)
		}
	}
	if v := s.Missing.FixedValue; v != nil && *v < lowest && *v != score.Lowest {
		l.add(d, path+".missing.fixedValue", "%d is outside of the range, which begins at %d: set range: Full", *v, lowest)
	}
	if s.Minimum != nil && s.Maximum != nil && s.Minimum.Cmp(*s.Maximum) > 0 {
		l.add(d, path+".minimum", "is above maximum: every cluster is vetoed")
	}
	l.checkBound(d, path, "minimum", s.Minimum, s.Query)
	l.checkBound(d, path, "maximum", s.Maximum, s.Query)
}

// checkBound reports a percentage as the bound of a ratio.
func (l *linter) checkBound(d *document, path, field string, bound *resource.Quantity, query string) {
	if bound != nil && bound.CmpInt64(1) > 0 && querylint.IsRatio(query) {
		l.addPoints(d, path, path+"."+field, querylint.RuleRatio, "is a value of the query, and a ratio is from 0 to 1: write \"0.5\" for 50%")
	}
}

// addPoints adds a finding at path about the points of a score, unless its query ignores the rule.
func (l *linter) addPoints(d *document, score, path, rule, message string) {
	if !slices.Contains(d.ignoredRules(score+".query"), rule) {
		at := d.nearest(path)
		l.addAt(d, at.Line, at.Column, path, message, rule)
	}
}

// labelOf returns the label that identifies clusters in the series of a source, or "" if
// each cluster has its own endpoint. A source outside of the files has the label of the
// command line.
func (l *linter) labelOf(source string) string {
	s := l.sources[source]
	switch {
	case s == nil:
		return cmp.Or(l.clusterLabel, "cluster")
	case dial.IsPerCluster(&s.Spec):
		return ""
	}
	return dial.SourceInfo(s).ClusterLabel
}

func (l *linter) checkGate(d *document, g *v1alpha1.PlacementGate) {
	if mk := g.Spec.MultiKueue; mk != nil && mk.Credentials.NameTemplate != "" && !strings.Contains(mk.Credentials.NameTemplate, "{cluster}") {
		l.add(d, "spec.multiKueue.credentials.nameTemplate", "must contain {cluster}: without it every MultiKueueCluster connects to the same worker")
	}
	if g.Spec.Profiles == nil && shape.UsesProfiles(&g.Spec) {
		l.add(d, "spec.profiles", "must be set: a query uses a profile, and without the section no profile is kept")
	}
	label := l.labelOf(g.Spec.SourceRef.Name)
	for _, q := range gate.Queries(&g.Spec, cmp.Or(label, "cluster")) {
		path, set := gateQueryPath(&g.Spec, q)
		if !set {
			continue
		}
		l.checkQuery(d, path, q.Expr, q.Variables(), querylint.Options{Use: useOf(q), ClusterLabel: label, NameLabel: q.ObjectLabel,
			AbsentAccepted: q.Requirement != nil && q.Requirement.Absent == v1alpha1.AbsentMet})
	}
}

// gateQueryPath returns the path of a gate's query, and whether the gate sets it.
func gateQueryPath(spec *v1alpha1.PlacementGateSpec, q gate.Query) (path string, set bool) {
	if q.Requirement != nil {
		i := slices.IndexFunc(spec.Requirements, func(c v1alpha1.GateRequirement) bool { return c.Name == q.Requirement.Name })
		return fmt.Sprintf("spec.requirements[%d].query", i), true
	}
	if q.Prerequisite != "" {
		i := slices.IndexFunc(spec.Prerequisites, func(p v1alpha1.GatePrerequisite) bool { return p.Kind == q.Prerequisite })
		return fmt.Sprintf("spec.prerequisites[%d].query", i), q.ObjectLabel != "" && spec.Prerequisites[i].Query != ""
	}
	own := map[string]string{
		gate.QueryFit: spec.Queries.Fit, gate.QueryHeadroom: spec.Queries.Headroom, gate.QueryCapacity: spec.Queries.Capacity,
		gate.QueryPreference: spec.Queries.Preference, gate.QueryEmptyFit: spec.Queries.EmptyFit, gate.QuerySampleTime: spec.Queries.SampleTime, gate.QueryQuota: spec.Queries.Quota,
	}
	return "spec.queries." + q.Name, own[q.Name] != ""
}

// useOf returns what the result of a gate's query is used for.
func useOf(q gate.Query) querylint.Use {
	switch {
	case q.Requirement != nil && q.Requirement.Scope == v1alpha1.ScopeFleet:
		return querylint.FleetRequirement
	case q.Requirement != nil, q.Prerequisite != "":
		return querylint.Requirement
	case q.Name == gate.QuerySampleTime, q.Name == gate.QueryQuotaTime:
		return querylint.Time
	}
	return querylint.Number
}

// checkReferences checks that every score that a gate reads is published by its policy, if
// the policy is in the files too.
func (l *linter) checkReferences() {
	published := map[string]*v1alpha1.ScoringPolicy{}
	for _, p := range l.policies {
		published[cmp.Or(p.Spec.Publish.Name, p.Name)] = p
	}
	for _, o := range l.objects {
		g, isGate := o.Object.(*v1alpha1.PlacementGate)
		if !isGate {
			continue
		}
		for i, ref := range g.Spec.Scores {
			p, ok := published[ref.ResourceName]
			if !ok {
				continue
			}
			if names := scoreNames(p); !slices.ContainsFunc(names, func(name string) bool { return matchesName(name, ref.ScoreName) }) {
				l.add(o.doc, fmt.Sprintf("spec.scores[%d].scoreName", i), "ScoringPolicy %s does not publish the score %q; its scores are %s", p.Name, ref.ScoreName, strings.Join(names, ", "))
			}
		}
	}
}

// matchesName reports whether a score has the name. name ends in -* for a score with nameFrom.
func matchesName(name, score string) bool {
	base, several := strings.CutSuffix(name, "*")
	return name == score || several && len(score) > len(base) && strings.HasPrefix(score, base)
}

// scoreNames returns the names of all scores of a policy, the total included. That of a score
// with nameFrom ends in -*.
func scoreNames(p *v1alpha1.ScoringPolicy) []string {
	var names []string
	for _, s := range p.Spec.Scores {
		name := s.Name
		if s.NameFrom != nil {
			name += "-*"
		}
		names = append(names, name)
	}
	if t := p.Spec.Total; t != nil {
		names = append(names, cmp.Or(t.Name, "total"))
	}
	return names
}

// checkQuery checks a query, which can use $cluster_label and the variables. It returns the rules that the query breaks.
func (l *linter) checkQuery(d *document, path, text string, variables []string, options querylint.Options) (rules []string) {
	expr, source := promql.ExpandClusterLabel(text, cmp.Or(options.ClusterLabel, "cluster"))
	template, problems := promql.ParseTemplate(expr, variables)
	for i := range problems {
		problems[i].Pos = promql.PositionAt(text, source(problems[i].Pos.Offset))
	}
	l.addProblems(d, path, problems)
	if template == nil {
		return nil
	}
	findings := querylint.Check(template.Expr(), expr, options)
	for i := range findings {
		findings[i].Pos = promql.PositionAt(text, source(findings[i].Pos.Offset))
		rules = append(rules, findings[i].Rule)
	}
	l.addFindings(d, path, findings)
	return rules
}

// addFindings adds the findings of the query at path, except those of ignored rules.
func (l *linter) addFindings(d *document, path string, findings []querylint.Finding) {
	ignored := d.ignoredRules(path)
	for _, f := range findings {
		if !slices.Contains(ignored, f.Rule) {
			l.addProblem(d, path, f.Problem, f.Rule)
		}
	}
}
