package gate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// MaxMessage is the maximum length of a message in bytes.
const MaxMessage = 1024

// Truncate returns a message without characters that are not printable, and shortens it to MaxMessage
// bytes. Messages have texts of users and of other clusters, and administrators read them on terminals.
// White space becomes a space.
func Truncate(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsPrint(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return -1
	}, s)
	if len(s) > MaxMessage {
		return strings.ToValidUTF8(s[:MaxMessage-3], "") + "..."
	}
	return s
}

func decisionMessage(f shape.Facts, d Decision, fleet Fleet, requirements requirementNames, rules Rules) string {
	var text string
	switch d.Reason {
	case ReasonPlaceable:
		text = placeableMessage(f, d, requirements[requirementIgnored], fleet.SkippedRequirements)
	case ReasonNoDecisions:
		text = fmt.Sprintf("Placement %s has decided no cluster", rules.Placement)
	case ReasonFleetRequirementUnmet:
		text = "fleet " + notMet(requirements[requirementUnmet])
	case ReasonNoRoom:
		text = noRoomMessage(f, d.Verdicts) + excludedClusters(d.Verdicts)
	case ReasonJoining:
		text = d.Join + " has room and joins the MultiKueueConfig as soon as that has a free place; no member can take the workload"
	default:
		text = "no cluster is eligible" + excludedClusters(d.Verdicts)
		if failing := requirements[requirementFailing]; len(failing) > 0 {
			text = "fleet " + noResult(failing)
		}
	}
	if fleet.Problem != "" && d.State != Ready {
		text += "; " + fleet.Problem
	}
	return Truncate(text)
}

// MessageInLine is the message of a Pending decision for a workload that waits behind equal ones: it stays true while
// the reason does. Reasons that state nothing measured keep their message.
func (d Decision) MessageInLine(f shape.Facts) string {
	var text string
	switch d.Reason {
	case ReasonNoRoom:
		text = noRoomForAll(f.PodSets[0])
	case ReasonHeld:
		text = "clusters with room are held for other workloads"
	case ReasonDoubted:
		text = "clusters with room do not start what they admit"
	case ReasonRuledOut, ReasonStale, ReasonNoMetrics:
		text = "no cluster is eligible"
	case ReasonFleetRequirementUnmet:
		text = "a requirement of the fleet is not met"
	default:
		return d.Message
	}
	return Truncate(text + "; an equal workload is decided first, and its check says more")
}

// noRoomForAll states which pods have no room.
func noRoomForAll(p shape.PodSet) string {
	return fmt.Sprintf("no cluster has room for %s of %d %s", quantity(p.Pods, "pod"), p.DevicesPerPod, deviceName(p))
}

func notMet(requirements []string) string {
	if len(requirements) == 1 {
		return "requirement " + requirements[0] + " is not met"
	}
	return "requirements " + strings.Join(requirements, ", ") + " are not met"
}

// skipped states that requirements do not apply.
func skipped(requirements []string) string {
	if len(requirements) == 1 {
		return "requirement " + requirements[0] + " does not apply: the job has no profile for it yet"
	}
	return "requirements " + strings.Join(requirements, ", ") + " do not apply: the job has no profile for them yet"
}

// placeableMessage states why the chosen cluster can take the workload, and which missing
// data and requirements the decision ignores.
func placeableMessage(f shape.Facts, d Decision, ignoredFleetRequirements, skippedRequirements []string) string {
	chosen := d.Verdicts[slices.IndexFunc(d.Verdicts, func(v Verdict) bool { return v.Cluster == d.Order[0] })]
	var text string
	switch {
	case chosen.WithoutMetrics:
		text = chosen.Cluster + " is chosen without metrics: no cluster has usable metrics and onStale is Open"
	case chosen.Room.Known:
		text = fmt.Sprintf("%s has room for %s", chosen.Cluster, quantity(int64(chosen.Room.Value), "such pod"))
	case len(f.Unmeasured) == 0:
		text = chosen.Cluster + " is eligible: the workload requests no devices"
	default:
		text = chosen.Cluster + " is eligible"
	}
	switch {
	case chosen.Reclaims:
		text += " after preemption of lower priorities or of borrowers in the cohort"
	case chosen.Preempts:
		text += " after preemption of lower priorities"
	}
	if chosen.PartialPods > 0 {
		i := slices.IndexFunc(f.PodSets, func(p shape.PodSet) bool { return p.MinPods > 0 })
		text += fmt.Sprintf("; its queue has quota for %d of %d pods", chosen.PartialPods, f.PodSets[i].Pods)
	}
	if chosen.QuotaUnknown {
		text += "; the quota of its queue is unknown (QuotaUnknown)"
	}
	if len(f.Unmeasured) > 0 && !chosen.WithoutMetrics {
		text += "; the gate does not measure " + strings.Join(f.Unmeasured, ", ")
	}
	if len(chosen.Unmeasured) > 0 && !chosen.WithoutMetrics {
		text += "; " + chosen.Cluster + " " + chosen.unmeasuredNote()
	}
	if ignored := slices.Concat(ignoredFleetRequirements, chosen.IgnoredRequirements); len(ignored) > 0 {
		text += "; " + noResult(ignored) + " and onStale is Open"
	}
	if len(skippedRequirements) > 0 {
		text += "; " + skipped(skippedRequirements)
	}
	if len(chosen.UnknownPrerequisites) > 0 {
		text += "; " + unknownPrerequisites(chosen.UnknownPrerequisites)
	}
	return text
}

