package explanation

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/hubclient"
	"plimsoll.dev/plimsoll/operator/internal/format"
)

// ClusterReport holds the scores of one policy for one cluster.
type ClusterReport struct {
	// Policy is the name of the ScoringPolicy, unless the document is about one policy.
	Policy  string        `json:"policy,omitempty"`
	Cluster string        `json:"cluster"`
	Scores  []ScoreReport `json:"scores"`
}

// ScoreReport is a score of a cluster. Unknown values are absent.
type ScoreReport struct {
	Name string `json:"name"`
	// Raw is what the query returned for the cluster.
	Raw *float64 `json:"raw,omitempty"`
	// Points are the normalized value.
	Points *float64 `json:"points,omitempty"`
	// Value is the published score, from -100 to 100.
	Value *int32 `json:"value,omitempty"`
	// State says where Value comes from, such as Scored, Kept or Omitted.
	State string `json:"state"`
	// Outcome says what the query returned for the cluster, such as OK, Absent or Stale.
	Outcome string `json:"outcome,omitempty"`
	// SampleTime is the time of the cluster's oldest sample.
	SampleTime *time.Time `json:"sampleTime,omitempty"`
	// KeptUntil is when a kept score ends.
	KeptUntil *time.Time `json:"keptUntil,omitempty"`
	// ValidUntil is when the published score expires.
	ValidUntil *time.Time `json:"validUntil,omitempty"`
}

// rawNotShown introduces the reason why scores come from the hub's objects.
const rawNotShown = "raw values, points and sample ages: "

// Cluster returns the scores of a cluster. notShown is the information that is missing,
// with the reason.
func Cluster(ctx context.Context, a *command.App, operator *OperatorFlags, name string) (list []ClusterReport, notShown string, err error) {
	failure := operator.get(ctx, a, "/explain/cluster/"+name, &list)
	if failure == nil || operator.isFatal(failure) {
		return list, "", failure
	}
	c, _, err := hubclient.Connect(a)
	if err != nil {
		return nil, "", err
	}
	list, err = listPublishedScores(ctx, c, func(s *clusterv1alpha1.AddOnPlacementScore) bool { return s.Namespace == name })
	if err == nil && len(list) == 0 {
		return nil, "", fmt.Errorf("cluster %s has no published score: check that the ManagedCluster exists and that a ScoringPolicy selects it", name)
	}
	return list, rawNotShown + failure.Error(), err
}

// listPublishedScores returns the AddOnPlacementScores accepted by keep, sorted by cluster
// and policy.
func listPublishedScores(ctx context.Context, c client.Reader, keep func(*clusterv1alpha1.AddOnPlacementScore) bool) ([]ClusterReport, error) {
	list := &clusterv1alpha1.AddOnPlacementScoreList{}
	if err := c.List(ctx, list); err != nil {
		return nil, hubclient.Reading("AddOnPlacementScores", err)
	}
	clusters := []ClusterReport{}
	for i := range list.Items {
		if object := &list.Items[i]; keep(object) {
			clusters = append(clusters, ClusterReport{Policy: object.Name, Cluster: object.Namespace, Scores: reportScores(object)})
		}
	}
	slices.SortFunc(clusters, func(a, b ClusterReport) int {
		return cmp.Or(strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Policy, b.Policy))
	})
	return clusters, nil
}

// reportScores converts a published object. The state of a score is the reason of its condition. A
// score without a condition had a fresh value when the object was written. A score that has
// only a condition is not published.
func reportScores(object *clusterv1alpha1.AddOnPlacementScore) []ScoreReport {
	var scores []ScoreReport
	states := map[string]string{}
	for _, condition := range object.Status.Conditions {
		if name, ok := strings.CutPrefix(condition.Type, v1alpha1.ScoreConditionPrefix); ok {
			states[name] = condition.Reason
		}
	}
	for _, s := range object.Status.Scores {
		report := ScoreReport{Name: s.Name, Value: &s.Value, State: cmp.Or(states[s.Name], "Published")}
		if until := object.Status.ValidUntil; until != nil {
			report.ValidUntil = &until.Time
		}
		scores = append(scores, report)
		delete(states, s.Name)
	}
	for name, state := range states {
		scores = append(scores, ScoreReport{Name: name, State: state})
	}
	slices.SortFunc(scores, func(a, b ScoreReport) int { return strings.Compare(a.Name, b.Name) })
	return scores
}

// WriteScores writes a table of scores. The first column is the policy if byPolicy is true,
// otherwise the cluster.
func WriteScores(w io.Writer, clusters []ClusterReport, byPolicy bool, now time.Time) {
	if len(clusters) == 0 {
		return
	}
	format.Row(w)
	first := "CLUSTER"
	if byPolicy {
		first = "POLICY"
	}
	format.Row(w, first, "SCORE", "VALUE", "POINTS", "RAW", "SAMPLE", "STATE")
	for _, c := range clusters {
		name := c.Cluster
		if byPolicy {
			name = c.Policy
		}
		for _, s := range c.Scores {
			format.Row(w, name, s.Name, format.Score(s.Value, "-"), format.Float(s.Points), format.Float(s.Raw), format.SampleAge(s.SampleTime, now), s.describeState(now))
		}
	}
}

// describeState returns the state, the outcome if it differs, and how long the score is
// kept or valid.
func (s ScoreReport) describeState(now time.Time) string {
	text := s.State
	if s.Outcome != "" && s.Outcome != s.State {
		text += " (" + s.Outcome + ")"
	}
	if s.KeptUntil != nil && s.KeptUntil.After(now) {
		text += ", kept for another " + format.Duration(s.KeptUntil.Sub(now))
	}
	if until := s.ValidUntil; until != nil {
		if until.Before(now) {
			return text + ", expired " + format.Age(now, *until) + " ago"
		}
		text += ", valid for " + format.Duration(until.Sub(now))
	}
	return text
}
