package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/ledger"
	"plimsoll.dev/plimsoll/operator/internal/shape"
)

// writer of the report as text.
func (r *workloadReport) writer(a *app, wide bool) func(io.Writer) {
	return func(w io.Writer) {
		r.head(w, a)
		if len(r.Clusters) == 0 {
			return
		}
		line(w)
		columns := []string{"CLUSTER", "STANDING", "ROOM", "SCORES", "WHY"}
		if wide {
			columns = []string{"CLUSTER", "STANDING", "ROOM", "FIT", "PROMISED", "CREDITED", "NET", "SAMPLES", "CONDITIONS", "SCORES", "WHY"}
		}
		line(w, columns...)
		for _, c := range r.ordered() {
			cells := []string{c.Cluster, r.standing(c), number(c.Room)}
			if wide {
				cells = append(cells, number(c.Fit), r.known(c, fmt.Sprint(c.Promised)), r.known(c, fmt.Sprint(c.Credited)), r.known(c, fmt.Sprintf("%g", c.Net)),
					age(c.Age), r.conditions(c, a.now()))
			}
			line(w, append(cells, scoresText(c.Scores, a.now(), wide), c.Why)...)
		}
		r.ledger(w, a.now())
	}
}

// mostPromised entries of the ledger are shown; JSON has all.
const mostPromised = 10

// ledger of what is promised on the candidates, the oldest first.
func (r *workloadReport) ledger(w io.Writer, now time.Time) {
	var all []ledger.Entry
	for _, c := range r.Clusters {
		all = append(all, c.Ledger...)
	}
	if len(all) == 0 {
		return
	}
	slices.SortFunc(all, func(a, b ledger.Entry) int {
		return cmp.Or(a.DebitedAt.Compare(b.DebitedAt), strings.Compare(a.Workload, b.Workload), strings.Compare(a.Cluster, b.Cluster))
	})
	line(w)
	line(w, "PROMISED TO", "ON", "DEVICES", "SINCE", "ADMITTED")
	for _, e := range all[:min(len(all), mostPromised)] {
		admitted := "not yet"
		switch {
		case !e.EndedAt.IsZero():
			admitted = "ended " + since(now, e.EndedAt) + " ago"
		case !e.AdmittedAt.IsZero():
			admitted = since(now, e.AdmittedAt) + " ago"
		}
		line(w, e.Workload, e.Cluster, fmt.Sprint(e.Devices()), since(now, e.DebitedAt), admitted)
	}
	if more := len(all) - mostPromised; more > 0 {
		line(w, fmt.Sprintf("and %d more (-o json shows all)", more))
	}
}

func (r *workloadReport) head(w io.Writer, a *app) {
	row := func(name, value string) {
		if value != "" {
			line(w, name+":", value)
		}
	}
	row("Workload", r.Workload)
	row("Owner", r.Owner)
	row("Queue", r.Queue)
	row("Gate", r.Gate)
	row("Asks for", asks(r.Facts))
	row("Cluster", a.paint.good(r.Cluster))
	if strings.HasPrefix(r.WaitsFor, "nothing") {
		row("Waits for", a.paint.good(r.WaitsFor))
	} else {
		row("Waits for", a.paint.wait(r.WaitsFor))
	}
	for _, c := range r.Checks {
		text := c.Name + " " + a.paint.state(c.State)
		if c.Message != "" {
			text += ": " + c.Message
		}
		row("Check", text)
	}
	for _, c := range r.Conditions {
		row("Condition", conditionText(c, a.now()))
	}
	if d := r.Dispatch; d.Attempt > 0 {
		text := fmt.Sprintf("attempt %d, %s ago, to %s", d.Attempt, since(a.now(), d.NominatedAt), strings.Join(d.Nominated, ", "))
		if !d.WidenedAt.IsZero() {
			text += fmt.Sprintf(", widened %s ago", since(a.now(), d.WidenedAt))
		}
		if d.Reason != "" {
			text += ": " + d.Reason
		}
		row("Dispatched", text)
	}
	row("Problem", a.paint.bad(r.Problem))
	for _, missing := range r.NotShown {
		row("Not shown", missing)
	}
}