// noRoomMessage states what is missing and which cluster comes nearest.
func noRoomMessage(f shape.Facts, verdicts []Verdict) string {
	best := nearest(verdicts)
	p := f.PodSets[0]
	if best != nil {
		p = f.PodSets[slices.IndexFunc(f.PodSets, func(p shape.PodSet) bool { return p.Name == best.Detail })]
	}
	forOnePod := fmt.Sprintf("no cluster has %d free %s on one node", p.DevicesPerPod, deviceName(p))
	forAllPods := noRoomForAll(p)
	if best == nil {
		return forOnePod + ": none has any"
	}
	promised := ""
	if best.Promised > 0 {
		promised = fmt.Sprintf(" (%s there promised to other workloads)", quantity(best.Promised, "device"))
	}
	switch {
	case best.Quota.Known:
		return fmt.Sprintf("%s: best is %s, whose queue has %s for %.0f%s%s", forAllPods, best.Cluster, best.quotaName(), best.Quota.Value, best.quotaNote(), promised)
	case p.Share != nil:
		return fmt.Sprintf("no cluster has room for %s of %d %s with %s: best is %s with room for %.0f%s",
			quantity(p.Pods, "pod"), p.DevicesPerPod, deviceName(p), p.Share, best.Cluster, best.Room.Value, promised)
	case best.byDevicesNote() != "":
		return fmt.Sprintf("%s%s: best is %s with room for %.0f%s%s", forAllPods, withNeeds(p), best.Cluster, best.Room.Value, best.byDevicesNote(), promised)
	case best.Fit.Value >= 1 || p.Name != f.PodSets[0].Name: // some node is large enough, at least without the larger pods
		return fmt.Sprintf("%s: best is %s with room for %.0f%s", forAllPods, best.Cluster, best.Room.Value, promised)
	case best.Largest.Known && best.Largest.Value < float64(p.DevicesPerPod):
		return fmt.Sprintf("%s: best is %s with %.0f%s", forOnePod, best.Cluster, best.Largest.Value, promised)
	case best.Largest.Known: // the gate's own fit query requires more than free devices, such as NVLink
		return fmt.Sprintf("%s by the gate's query fit: best is %s with %.0f free on one node%s", forAllPods, best.Cluster, best.Largest.Value, promised)
	}
	return fmt.Sprintf("%s: best is %s with %.0f in total%s", forOnePod, best.Cluster, max(best.Net, 0), promised)
}

// withNeeds states what a pod needs of its node beside devices:  with 8 CPU and 64Gi.
func withNeeds(p shape.PodSet) string {
	if needs := p.BesideDevices(); needs != "" {
		return " with " + needs
	}
	return ""
}

// nearest returns the full cluster that comes nearest to having room, or nil if none is
// full. The order is: room, fit before the ledger, a lack of quota only, best node, all
// free devices.
func nearest(verdicts []Verdict) *Verdict {
	var best *Verdict
	for i := range verdicts {
		v := &verdicts[i]
		if v.Rejection != RejectNoRoom {
			continue
		}
		if best == nil || cmp.Or(
			cmp.Compare(v.Room.Value, best.Room.Value),
			cmp.Compare(v.Fit.Value, best.Fit.Value),
			cmp.Compare(knownRank(v.Quota), knownRank(best.Quota)),
			cmp.Compare(v.Largest.Value, best.Largest.Value),
			cmp.Compare(v.Net, best.Net),
		) > 0 {
			best = v
		}
	}
	return best
}

// excludedClusters lists the first clusters that something other than room excludes.
func excludedClusters(verdicts []Verdict) string {
	const most = 5
	var parts []string
	for _, v := range verdicts {
		if v.Rejection != RejectNone && v.Rejection != RejectNoRoom && v.Rejection != RejectNoModel {
			parts = append(parts, v.Cluster+" "+v.stableWhy())
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

func quantity(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
