package kueuestate

import (
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Unnominated is since when nobody nominates clusters for a workload whose turn has
// come: it holds quota, and every check but MultiKueue's is Ready. Zero = not so.
func UnnominatedSince(wl *kueue.Workload, multiKueue string) time.Time {
	if !AcceptsCheckUpdate(wl) || !WantsNomination(wl, multiKueue) || !OtherChecksReady(wl, multiKueue) || len(wl.Status.NominatedClusterNames) > 0 {
		return time.Time{}
	}
	since := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved).LastTransitionTime.Time
	for _, c := range wl.Status.AdmissionChecks {
		if string(c.Name) != multiKueue && c.LastTransitionTime.After(since) {
			since = c.LastTransitionTime.Time
		}
	}
	return since
}
