package cli

import (
	"cmp"
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// policyReport is what explain policy prints: the policy's conditions, and the last
// round as the operator or as the published scores tell it.
type policyReport struct {
	Policy     string            `json:"policy"`
	Conditions []conditionReport `json:"conditions,omitempty"`
	Time       time.Time         `json:"time,omitzero"`
	Refused    bool              `json:"refused,omitempty"`
	Fresh      int               `json:"freshClusters,omitempty"`
	Known      int               `json:"knownClusters,omitempty"`
	Queries    []queryReport     `json:"queries,omitempty"`
	Clusters   []clusterReport   `json:"clusters"`
	From       string            `json:"from"`
	NotShown   []string          `json:"notShown,omitempty"`
}

type conditionReport struct {
	Type    string    `json:"type"`
	Status  string    `json:"status"`
	Reason  string    `json:"reason"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since"`
}

// queryReport is one question of a round; the one without a score is freshness.
type queryReport struct {
	Score      string   `json:"score,omitempty"`
	Query      string   `json:"query"`
	DurationMS float64  `json:"durationMilliseconds"`
	Series     int      `json:"series"`
	Warnings   []string `json:"warnings,omitempty"`
	Error      string   `json:"error,omitempty"`
}

// clusterReport is one cluster's scores by one policy.
type clusterReport struct {
	Policy  string        `json:"policy,omitempty"`
	Cluster string        `json:"cluster"`
	Scores  []scoreReport `json:"scores"`
}

// scoreReport is one score of one cluster; fields that are not known are absent.
type scoreReport struct {
	Name       string     `json:"name"`
	Raw        *float64   `json:"raw,omitempty"`
	Points     *float64   `json:"points,omitempty"`
	Value      *int32     `json:"value,omitempty"`
	State      string     `json:"state"`
	Outcome    string     `json:"outcome,omitempty"`
	SampleTime *time.Time `json:"sampleTime,omitempty"`
	HeldUntil  *time.Time `json:"heldUntil,omitempty"`
	ValidUntil *time.Time `json:"validUntil,omitempty"`
}

const rawNotShown = "raw values, points and age of samples: the operator knows them (--operator-url; see --help)"

func newExplainPolicy(a *app) *cobra.Command {
	var out output
	var operator operatorFlags
	cmd := &cobra.Command{
		Use:               "policy NAME",
		Short:             "What a policy asked, what was answered, and each cluster's scores",
		Long:              "What a policy asked in its last round, what was answered, and each cluster's scores.\n\n" + operatorHelp,
		Args:              exactly(1, "the name of a ScoringPolicy"),
		ValidArgsFunction: a.complete(policyNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.check(); err != nil {
				return err
			}
			report, err := explainPolicy(cmd.Context(), a, &operator, args[0])
			if err != nil {
				return err
			}
			return out.print(a.Out, report, func(w io.Writer) {
				report.head(w, a)
				writeScores(w, report.Clusters, false, a.now())
			})
		},
	}
	out.add(cmd)
	operator.add(cmd.Flags())
	return cmd
}

func explainPolicy(ctx context.Context, a *app, operator *operatorFlags, name string) (*policyReport, error) {
	c, _, err := a.connect()
	if err != nil {
		return nil, err
	}
	policy := &v1alpha1.ScoringPolicy{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, policy); err != nil {
		return nil, reading("ScoringPolicy "+name, err)
	}
	report := &policyReport{Policy: name, From: fromOperator}
	for _, s := range policy.Status.Conditions {
		report.Conditions = append(report.Conditions, conditionReport{s.Type, string(s.Status), s.Reason, s.Message, s.LastTransitionTime.Time})
	}
	if operator.url != "" {
		err := operator.get(ctx, "/explain/policy/"+name, report)
		if !errors.Is(err, errUnknown) {
			return report, err
		}
		report.NotShown = append(report.NotShown, "the last round: "+err.Error())
	}
	report.From = fromObjects
	if last := policy.Status.LastRound; last != nil {
		report.Time = last.Time.Time
	}
	for _, s := range policy.Status.Scores {
		q := queryReport{Score: s.Name, Query: s.Query, Series: int(s.Series), Warnings: s.Warnings, Error: s.Error}
		q.DurationMS = float64(s.DurationMilliseconds)
		report.Queries = append(report.Queries, q)
	}
	published := cmp.Or(policy.Spec.Publish.Name, name)
	report.Clusters, err = publishedScores(ctx, c, func(s *clusterv1alpha1.AddOnPlacementScore) bool { return s.Name == published })
	if operator.url == "" {
		report.NotShown = append(report.NotShown, rawNotShown)
	}
	return report, err
}

func scoresOf(object *clusterv1alpha1.AddOnPlacementScore) []scoreReport {
	state := "Published"
	for _, condition := range object.Status.Conditions {
		if condition.Type == v1alpha1.ConditionDataFresh && condition.Status != "True" {
			state = condition.Reason
		}
	}
	var scores []scoreReport
	for _, s := range object.Status.Scores {
		report := scoreReport{Name: s.Name, Value: &s.Value, State: state}
		if until := object.Status.ValidUntil; until != nil {
			report.ValidUntil = &until.Time
		}
		scores = append(scores, report)
	}
	return scores
}
