package lifecycle

import (
	"fmt"
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
)

// reasonReplacesSlice is the reason of a decision that sends a slice to the clusters of the slice that
// it replaces.
const reasonReplacesSlice = "ReplacesSlice"

// followReplacedSlice sends a slice that has no room to the clusters of the slice that it replaces, and to
// its own earlier ones. The copy of a slice may have the missing devices, or their quota, and keeps them
// until the new slice is there. Users can write a record, so a cluster that only a record names gives no
// devices that are held for others, and the workload waits for its turn.
func followReplacedSlice(s *Situation, d gate.Decision) gate.Decision {
	if !slices.Contains([]string{gate.ReasonNoRoom, gate.ReasonHeld, gate.ReasonNever}, d.Reason) {
		return d
	}
	var clusters []string
	for _, v := range d.Verdicts {
		isHeld := v.Rejection == gate.RejectHeld && !slices.Contains(s.Job.SliceSeenOn, v.Cluster)
		if v.Rejection.MayHoldCopy() && !isHeld && slices.Contains(s.Job.SliceOn, v.Cluster) {
			clusters = append(clusters, v.Cluster)
		}
	}
	if len(clusters) == 0 {
		return d
	}
	message := "it replaces a slice that was sent to " + clusters[0] + ", where that may take the room: " + d.Message
	if len(s.Record.Sent()) > 0 {
		message = "it or the slice that it replaces was sent to " + clusters[0] + " earlier, where a copy may take the room: " + d.Message
	}
	return gate.Decision{State: gate.Ready, Reason: reasonReplacesSlice, Verdicts: d.Verdicts, Order: clusters, Message: gate.Truncate(message)}
}

// followRunningSlice returns the message of a check that lets through the new slice of a running job, the
// updates of its pods, and what the ledger reserves. The new pods need the updates of the others: they
// are created from one template, to which Kueue added those of the first slice.
//
// The ledger reserves all pods. The entry of the old slice, which ends now, may be the only one that has
// the running pods.
func followRunningSlice(s *Situation) (message string, updates []kueue.PodSetUpdate, res *Reservation) {
	message = "it replaces Workload " + s.Job.RunningSlice.Name + ", whose job already runs"
	cluster := s.Checks.SentCluster(s.Job.RunningSlice)
	if cluster == "" {
		return message, nil, nil
	}
	for _, update := range kueuestate.FindCheck(s.Job.RunningSlice, s.Checks.Own[0]).PodSetUpdates {
		updates = append(updates, *update.DeepCopy())
	}
	if s.Gate.Known {
		res = &Reservation{Entries: []ledger.Entry{s.Entry(cluster, s.Now)}}
	}
	return message + " on " + cluster, updates, res
}

// stepFollowKueue sets the check Ready for a workload that runs already. The new slice of an
// elastic job arrives with status.clusterName set, and MultiKueue waits for every other check
// before it updates the running copy. Without MultiKueue, the workload replaces a slice that runs, or
// was admitted before its ClusterQueue got the check.
func stepFollowKueue(s *Situation) Step {
	next, w := Step{}, &CheckWrite{Names: s.Checks.Own, RememberReason: true}
	message := "the job ran before its queue had this check"
	switch cluster := s.Workload.Status.ClusterName; {
	case cluster != nil:
		message = "Kueue placed it on " + *cluster + ", where the job already runs"
	case s.Job.RunningSlice != nil:
		message, w.PodSetUpdates, next.Reservation = followRunningSlice(s)
	}
	w.Decision = gate.Decision{State: gate.Ready, Reason: "PlacedByKueue", Message: message}
	next.Decision = &w.Decision
	next.Writes = []Write{{Check: w, Event: &Notice{Reason: w.Decision.Reason, Message: message}}}
	return next
}

func limitOfSlice(s *Situation) string {
	if len(s.Job.SliceOn) == 0 {
		return ""
	}
	return fmt.Sprintf("%q", s.Job.SliceOn)
}
