package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/gate"
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
			columns = []string{"CLUSTER", "STANDING", "ROOM", "FIT", "PROMISED", "NET", "SAMPLES", "SCORES", "WHY"}
		}
		line(w, columns...)
		for _, c := range r.ordered() {
			cells := []string{c.Cluster, r.standing(c), number(c.Room)}
			if wide {
				cells = append(cells, number(c.Fit), r.known(c, fmt.Sprint(c.Promised)), r.known(c, fmt.Sprintf("%g", c.Net)), age(c.Age))
			}
			line(w, append(cells, scoresText(c.Scores, a.now(), wide), c.Why)...)
		}
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

// asks tells the shape: 2 pods of 8 NVIDIA-H100-80GB-HBM3.
func asks(f gate.Facts) string {
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
	case c.Out != gate.OutNone:
		return "ruled out"
	case slices.Contains(r.Dispatch.Ever, c.Cluster):
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

// scoresText is policy/score=value of each, expired ones marked; wide also says how
// long the others are valid.
func scoresText(all map[string]gate.Score, now time.Time, wide bool) string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		text := fmt.Sprintf("%s=%d", key, all[key].Value)
		switch until := all[key].ValidUntil; {
		case until.IsZero():
		case until.Before(now):
			text += fmt.Sprintf(" (expired %s ago)", since(now, until))
		case wide:
			text += fmt.Sprintf(" (valid %s)", short(until.Sub(now)))
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}
