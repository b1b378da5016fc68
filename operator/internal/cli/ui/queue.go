package ui

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
	"plimsoll.dev/plimsoll/operator/internal/cli/explanation"
	"plimsoll.dev/plimsoll/operator/internal/format"
)

// waiting is a workload that waits.
type waiting struct {
	explanation.State
	workload *kueue.Workload
	rank     ledger.Rank
	since    time.Time
	// gateName is the gate whose decision it waits for, with its place among all that do; "" = another step.
	gateName      string
	place, places int
	// after is the workload that the gate decides before; "" = none.
	after string
}

// waitingOf returns a workload that waits.
func waitingOf(wl *kueue.Workload, state explanation.State, now time.Time) *waiting {
	situation := lifecycle.Situation{Workload: wl, Key: client.ObjectKeyFromObject(wl), Record: lifecycle.Record{Record: state.Record}, Now: now}
	w := &waiting{State: state, workload: wl, rank: situation.Rank(), since: wl.CreationTimestamp.Time}
	reserved := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
	switch {
	case kueuestate.HoldsQuota(wl):
		w.since = w.rank.Since
	case reserved != nil && reserved.Status == metav1.ConditionFalse && reserved.LastTransitionTime.After(w.since):
		w.since = reserved.LastTransitionTime.Time // Kueue evicted it, or could not reserve quota at first
	}
	if len(state.Checks.Pending(wl)) > 0 && kueuestate.HoldsQuota(wl) && !kueuestate.IsEvicted(wl) {
		w.gateName = state.Checks.Gate()
	}
	return w
}

// order sorts workloads as their gates decide them, and those that wait for other steps behind them, by priority and time.
func order(all []*waiting, now time.Time) {
	slices.SortFunc(all, func(a, b *waiting) int {
		switch {
		case a.gateName != b.gateName && (a.gateName == "" || b.gateName == ""):
			return cmp.Compare(b.gateName, a.gateName)
		case a.gateName != b.gateName:
			return cmp.Compare(a.gateName, b.gateName)
		case a.gateName != "" && a.rank.Before(b.rank, a.aging(), now):
			return -1
		case a.gateName != "" && b.rank.Before(a.rank, a.aging(), now):
			return 1
		}
		return cmp.Or(cmp.Compare(b.rank.Priority, a.rank.Priority), a.since.Compare(b.since), cmp.Compare(a.rank.Name, b.rank.Name))
	})
	places := map[string]int{}
	for i, w := range all {
		if w.gateName == "" {
			continue
		}
		places[w.gateName]++
		if w.place = places[w.gateName]; w.place > 1 {
			w.after = all[i-1].rank.Name
		}
	}
	for _, w := range all {
		w.places = places[w.gateName]
	}
}

// aging is that of the gate; 0 = the gate can't be read, and the place is unknown.
func (w *waiting) aging() time.Duration {
	if w.Gate == nil {
		return 0
	}
	return gate.RulesOf(&w.Gate.Spec).Hold.Aging
}

// placeText says before whom the workload is decided, among those in a namespace; "" = all.
func (w *waiting) placeText(namespace string) string {
	if w.gateName == "" || w.Gate == nil {
		return format.Unknown
	}
	place := fmt.Sprintf("%d of %d", w.place, w.places)
	if namespace != "" {
		place += " of those in " + namespace
	}
	place += " at gate " + w.gateName
	if w.after != "" {
		place += ", after " + w.after
	}
	return place
}

// startText is the latest start, if a gate holds a cluster for the workload and knows when it becomes free. A time that has
// passed is none.
func (w *waiting) startText(now time.Time) string {
	if w.Gate == nil {
		return format.Unknown
	}
	for _, h := range w.Gate.Status.Holds {
		if h.Workload != w.rank.Name {
			continue
		}
		text := format.Unknown
		if h.StartsBy != nil && h.StartsBy.After(now) {
			text = "by " + format.Time(h.StartsBy.Time)
		}
		text += " on " + h.Cluster
		if h.Shadow {
			return text + ", if the hold had an effect (mode Shadow)"
		}
		return text + ", which is held"
	}
	return format.Unknown
}
