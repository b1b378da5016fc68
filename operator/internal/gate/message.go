package gate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// MaxMessage is how long a message may be, in bytes.
const MaxMessage = 1024

func message(f Facts, d Decision, fleet Fleet, terms terms, rules Rules) string {
	var text string
	switch d.Reason {
	case ReasonPlaceable:
		text = placeable(f, d, terms[forgiven])
	case ReasonNoDecisions:
		text = fmt.Sprintf("Placement %s has decided no cluster", rules.Placement)
	case ReasonFleetUnmet:
		text = "waits for condition " + strings.Join(terms[unmet], ", ")
	case ReasonNoRoom:
		text = noRoom(f, d.Verdicts) + others(d.Verdicts)
	default:
		text = "no cluster can take it" + others(d.Verdicts)
		if names := terms[unanswered]; len(names) > 0 {
			text = "waits for an answer to condition " + strings.Join(names, ", ")
		}
	}
	if fleet.Problem != "" && d.State != Ready {
		text += "; " + fleet.Problem
	}
	return Truncate(text)
}

// Truncate a message to MaxMessage bytes.
func Truncate(s string) string {
	if len(s) > MaxMessage {
		return strings.ToValidUTF8(s[:MaxMessage-3], "") + "..."
	}
	return s
}

// placeable says who can take it and what for, and what onStale forgave: conditions
// of the fleet and of that cluster.
func placeable(f Facts, d Decision, fleet []string) string {
	best := d.Verdicts[slices.IndexFunc(d.Verdicts, func(v Verdict) bool { return v.Cluster == d.Order[0] })]
	conditions := slices.Concat(fleet, best.Forgiven)
	text := best.Cluster + " can take it"
	switch {
	case best.Blind:
		text = best.Cluster + " may take it: nothing is known of any cluster"
	case best.Room.Known:
		text += fmt.Sprintf(": room for %s there", count(int64(best.Room.Value), "such pod"))
	case len(f.Unmeasured) == 0:
		text += ": it asks for no devices"
	}
	if best.QuotaUnknown {
		text += ", as far as its queue has quota (QuotaUnknown)"
	}
	if len(f.Unmeasured) > 0 && !best.Blind {
		text += ", as far as it has " + strings.Join(f.Unmeasured, " and ") + ", which the gate does not measure"
	}
	if len(conditions) > 0 {
		text += ", nobody answers condition " + strings.Join(conditions, ", ")
	}
	if len(conditions) > 0 || best.Blind {
		text += ", and onStale is Open"
	}
	return text
}

// noRoom says what is missing and who comes nearest.
func noRoom(f Facts, verdicts []Verdict) string {
	best := nearest(verdicts)
	p := f.PodSets[0]
	if best != nil {
		if i := slices.IndexFunc(f.PodSets, func(p PodSet) bool { return p.Name == best.Detail }); i >= 0 {
			p = f.PodSets[i]
		}
	}
	one := fmt.Sprintf("no cluster has %d free %s on one node", p.DevicesPerPod, describe(p))
	many := fmt.Sprintf("no cluster has room for %s of %d %s", count(p.Pods, "pod"), p.DevicesPerPod, describe(p))
	if best == nil {
		return one + ": none has any"
	}
	promised := ""
	if best.Promised > 0 {
		promised = fmt.Sprintf(" (%s there promised to workloads on their way)", count(best.Promised, "device"))
	}
	switch {
	case best.Quota.Known:
		return fmt.Sprintf("%s: best is %s, whose queue has quota for %.0f%s", many, best.Cluster, best.Quota.Value, promised)
	case best.Fit.Value >= 1 || p.Name != f.PodSets[0].Name: // a node has that many, or had it without the larger pods
		return fmt.Sprintf("%s: best is %s with room for %.0f%s", many, best.Cluster, best.Room.Value, promised)
	case best.Largest.Known && best.Largest.Value < float64(p.DevicesPerPod):
		return fmt.Sprintf("%s: best is %s with %.0f%s", one, best.Cluster, best.Largest.Value, promised)
	}
	return fmt.Sprintf("%s: best is %s with %.0f in all%s", one, best.Cluster, max(best.Net, 0), promised)
}

// nearest of those without room: by what is left, then by what was there
// before the ledger, then one that only lacks quota, then by the best node, then
// by all that is free.
func nearest(verdicts []Verdict) *Verdict {
	var best *Verdict
	for i := range verdicts {
		v := &verdicts[i]
		if v.Out != OutNoRoom {
			continue
		}
		if best == nil || cmp.Or(cmp.Compare(v.Room.Value, best.Room.Value), cmp.Compare(v.Fit.Value, best.Fit.Value), known(v.Quota)-known(best.Quota),
			cmp.Compare(v.Largest.Value, best.Largest.Value), cmp.Compare(v.Net, best.Net)) > 0 {
			best = v
		}
	}
	return best
}

func known(n Number) int {
	if n.Known {
		return 1
	}
	return 0
}

// others names clusters that something else than room ruled out.
func others(verdicts []Verdict) string {
	const most = 5
	var parts []string
	for _, v := range verdicts {
		if v.Out != OutNone && v.Out != OutNoRoom && v.Out != OutNoModel {
			parts = append(parts, v.Cluster+" "+v.lasting())
		}
	}
	if len(parts) == 0 {
		return ""
	}
	if len(parts) > most {
		parts = append(parts[:most], fmt.Sprintf("%d more", len(parts)-most))
	}
	return "; " + strings.Join(parts, ", ")
}

// lasting is Why without what changes by time alone: each workload that waits
// would write it anew once a round.
func (v Verdict) lasting() string {
	if v.Out == OutStale {
		return "has samples older than " + v.Detail
	}
	return v.Why()
}

// Why the verdict, to follow the cluster's name in a sentence.
func (v Verdict) Why() string {
	switch v.Out {
	case OutNone:
	case OutUnusable:
		return v.Detail
	case OutScore:
		return "is below the minimum of " + v.Detail
	case OutNoScore:
		return "has no valid score " + v.Detail
	case OutCondition:
		return "does not meet condition " + v.Detail
	case OutUnanswered:
		return "has no answer to condition " + v.Detail
	case OutQuotaUnanswered:
		return "has no answer about its queue's quota"
	case OutStale:
		return fmt.Sprintf("has samples %s old", time.Duration(v.Age)*time.Second)
	case OutUnknown:
		return "reports no samples"
	case OutNoModel:
		return "has no free " + v.Detail
	case OutNoQuota:
		return "has no quota for " + v.Detail
	case OutNoRoom:
		if v.Quota.Known {
			return fmt.Sprintf("has quota for %s, with %s promised", count(int64(v.Quota.Value), "such pod"), count(v.Promised, "device"))
		}
		if v.Promised > 0 {
			return fmt.Sprintf("has room for %s, with %s promised", count(int64(v.Room.Value), "such pod"), count(v.Promised, "device"))
		}
		return fmt.Sprintf("has room for %s", count(int64(v.Room.Value), "such pod"))
	}
	text := "can take it"
	if v.QuotaUnknown {
		text += ", as far as its queue has quota"
	}
	if len(v.Forgiven) > 0 {
		text += ", though nobody answers condition " + strings.Join(v.Forgiven, ", ")
	}
	return text
}

func describe(p PodSet) string {
	if p.Model != "" {
		return p.Model
	}
	return p.Resource
}

func count(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
