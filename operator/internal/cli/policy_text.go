package cli

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

func (r *policyReport) head(w io.Writer, a *app) {
	line(w, "Policy:", r.Policy)
	for _, c := range r.Conditions {
		line(w, c.Type+":", strings.TrimSuffix(fmt.Sprintf("%s %s, for %s: %s", a.paint.state(c.Status), c.Reason, since(a.now(), c.Since), c.Message), ": "))
	}
	if !r.Time.IsZero() {
		text := since(a.now(), r.Time) + " ago"
		if r.From == fromOperator {
			text += fmt.Sprintf(", %d of %d clusters fresh", r.Fresh, r.Known)
		}
		if r.Refused {
			text += ", refused: too few answered, scores are held"
		}
		line(w, "Last round:", text)
	}
	for _, q := range r.Queries {
		line(w, "Asked:", cmp.Or(q.Score, "freshness")+": "+strings.Join(strings.Fields(q.Query), " "))
		line(w, "", fmt.Sprintf("%d series in %.0f ms", q.Series, q.DurationMS))
		for _, warning := range q.Warnings {
			line(w, "", a.paint.wait("warning: "+warning))
		}
		if q.Error != "" {
			line(w, "", a.paint.bad("error: "+q.Error))
		}
	}
	for _, missing := range r.NotShown {
		line(w, "Not shown:", missing)
	}
}

func writeScores(w io.Writer, clusters []clusterReport, byPolicy bool, now time.Time) {
	if len(clusters) == 0 {
		return
	}
	line(w)
	first := "CLUSTER"
	if byPolicy {
		first = "POLICY"
	}
	line(w, first, "SCORE", "VALUE", "POINTS", "RAW", "SAMPLE", "STATE")
	for _, c := range clusters {
		name := c.Cluster
		if byPolicy {
			name = c.Policy
		}
		for _, s := range c.Scores {
			line(w, name, s.Name, value(s.Value), float(s.Points), float(s.Raw), sampleAge(s.SampleTime, now), stateOf(s, now))
		}
	}
}

func stateOf(s scoreReport, now time.Time) string {
	text := s.State
	if s.Outcome != "" && s.Outcome != s.State {
		text += " (" + s.Outcome + ")"
	}
	if s.HeldUntil != nil && s.HeldUntil.After(now) {
		text += ", for another " + short(s.HeldUntil.Sub(now))
	}
	if until := s.ValidUntil; until != nil {
		if until.Before(now) {
			return text + ", expired " + since(now, *until) + " ago"
		}
		text += ", valid " + short(until.Sub(now))
	}
	return text
}

func value(v *int32) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprint(*v)
}

func float(v *float64) string {
	if v == nil {
		return "?"
	}
	return fmt.Sprintf("%g", math.Round(*v*1000)/1000)
}

func sampleAge(t *time.Time, now time.Time) string {
	if t == nil {
		return "?"
	}
	return since(now, *t) + " old"
}
