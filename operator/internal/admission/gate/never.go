package gate

import (
	"fmt"
	"math"
	"slices"

	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// Prospect is whether a cluster, or any of the gate's, could ever start the workload as it is now: with all nodes
// empty, and nothing of the queue's quota reserved.
type Prospect string

// Prospects.
const (
	// ProspectUnknown applies if metrics do not say.
	ProspectUnknown Prospect = ""
	// ProspectPossible applies if an empty cluster could start the workload.
	ProspectPossible Prospect = "Possible"
	// ProspectNever applies if fresh and complete metrics prove that no cluster could.
	ProspectNever Prospect = "Never"
)

// fixedExclusions are those that neither time nor room ends. The workload itself states them.
var fixedExclusions = []Rejection{RejectNotPermitted, RejectPins}

// prospect is the best one of all clusters.
func (e *evaluation) prospect(candidates []Candidate, fleet Fleet) Prospect {
	isProven := len(candidates) > 0 && fleet.Problem == "" && !fleet.Incomplete
	for i := range candidates {
		p := e.prospectOn(&candidates[i])
		if p == ProspectPossible {
			return p
		}
		isProven = isProven && p == ProspectNever
	}
	if isProven {
		return ProspectNever
	}
	return ProspectUnknown
}

func (e *evaluation) prospectOn(c *Candidate) Prospect {
	if isExcludedForever(c) {
		return ProspectNever
	}
	if e.ignoreMissing || len(e.facts.PodSets) == 0 || len(c.Shapes) != len(e.facts.PodSets) || hasFreshSamples(c, e) != nil {
		return ProspectUnknown
	}
	isProven := true
	for i := range e.facts.PodSets {
		p := e.prospectOfSet(c, i)
		if p == ProspectNever {
			return p
		}
		isProven = isProven && p == ProspectPossible
	}
	if isProven {
		return ProspectPossible
	}
	return ProspectUnknown
}

// prospectOfSet is the prospect of the i-th pod set on a cluster, which the pod sets before it may worsen. They take at
// least this much room, wherever their pods start.
func (e *evaluation) prospectOfSet(c *Candidate, i int) Prospect {
	p, metrics, before := e.facts.PodSets[i], &c.Shapes[i], e.facts.PodSets[:i]
	pods := float64(requiredPods(p))
	others := float64(ledger.SharedDevices(before, p))
	if e.facts.Remote && (metrics.QueueMissing && c.LocalQueues != nil || metrics.QuotaLimit.Known && metrics.QuotaLimit.Value < others+pods*float64(p.DevicesPerPod)) {
		return ProspectNever
	}
	switch {
	case !e.rules.EmptyFitKnown || p.Share != nil || metrics.EmptyFitUncertain || metrics.QueueMissing:
		return ProspectUnknown
	case metrics.EmptyFit.Known && math.Floor(metrics.EmptyFit.Value)-math.Floor(others/float64(p.DevicesPerPod)) >= pods:
		return ProspectPossible
	case !metrics.EmptyFit.Known && (metrics.Fit.Known || metrics.Capacity.Value > 0):
		return ProspectUnknown
	}
	return ProspectNever
}

// requiredPods is the number of pods without which the pod set does not start.
func requiredPods(p shape.PodSet) int64 {
	if p.MinPods > 0 {
		return p.MinPods
	}
	return p.Pods
}

// neverMessage states what every cluster lacks, and which comes nearest.
func (e *evaluation) neverMessage(candidates []Candidate, verdicts []Verdict) string {
	return "can never start here: " + e.lacking(candidates) + excludedClusters(verdicts)
}

// lacking states what the nearest cluster lacks: the one with the most pods of the first pod set that it could not hold.
func (e *evaluation) lacking(candidates []Candidate) string {
	var best *Candidate
	set := 0
	for i := range candidates {
		c := &candidates[i]
		if isExcludedForever(c) {
			continue
		}
		first := 0
		for e.prospectOfSet(c, first) != ProspectNever {
			first++
		}
		if best == nil || first > set || first == set && c.Shapes[first].EmptyFit.compare(best.Shapes[set].EmptyFit) > 0 {
			best, set = c, first
		}
	}
	if best == nil {
		return "the job permits no cluster of the gate"
	}
	p, m := e.facts.PodSets[set], best.Shapes[set]
	needs, taints := withNeeds(p), ""
	if keys := m.untolerated(); keys != "" {
		taints = " (the pods do not tolerate taint " + keys + ")"
	}
	switch onePod := fmt.Sprintf("a pod of %d %s%s", p.DevicesPerPod, deviceName(p), needs); {
	case m.QueueMissing:
		return "no cluster has quota for " + p.Resource
	case !m.EmptyFit.Known:
		return "no cluster has nodes with " + deviceName(p)
	case m.EmptyFit.Value < 1 && m.LargestNode.Known && m.LargestNode.Value < float64(p.DevicesPerPod):
		return fmt.Sprintf("no node holds %s: the largest, on %s, has %.0f", onePod, best.Name, m.LargestNode.Value)
	case m.EmptyFit.Value < 1:
		return fmt.Sprintf("no node, even if empty, holds %s%s", onePod, taints)
	case math.Floor(m.EmptyFit.Value) < float64(requiredPods(p)):
		return fmt.Sprintf("no cluster, even if empty, holds %d pods of %d %s%s: best is %s with room for %.0f%s", requiredPods(p), p.DevicesPerPod, deviceName(p), needs, best.Name, math.Floor(m.EmptyFit.Value), taints)
	case m.QuotaLimit.Known && m.QuotaLimit.Value < float64(requiredPods(p)*p.DevicesPerPod):
		return fmt.Sprintf("the queue on %s can have quota for at most %.0f of %d devices", best.Name, m.QuotaLimit.Value, requiredPods(p)*p.DevicesPerPod)
	}
	return fmt.Sprintf("no cluster, even if empty, holds all pods of the job: best is %s", best.Name)
}

// isExcludedForever reports whether the workload itself excludes a cluster.
func isExcludedForever(c *Candidate) bool {
	return slices.ContainsFunc(c.Excluded, func(b BrokenRule) bool { return slices.Contains(fixedExclusions, b.Rejection) })
}
