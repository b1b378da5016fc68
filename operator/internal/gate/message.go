package gate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/shape"
)

// MaxMessage is how long a message may be, in bytes.
const MaxMessage = 1024

func decisionMessage(f shape.Facts, d Decision, fleet Fleet, terms conditionNames, rules Rules) string {
	var text string
	switch d.Reason {
	case ReasonPlaceable:
		text = placeableMessage(f, d, terms[conditionIgnored])
	case ReasonNoDecisions:
		text = fmt.Sprintf("Placement %s has decided no cluster", rules.Placement)
	case ReasonFleetConditionUnmet:
		text = "waits for condition " + strings.Join(terms[conditionUnmet], ", ")
	case ReasonNoRoom:
		text = noRoomMessage(f, d.Verdicts) + excludedClusters(d.Verdicts)
	default:
		text = "no cluster can take it" + excludedClusters(d.Verdicts)
		if names := terms[conditionFailing]; len(names) > 0 {
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
func placeableMessage(f shape.Facts, d Decision, fleet []string) string {
	best := d.Verdicts[slices.IndexFunc(d.Verdicts, func(v Verdict) bool { return v.Cluster == d.Order[0] })]
	conditions := slices.Concat(fleet, best.IgnoredConditions)
	text := best.Cluster + " can take it"
	switch {
	case best.WithoutMetrics:
		text = best.Cluster + " may take it: nothing is known of any cluster"
	case best.Room.Known:
		text += fmt.Sprintf(": room for %s there", quantity(int64(best.Room.Value), "such pod"))
	case len(f.Unmeasured) == 0:
		text += ": it asks for no devices"
	}
	if best.QuotaUnknown {
		text += ", as far as its queue has quota (QuotaUnknown)"
	}
	if len(f.Unmeasured) > 0 && !best.WithoutMetrics {
		text += ", as far as it has " + strings.Join(f.Unmeasured, " and ") + ", which the gate does not measure"
	}
	if len(conditions) > 0 {
		text += ", nobody answers condition " + strings.Join(conditions, ", ")
	}
	if len(conditions) > 0 || best.WithoutMetrics {
		text += ", and onStale is Open"
	}
	return text
}

// noRoom says what is missing and who comes nearest.
func noRoomMessage(f shape.Facts, verdicts []Verdict) string {
	best := nearest(verdicts)
	p := f.PodSets[0]
	if best != nil {
		if i := slices.IndexFunc(f.PodSets, func(p shape.PodSet) bool { return p.Name == best.Detail }); i >= 0 {
			p = f.PodSets[i]
		}
	}
	one := fmt.Sprintf("no cluster has %d free %s on one node", p.DevicesPerPod, describe(p))
	many := fmt.Sprintf("no cluster has room for %s of %d %s", quantity(p.Pods, "pod"), p.DevicesPerPod, describe(p))
	if best == nil {
		return one + ": none has any"
	}
	promised := ""
	if best.Promised > 0 {
		promised = fmt.Sprintf(" (%s there promised to workloads on their way)", quantity(best.Promised, "device"))
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
		if v.Rejection != RejectNoRoom {
			continue
		}
		if best == nil || cmp.Or(cmp.Compare(v.Room.Value, best.Room.Value), cmp.Compare(v.Fit.Value, best.Fit.Value), knownRank(v.Quota)-knownRank(best.Quota),
			cmp.Compare(v.Largest.Value, best.Largest.Value), cmp.Compare(v.Net, best.Net)) > 0 {
			best = v
		}
	}
	return best
}

func knownRank(n Number) int {
	if n.Known {
		return 1
	}
	return 0
}

// others names clusters that something else than room ruled out.
func excludedClusters(verdicts []Verdict) string {
	const most = 5
	var parts []string
	for _, v := range verdicts {
		if v.Rejection != RejectNone && v.Rejection != RejectNoRoom && v.Rejection != RejectNoModel {
			parts = append(parts, v.Cluster+" "+v.whyWithoutAge())
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
func (v Verdict) whyWithoutAge() string {
	if v.Rejection == RejectStale {
		return "has samples older than " + v.Detail
	}
	return v.Why()
}

// Why the verdict, to follow the cluster's name in a sentence.
func (v Verdict) Why() string {
	switch v.Rejection {
	case RejectNone:
	case RejectUnusable:
		return v.Detail
	case RejectScore:
		return "is below the minimum of " + v.Detail
	case RejectNoScore:
		return "has no valid score " + v.Detail
	case RejectCondition:
		return "does not meet condition " + v.Detail
	case RejectConditionFailing:
		return "has no answer to condition " + v.Detail
	case RejectQuotaFailing:
		return "has no answer about its queue's quota"
	case RejectStale:
		return fmt.Sprintf("has samples %s old", time.Duration(v.Age)*time.Second)
	case RejectUnknown:
		return "reports no samples"
	case RejectNoModel:
		return "has no free " + v.Detail
	case RejectNoQueue:
		return "has no quota for " + v.Detail
	case RejectNoRoom:
		if v.Quota.Known {
			return fmt.Sprintf("has quota for %s, with %s promised", quantity(int64(v.Quota.Value), "such pod"), quantity(v.Promised, "device"))
		}
		if v.Promised > 0 {
			return fmt.Sprintf("has room for %s, with %s promised", quantity(int64(v.Room.Value), "such pod"), quantity(v.Promised, "device"))
		}
		return fmt.Sprintf("has room for %s", quantity(int64(v.Room.Value), "such pod"))
	}
	text := "can take it"
	if v.QuotaUnknown {
		text += ", as far as its queue has quota"
	}
	if len(v.IgnoredConditions) > 0 {
		text += ", though nobody answers condition " + strings.Join(v.IgnoredConditions, ", ")
	}
	return text
}

func describe(p shape.PodSet) string {
	if p.Model != "" {
		return p.Model
	}
	return p.Resource
}

func quantity(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
