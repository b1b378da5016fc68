package kueuestate

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func TestAcceptedWrites(t *testing.T) {
	inactive := false
	for _, tc := range []struct {
		name             string
		change           func(*kueue.Workload)
		check, nominated bool
	}{
		{"quota reserved", func(*kueue.Workload) {}, true, true},
		{"evicted", setCondition(kueue.WorkloadEvicted), false, true},
		{"finished", setCondition(kueue.WorkloadFinished), false, true},
		{"inactive", func(wl *kueue.Workload) { wl.Spec.Active = &inactive }, false, true},
		{"being deleted", func(wl *kueue.Workload) { wl.DeletionTimestamp = &metav1.Time{Time: t0} }, false, true},
		{"no quota", func(wl *kueue.Workload) { wl.Status.Conditions = nil }, false, true},
		{"admission withdrawn", func(wl *kueue.Workload) { wl.Status.Admission = nil }, false, true},
		{"on a cluster", clusterName("cluster1"), true, false},
		{"component that follows its primary", func(wl *kueue.Workload) { wl.Annotations = map[string]string{ComponentAnnotation: "1"} }, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wl := reserved()
			tc.change(wl)
			if got := AcceptsCheckUpdate(wl); got != tc.check {
				t.Errorf("AcceptsCheckUpdate: got %t, want %t", got, tc.check)
			}
			if got := WantsNomination(wl, "multikueue"); got != tc.nominated {
				t.Errorf("WantsNomination: got %t, want %t", got, tc.nominated)
			}
			wl.Status.AdmissionChecks[0].State = kueue.CheckStateReady
			if got, want := AcceptsNomination(wl, "multikueue", 0, t0), tc.check && tc.nominated; got != want {
				t.Errorf("AcceptsNomination: got %t, want %t", got, want)
			}
		})
	}
}

func TestUnnominatedSince(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*kueue.Workload)
		want   time.Time
	}{
		{"the last check became Ready", func(*kueue.Workload) {}, after(2).Time},
		{"quota was reserved after the checks", func(wl *kueue.Workload) { wl.Status.Conditions[0].LastTransitionTime = after(60) }, after(60).Time},
		{"another check is Pending", func(wl *kueue.Workload) { wl.Status.AdmissionChecks[0].State = kueue.CheckStatePending }, time.Time{}},
		{"nominated", func(wl *kueue.Workload) { wl.Status.NominatedClusterNames = []string{"cluster1"} }, time.Time{}},
		{"Kueue chooses the cluster", func(wl *kueue.Workload) { wl.Annotations = map[string]string{ComponentAnnotation: "1"} }, time.Time{}},
		{"evicted", setCondition(kueue.WorkloadEvicted), time.Time{}},
		{"admitted by a cluster", clusterName("cluster1"), time.Time{}},
		{"no MultiKueue check", func(wl *kueue.Workload) { wl.Status.AdmissionChecks = wl.Status.AdmissionChecks[:2] }, time.Time{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wl := reserved()
			wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{
				{Name: "plimsoll", State: kueue.CheckStateReady, LastTransitionTime: after(1)},
				{Name: "budget", State: kueue.CheckStateReady, LastTransitionTime: after(2)},
				{Name: "multikueue", State: kueue.CheckStatePending},
			}
			tc.change(wl)
			if got := UnnominatedSince(wl, "multikueue"); !got.Equal(tc.want) {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// Order, blanks and duplicates in the annotation mean nothing.
func TestPermittedClusters(t *testing.T) {
	for _, tc := range []struct {
		annotation string
		want       []string
	}{
		{"cluster1", []string{"cluster1"}},
		{"cluster2, cluster1,cluster2 ,", []string{"cluster1", "cluster2"}},
		{"", nil},
	} {
		wl := reserved()
		wl.Annotations = map[string]string{ClusterNamesAnnotation: tc.annotation}
		if got, isRestricted := PermittedClusters(wl); !isRestricted || !slices.Equal(got, tc.want) {
			t.Errorf("%q: restricted %t to %q, want %q", tc.annotation, isRestricted, got, tc.want)
		}
	}
	if _, isRestricted := PermittedClusters(reserved()); isRestricted {
		t.Error("without the annotation the workload is restricted")
	}
}
