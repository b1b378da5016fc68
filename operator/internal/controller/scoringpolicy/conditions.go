package scoringpolicy

import (
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/promql"
	"plimsoll.dev/plimsoll/operator/internal/query"
	"plimsoll.dev/plimsoll/operator/internal/round"
	"plimsoll.dev/plimsoll/operator/internal/score"
)

// decision is one condition's content; the same three feed the event.
type decision struct {
	status  metav1.ConditionStatus
	reason  string
	message string
}

func yes(reason, message string) decision { return decision{metav1.ConditionTrue, reason, message} }

func no(reason, message string) decision { return decision{metav1.ConditionFalse, reason, message} }

// queriesValid names every expression that does not parse, with the position, and
// every one that the source refuses.
func queriesValid(report *round.Report) decision {
	var unparsed, refused []string
	for _, a := range all(report) {
		switch {
		case a.Problems != nil:
			unparsed = append(unparsed, field(a)+" "+promql.Strings(a.Problems))
		case query.ReasonOf(a.Err) == query.ReasonBadQuery && a.Err != nil:
			refused = append(refused, field(a)+" "+a.Err.Error())
		}
	}
	switch {
	case unparsed != nil:
		return no(v1alpha1.ReasonParseError, strings.Join(append(unparsed, refused...), "; "))
	case refused != nil:
		return no("Refused", strings.Join(refused, "; "))
	}
	return yes("Valid", "every expression parses and is answered")
}

func all(report *round.Report) []*round.QueryReport {
	var list []*round.QueryReport
	for i := range report.Scores {
		list = append(list, &report.Scores[i])
	}
	if report.Freshness != nil {
		list = append(list, report.Freshness)
	}
	return list
}

func field(a *round.QueryReport) string {
	if a.Name == "" {
		return "freshness.query"
	}
	return "scores[" + a.Name + "].query"
}

// dataFresh says whether every cluster has a value of this round in every score.
func dataFresh(done *outcome) decision {
	r := done.report.Result
	c := count(r)
	switch {
	case done.in.sourceErr != nil:
		reason := "SourceUnusable"
		if errors.Is(done.in.sourceErr, query.ErrNoSource) {
			reason = v1alpha1.ReasonNotFound
		}
		return no(reason, done.in.sourceErr.Error()+heldNote(c))
	case unanswered(done.report) != nil:
		a := unanswered(done.report)
		return no(string(query.ReasonOf(a.Err)), field(a)+" got no answer: "+a.Err.Error()+heldNote(c))
	case r.Refused:
		return no("TooFewFresh", fmt.Sprintf("only %d of %d known clusters answer fresh, below minHealthyPercent: the round is held", r.Fresh, r.Known))
	case c.Clusters == 0:
		return no("NoClusters", "clusterSelector picks no accepted ManagedCluster")
	case c.blind > 0:
		reason := v1alpha1.ReasonMissing
		if c.stale > 0 {
			reason = v1alpha1.ReasonStale
		}
		return no(reason, fmt.Sprintf("%d of %d clusters lack a fresh value: %s", c.blind+int(c.Held), c.Clusters, names(r, c)))
	case c.Held > 0:
		return no(v1alpha1.ReasonHeld, fmt.Sprintf("%d of %d clusters are held: %s", c.Held, c.Clusters, names(r, c)))
	}
	return yes("Fresh", fmt.Sprintf("all %d clusters have fresh values", c.Clusters))
}

// unanswered is the first question that failed for another reason than itself.
func unanswered(report *round.Report) *round.QueryReport {
	for _, a := range all(report) {
		if a.Err != nil && query.ReasonOf(a.Err) != query.ReasonBadQuery {
			return a
		}
	}
	return nil
}

func heldNote(c counts) string {
	if c.Held == 0 {
		return ""
	}
	return fmt.Sprintf("; %d of %d clusters are held", c.Held, c.Clusters)
}

// names lists at most five clusters that lack a fresh value.
func names(r *score.Result, c counts) string {
	var list []string
	for i, cluster := range r.Clusters {
		if worst(r.Row(i)) == score.Scored {
			continue
		}
		if len(list) == 5 {
			list = append(list, fmt.Sprintf("and %d more", c.blind+int(c.Held)-5))
			break
		}
		list = append(list, cluster)
	}
	return strings.Join(list, ", ")
}

// published says whether what was decided stands in the clusters' namespaces.
func published(done *outcome) decision {
	p := done.published
	switch {
	case p.Failed > 0:
		return no("WriteFailed", fmt.Sprintf("%d writes failed; %v", p.Failed, p.Err))
	case done.in.shadow:
		return no(v1alpha1.ReasonShadow, "mode is Shadow: scores are evaluated and not written")
	case len(p.Taken) > 0:
		return no(v1alpha1.ReasonNameTaken, fmt.Sprintf("AddOnPlacementScore %q belongs to somebody else in %s: set publish.name", done.in.name, some(p.Taken)))
	case len(p.NoNamespace) > 0:
		return no("NoNamespace", "clusters without a namespace: "+some(p.NoNamespace))
	}
	return yes("Published", fmt.Sprintf("AddOnPlacementScore %q stands in every cluster's namespace", done.in.name))
}

func some(list []string) string {
	if len(list) <= 5 {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:5], ", "), len(list)-5)
}

// ready joins the others; Shadow is what its owner wants.
func ready(done *outcome, valid, fresh, out decision) decision {
	for _, d := range []decision{valid, fresh, out} {
		if d.status != metav1.ConditionTrue && (d.reason != v1alpha1.ReasonShadow || !done.in.shadow) {
			return d
		}
	}
	if done.in.shadow {
		return yes(v1alpha1.ReasonShadow, "evaluates, and writes nothing")
	}
	return yes("Ready", "scores are fresh and published")
}

// counts sums up clusters by what became of them.
type counts struct {
	v1alpha1.RoundStatus
	blind, stale int
}

func count(r *score.Result) counts {
	c := counts{}
	c.Clusters = int32(len(r.Clusters))
	for i := range r.Clusters {
		row := r.Row(i)
		switch worst(row) {
		case score.Held:
			c.Held++
			continue
		case score.Worst:
			c.Worst++
		case score.Omitted:
			c.Omitted++
		case score.Fixed:
		default:
			c.Scored++
			continue
		}
		c.blind++
		for j := range row {
			if row[j].Outcome == score.Stale {
				c.stale++
				break
			}
		}
	}
	return c
}

// worst is what became of the least of a cluster's scores. A veto is a score.
func worst(row []score.Cell) score.State {
	state := score.Scored
	for i := range row {
		if s := row[i].State; s != score.Vetoed && rank[s] > rank[state] {
			state = s
		}
		if row[i].State == score.Vetoed && row[i].Outcome != score.OK && rank[score.Held] > rank[state] {
			state = score.Held
		}
	}
	return state
}

var rank = map[score.State]int{score.Scored: 0, score.Held: 1, score.Fixed: 2, score.Omitted: 3, score.Worst: 4}
