package lifecycle

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
func (o *Situation) limits() waitqueue.Limits {
	l := waitqueue.Limits{MultiKueueConfig: o.MultiKueue.Config, JobCluster: o.Job.Cluster, HasPlaceInJob: o.hasPlaceInJob(), RunsFor: roundUp(o.jobRunsFor()), NoHold: !o.mayHold()}
	l.LeftCluster, _ = o.Record.LeftCluster(o.Now)
	if permitted, isRestricted := kueuestate.PermittedClusters(o.Workload); isRestricted && o.Checks.MultiKueue != "" {
		l.PermittedClusters = fmt.Sprintf("%q", permitted)
	}
	if o.Request.Facts.Preempts {
		l.PreemptsBelow = o.Rank().Priority
	}
	if len(o.Job.SliceOn) > 0 {
		l.SliceOn = fmt.Sprintf("%q", o.Job.SliceOn)
	}
	if o.pinsPods() {
		l.NodeLabels = fmt.Sprintf("%q", o.requiredPins())
	}
	return l
}

// requiredPins are the values that the workload's own requirements demand of the labels with which
// the gate pins pods to a cluster.
func (o *Situation) requiredPins() []string {
	var pins []string
	for key := range o.Gate.Spec.PodSetUpdates.NodeSelector {
		for _, r := range o.Request.NodeRequirements {
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
