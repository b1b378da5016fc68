package ui

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/shadow"
	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/explanation"
	"plimsoll.dev/plimsoll/operator/internal/format"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// policiesPage shows the policies and gates, the scores of one policy over time, and the reports of gates in mode Shadow.
func policiesPage(ctx context.Context, v *view, q url.Values) *page {
	p := &page{Title: "Policies and gates", Fields: []field{{"policy", "Policy", q.Get("policy")}}}
	policies, gates := &v1alpha1.ScoringPolicyList{}, &v1alpha1.PlacementGateList{}
	if !v.missing("ScoringPolicies", v.hub.List(ctx, policies)) {
		table := section{Title: "Policies", Head: []string{"POLICY", "MODE", "READY", "LAST ROUND"}}
		for i := range policies.Items {
			policy, last := &policies.Items[i], format.Unknown
			if round := policy.Status.LastRound; round != nil {
				last = format.Age(v.app.Now(), round.Time.Time) + " ago"
			}
			table.Rows = append(table.Rows, []cell{linked(policy.Name, "policies", url.Values{"policy": {policy.Name}}), text(string(policy.Spec.Mode)), readyCell(policy.Status.Conditions), text(last)})
		}
		if len(policies.Items) == 0 {
			table.Text = "The hub has no ScoringPolicy."
		}
		p.Sections = append(p.Sections, table)
	}
	if name := q.Get("policy"); name != "" {
		p.Sections = append(p.Sections, v.policySections(ctx, name, q)...)
	} else if len(policies.Items) > 0 {
		p.Sections = append(p.Sections, v.policySections(ctx, policies.Items[0].Name, q)...)
	}
	if v.missing("PlacementGates", v.hub.List(ctx, gates)) {
		return p
	}
	table := section{Title: "Gates", Head: []string{"GATE", "MODE", "READY"}}
	for i := range gates.Items {
		g := &gates.Items[i]
		table.Rows = append(table.Rows, []cell{text(g.Name), text(string(cmp.Or(g.Spec.Mode, v1alpha1.ModeEnforce))), readyCell(g.Status.Conditions)})
	}
	if len(gates.Items) == 0 {
		table.Text = "The hub has no PlacementGate."
	}
	p.Sections = append(p.Sections, table)
	for i := range gates.Items {
		g := &gates.Items[i]
		report, err := shadow.ReportOf(g)
		switch {
		case err == nil:
			p.Sections = append(p.Sections, sectionsOf("Shadow report of gate "+format.Printable(g.Name), func(w io.Writer) { report.WriteRows(w, true, v.app.Now()) })...)
		case g.Spec.Mode == v1alpha1.ModeShadow:
			v.notes.add(err.Error())
		}
	}
	return p
}

// readyCell shows the condition Ready.
func readyCell(conditions []metav1.Condition) cell {
	c := apimeta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
	switch {
	case c == nil:
		return text(format.Unknown)
	case c.Status == metav1.ConditionTrue:
		return toned("good", string(c.Status))
	}
	return toned("bad", strings.TrimSuffix(string(c.Status)+" "+c.Reason+": "+c.Message, ": "))
}

// policySections shows what explain policy says, and the scores over time.
func (v *view) policySections(ctx context.Context, name string, q url.Values) []section {
	report, err := remember(ctx, v.snapshot, "policy "+name, func(ctx context.Context) (*explanation.PolicyReport, error) {
		return explanation.Policy(ctx, v.app, v.hub, &v.options.operator, name)
	})
	if v.missing("ScoringPolicy "+name, err) {
		return nil
	}
	history := section{Title: "Scores of the last day", Head: []string{"CLUSTER", "SCORE", "NOW", "LOWEST", "HIGHEST", "LAST DAY"}}
	series, err := v.scoreHistory(ctx, name)
	if err != nil {
		history.Text = "Scores over time are unknown: " + format.Printable(err.Error())
	} else if len(series) == 0 {
		history.Text = "Prometheus has no series plimsoll_score of this policy: it scrapes the operator on the hub."
	}
	for _, s := range series {
		c := newChart(s.Points, v.app.Now())
		history.Rows = append(history.Rows, append(texts(s.Labels["cluster"], s.Labels["score"], c.now(), c.lowest(), c.highest()), cell{Chart: c}))
	}
	sections := sectionsOf("Policy "+format.Printable(name), func(w io.Writer) { report.WriteRows(w, v.app) })
	return append(sections, history.filtered("policies", q))
}

// scoreHistory returns the scores of a policy of the last day, by cluster and score.
func (v *view) scoreHistory(ctx context.Context, policy string) ([]query.Series, error) {
	if err := v.mayReadMetrics(ctx); err != nil {
		return nil, err
	}
	return withWarnings(ctx, v, "history "+policy, func(ctx context.Context, a *command.App) ([]query.Series, error) {
		source, err := v.options.prometheus.ConnectFleet(ctx, a)
		if err != nil {
			return nil, err
		}
		defer source.Client.Close()
		end := a.Now().Truncate(chartStep) // so that all requests of a step have the same points
		result, err := source.Client.Range(ctx, fmt.Sprintf("max by (cluster, score) (plimsoll_score{policy=%q})", policy), end.Add(-24*time.Hour), end, chartStep)
		for _, warning := range result.Warnings {
			_, _ = fmt.Fprintln(a.ErrOut, "scores over time are incomplete: "+warning)
		}
		slices.SortFunc(result.Series, func(a, b query.Series) int {
			return cmp.Or(cmp.Compare(a.Labels["cluster"], b.Labels["cluster"]), cmp.Compare(a.Labels["score"], b.Labels["score"]))
		})
		return result.Series, err
	})
}
