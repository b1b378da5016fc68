package explanation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/explain"
	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/hubclient"
	"plimsoll.dev/plimsoll/operator/internal/format"
	"plimsoll.dev/plimsoll/operator/internal/scoring/round"
)

// PolicyReport is the output of explain policy: the conditions of the policy and its last
// round. From says if the round comes from the operator or from the hub's objects.
type PolicyReport struct {
	// Policy is the name of the ScoringPolicy.
	Policy     string            `json:"policy"`
	Conditions []ConditionReport `json:"conditions,omitempty"`
	// Time of the last round.
	Time time.Time `json:"time,omitzero"`
	// Refused is true if too few clusters had fresh data, so that the round was not published.
	Refused bool `json:"refused,omitempty"`
	// Fresh is the number of clusters with fresh data, and Known that of recently healthy clusters.
	Fresh    int      `json:"freshClusters,omitempty"`
	Known    int      `json:"knownClusters,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
	// Queries of the round.
	Queries []QueryReport `json:"queries,omitempty"`
	// Clusters have the scores of each cluster.
	Clusters []ClusterReport `json:"clusters"`
	// From says whether the round comes from the operator or from the objects of the hub.
	From string `json:"from"`
	// NotShown lists information that is missing, with the reason.
	NotShown []string `json:"notShown,omitempty"`
}

// ConditionReport is a condition of a policy.
type ConditionReport struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
	// Since is when the status last changed.
	Since time.Time `json:"since"`
}

// QueryReport is one query of a round. Score is empty for the freshness query.
type QueryReport struct {
	// Score is the name of the score, and empty for the freshness query.
	Score      string  `json:"score,omitempty"`
	Query      string  `json:"query"`
	DurationMS float64 `json:"durationMilliseconds"`
	// Series is the number of series in the response.
	Series   int      `json:"series"`
	Warnings []string `json:"warnings,omitempty"`
	// Error is why the query failed.
	Error string `json:"error,omitempty"`
}

// Policy explains a ScoringPolicy.
func Policy(ctx context.Context, a *command.App, hub client.Reader, operator *OperatorFlags, name string) (*PolicyReport, error) {
	policy := &v1alpha1.ScoringPolicy{}
	if err := hub.Get(ctx, client.ObjectKey{Name: name}, policy); err != nil {
		return nil, hubclient.Reading("ScoringPolicy "+name, err)
	}
	report := &PolicyReport{Policy: name, From: explain.FromOperator}
	for _, s := range policy.Status.Conditions {
		report.Conditions = append(report.Conditions, ConditionReport{s.Type, string(s.Status), s.Reason, s.Message, s.LastTransitionTime.Time})
	}
	err := operator.get(ctx, a, "/explain/policy/"+name, report)
	if err == nil || operator.isFatal(err) && !errors.Is(err, errUnknownToOperator) {
		return report, err
	}
	report.NotShown = append(report.NotShown, rawNotShown+err.Error())
	return report, report.readObjects(ctx, hub, policy)
}

// readObjects fills the report from the status of the policy and the published scores.
func (r *PolicyReport) readObjects(ctx context.Context, c client.Reader, policy *v1alpha1.ScoringPolicy) error {
	r.From = explain.FromObjects
	if last := policy.Status.LastRound; last != nil {
		r.Time = last.Time.Time
	}
	r.Warnings = policy.Status.Warnings
	for _, s := range policy.Status.Scores {
		q := QueryReport{Score: s.Name, Query: s.Query, Series: int(s.Series), Warnings: s.Warnings, Error: s.Error}
		q.DurationMS = float64(s.DurationMilliseconds)
		r.Queries = append(r.Queries, q)
	}
	published := cmp.Or(policy.Spec.Publish.Name, policy.Name)
	var err error
	r.Clusters, err = listPublishedScores(ctx, c, func(s *clusterv1alpha1.AddOnPlacementScore) bool { return s.Name == published })
	return err
}

// WriteRows writes the rows of the report to the writer that format.Table passes.
func (r *PolicyReport) WriteRows(w io.Writer, a *command.App) {
	r.writeSummary(w, a)
	WriteScores(w, r.Clusters, false, a.Now())
}

// writeSummary writes everything except the table of scores.
func (r *PolicyReport) writeSummary(w io.Writer, a *command.App) {
	format.Row(w, "Policy:", r.Policy)
	for _, c := range r.Conditions {
		text := fmt.Sprintf("%s %s, for %s", a.Paint.State(c.Status), c.Reason, format.Age(a.Now(), c.Since))
		if c.Message != "" {
			text += ": " + c.Message
		}
		format.Row(w, c.Type+":", text)
	}
	if !r.Time.IsZero() {
		text := format.Age(a.Now(), r.Time) + " ago"
		if r.From == explain.FromOperator {
			text += fmt.Sprintf(", %d of %d clusters have fresh data", r.Fresh, len(r.Clusters))
		}
		if r.Refused {
			text += ", not published because too few clusters have fresh data; earlier scores are kept"
		}
		format.Row(w, "Last round:", text)
	}
	for _, warning := range r.Warnings {
		format.Row(w, "Warning:", a.Paint.Warning(warning))
	}
	for _, q := range r.Queries {
		format.Row(w, "Query:", cmp.Or(q.Score, round.FreshnessName)+": "+strings.Join(strings.Fields(q.Query), " "))
		format.Row(w, "", fmt.Sprintf("%d series in %.0f ms", q.Series, q.DurationMS))
		for _, warning := range q.Warnings {
			format.Row(w, "", a.Paint.Warning("warning: "+warning))
		}
		if q.Error != "" {
			format.Row(w, "", a.Paint.Bad("error: "+q.Error))
		}
	}
	for _, note := range r.NotShown {
		format.Row(w, "Not shown:", note)
	}
}
