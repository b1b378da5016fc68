package workload

import (
	"fmt"
	"math/bits"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/waitqueue"
)

// limits are the inputs of the gate's decision that differ between workloads and that neither the
// rank nor the queries show. A new input of candidatesWith or rules belongs here, unless the facts
// or the rank determine it.
func (o *observation) limits() waitqueue.Limits {
	l := waitqueue.Limits{MultiKueueConfig: o.workers.config, JobCluster: o.component.cluster, HasPlaceInJob: o.hasPlaceInJob(), RunsFor: roundUp(o.jobRunsFor()), NoHold: !o.mayHold()}
	l.LeftCluster, _ = o.record.LeftCluster(o.now)
	if permitted, isRestricted := kueuestate.PermittedClusters(o.wl); isRestricted && o.multiKueue != "" {
		l.PermittedClusters = fmt.Sprintf("%q", permitted)
	}
	if o.facts.Preempts {
		l.PreemptsBelow = o.rank().Priority
	}
	if len(o.replacedSliceOn) > 0 {
		l.SliceOn = fmt.Sprintf("%q", o.replacedSliceOn)
	}
	if o.pinsPods() {
		l.NodeLabels = fmt.Sprintf("%q", o.requiredPins())
	}
	return l
}

// requiredPins are the values that the workload's own requirements demand of the labels with which
// the gate pins pods to a cluster.
func (o *observation) requiredPins() []string {
	var pins []string
	for key := range o.gate.Spec.PodSetUpdates.NodeSelector {
		for _, r := range o.nodeRequirements {
			if value, ok := r.labels[key]; ok {
				pins = append(pins, key+"="+value)
			}
		}
	}
	slices.Sort(pins)
	return slices.Compact(pins)
}

// roundUp rounds up a duration by at most an eighth, to one of eight values between two powers of
// two. Jobs with many different limits then wait in few lines.
func roundUp(d time.Duration) time.Duration {
	seconds := (d + time.Second - 1) / time.Second
	step := time.Duration(1) << max(bits.Len64(uint64(seconds))-4, 0)
	return (seconds + step - 1) / step * step * time.Second
}