// asks tells the shape: 2 pods of 8 NVIDIA-H100-80GB-HBM3, claim nic (not measured).
func asks(f shape.Facts) string {
	var sets []string
	for _, p := range f.PodSets {
		what, noun := p.Model, "pods"
		if what == "" {
			what = p.Resource
		}
		if p.Pods == 1 {
			noun = "pod"
		}
		sets = append(sets, fmt.Sprintf("%d %s of %d %s", p.Pods, noun, p.DevicesPerPod, what))
	}
	for _, name := range f.Unmeasured {
		sets = append(sets, name+" (not measured)")
	}
	return strings.Join(sets, ", ")
}

// ordered as the operator would nominate, then by name.
func (r *workloadReport) ordered() []gate.ClusterExplanation {
	rank := func(c gate.ClusterExplanation) int {
		if i := slices.Index(r.Decision.Order, c.Cluster); i >= 0 {
			return i
		}
		return len(r.Decision.Order)
	}
	return slices.SortedStableFunc(slices.Values(r.Clusters), func(a, b gate.ClusterExplanation) int {
		if n := rank(a) - rank(b); n != 0 {
			return n
		}
		return strings.Compare(a.Cluster, b.Cluster)
	})
}

func (r *workloadReport) standing(c gate.ClusterExplanation) string {
	switch {
	case c.Cluster == r.Cluster:
		return "has it"
	case slices.Contains(r.Nominated, c.Cluster):
		return "nominated"
	case c.Rejection != gate.RejectNone:
		return "ruled out"
	case slices.Contains(r.Dispatch.EverNominated, c.Cluster):
		return "nominated before"
	case len(r.Decision.Order) > 0 && r.Decision.Order[0] == c.Cluster:
		return "best"
	}
	return "candidate"
}

// known leaves out numbers that only the operator could have told.
func (r *workloadReport) known(c gate.ClusterExplanation, text string) string {
	if !c.Fit.Known {
		return "?"
	}
	return text
}

func number(n gate.Number) string {
	if !n.Known {
		return "?"
	}
	return fmt.Sprintf("%g", n.Value)
}

func age(seconds float64) string {
	if seconds < 0 {
		return "?"
	}
	return short(time.Duration(seconds*float64(time.Second))) + " old"
}

// conditions are what the cluster answered to the gate's.
func (r *workloadReport) conditions(c gate.ClusterExplanation, now time.Time) string {
	if r.From == fromObjects {
		return "?"
	}
	var out []string
	for _, condition := range c.Conditions {
		out = append(out, conditionText(condition, now))
	}
	return cmp.Or(strings.Join(out, " "), "-")
}

// conditionText is the answer to a condition with its age; 0 and ? don't satisfy it,
// nor does one that is too old or that nobody gave.
func conditionText(c gate.ConditionResult, now time.Time) string {
	text := c.Name + "=" + number(c.Number)
	switch {
	case c.EvaluatedAt.IsZero():
		return text + " (not answered)"
	case c.Partial:
		return text + " (answered in part)"
	}
	return text + " (" + since(now, c.EvaluatedAt) + " old)"
}

// scoresText is policy/score=value of each with its age, marked where it has expired
// or its data are not fresh; wide also says how long the others are valid.
func scoresText(all map[string]gate.Score, now time.Time, wide bool) string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		s := all[key]
		var notes []string
		if s.State != "" {
			notes = append(notes, s.State)
		}
		if !s.Written.IsZero() {
			notes = append(notes, since(now, s.Written)+" old")
		}
		switch {
		case s.ValidUntil.IsZero():
		case s.ValidUntil.Before(now):
			notes = append(notes, fmt.Sprintf("expired %s ago", since(now, s.ValidUntil)))
		case wide:
			notes = append(notes, "valid "+short(s.ValidUntil.Sub(now)))
		}
		text := fmt.Sprintf("%s=%d", key, s.Value)
		if len(notes) > 0 {
			text += " (" + strings.Join(notes, ", ") + ")"
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}
