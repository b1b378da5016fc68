package explain

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/cli/command"
	"plimsoll.dev/plimsoll/operator/internal/cli/hubclient"
	"plimsoll.dev/plimsoll/operator/internal/format"
)

// clusterReport holds the scores of one policy for one cluster.
type clusterReport struct {
	Policy  string        `json:"policy,omitempty"`
	Cluster string        `json:"cluster"`
	Scores  []scoreReport `json:"scores"`
}

// scoreReport is a score of a cluster. Unknown values are absent.
type scoreReport struct {
	Name       string     `json:"name"`
	Raw        *float64   `json:"raw,omitempty"`
	Points     *float64   `json:"points,omitempty"`
	Value      *int32     `json:"value,omitempty"`
	State      string     `json:"state"`
	Outcome    string     `json:"outcome,omitempty"`
	SampleTime *time.Time `json:"sampleTime,omitempty"`
	KeptUntil  *time.Time `json:"keptUntil,omitempty"`
	ValidUntil *time.Time `json:"validUntil,omitempty"`
}

// rawNotShown introduces the reason why scores come from the hub's objects.
const rawNotShown = "raw values, points and sample ages: "

func newExplainCluster(a *command.App) *cobra.Command {
	var out command.OutputFlag
	var operator operatorFlags
	cmd := &cobra.Command{
		Use:               "cluster NAME",
		Short:             "Show the scores of a cluster from every policy",
		Long:              "Show the scores of a cluster from every policy.\n\n" + operatorHelp,
		Args:              command.ExactArgs(1, "the name of a ManagedCluster"),
		ValidArgsFunction: hubclient.Complete(a, listClusterNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			list, notShown, err := explainCluster(cmd.Context(), a, &operator, args[0])
			if err != nil {
				return err
			}
			return out.Print(a.Out, "ClusterExplanationList", list, func(w io.Writer) {
				if notShown != "" {
					format.Row(w, "Not shown:", notShown)
				}
				writeScores(w, list, true, a.Now())
			})
		},
	}
	out.Add(cmd)
	operator.add(cmd.Flags())
	return cmd
}

// explainCluster returns the scores of a cluster. notShown is the information that is missing,
// with the reason.
func explainCluster(ctx context.Context, a *command.App, operator *operatorFlags, name string) (list []clusterReport, notShown string, err error) {
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
func listPublishedScores(ctx context.Context, c client.Client, keep func(*clusterv1alpha1.AddOnPlacementScore) bool) ([]clusterReport, error) {
	list := &clusterv1alpha1.AddOnPlacementScoreList{}
	if err := c.List(ctx, list); err != nil {
		return nil, hubclient.Reading("AddOnPlacementScores", err)
	}
	clusters := []clusterReport{}
	for i := range list.Items {
		if object := &list.Items[i]; keep(object) {
			clusters = append(clusters, clusterReport{Policy: object.Name, Cluster: object.Namespace, Scores: reportScores(object)})
		}
	}
	slices.SortFunc(clusters, func(a, b clusterReport) int {
		return cmp.Or(strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Policy, b.Policy))
	})
	return clusters, nil
}

// reportScores converts a published object. The state of a score is the reason of its condition. A
// score without a condition had a fresh value when the object was written. A score that has
// only a condition is not published.
func reportScores(object *clusterv1alpha1.AddOnPlacementScore) []scoreReport {
	var scores []scoreReport
	states := map[string]string{}
	for _, condition := range object.Status.Conditions {
		if name, ok := strings.CutPrefix(condition.Type, v1alpha1.ScoreConditionPrefix); ok {
			states[name] = condition.Reason
		}
	}
	for _, s := range object.Status.Scores {
		report := scoreReport{Name: s.Name, Value: &s.Value, State: cmp.Or(states[s.Name], "Published")}
		if until := object.Status.ValidUntil; until != nil {
			report.ValidUntil = &until.Time
		}
		scores = append(scores, report)
		delete(states, s.Name)
	}
	for name, state := range states {
		scores = append(scores, scoreReport{Name: name, State: state})
	}
	slices.SortFunc(scores, func(a, b scoreReport) int { return strings.Compare(a.Name, b.Name) })
	return scores
}

// writeScores writes a table of scores. The first column is the policy if byPolicy is true,
// otherwise the cluster.
func writeScores(w io.Writer, clusters []clusterReport, byPolicy bool, now time.Time) {
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
func (s scoreReport) describeState(now time.Time) string {
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

func listClusterNames(ctx context.Context, c client.Client, _ string) (names []string, err error) {
	list := &clusterv1.ManagedClusterList{}
	err = c.List(ctx, list)
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, err
}
