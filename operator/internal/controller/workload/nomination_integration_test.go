//go:build integration

package workload_test

import (
	"bytes"
	"os"
	"testing"

	. "github.com/onsi/gomega"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/controller/workload"
)

// Kueue's apply can't remove a list that another field manager owns. With --nominate-as=own the
// policy of config/nomination clears it.
func TestPolicyClearsNominations(t *testing.T) {
	g := NewWithT(t)
	startOperator(t, startAPIServer(t), workload.Options{NominateAs: workload.NominateAsOwn})
	tg := newTestGate(t, "own", nil)
	tg.connect("own-1", "own-2")
	fleet.reset(map[string]*clusterMetrics{"own-1": {9, 72, 8, 72}, "own-2": {0, 0, 0, 64}})
	// Kueue's apply does not contain the list.
	updateStatus := func(wl *kueue.Workload, change func(*kueue.WorkloadStatus)) {
		tg.updateStatus(wl, func(s *kueue.WorkloadStatus) {
			s.NominatedClusterNames = nil
			change(s)
		})
	}
	submitNominated := func(t *testing.T, name string) *kueue.Workload {
		t.Helper()
		wl := tg.submitGated(name, 1)
		NewWithT(t).Eventually(nominatedClusters(t, wl)).Should(Equal([]string{"own-1"}))
		return wl
	}

	admitted := submitNominated(t, "admitted")
	g.Expect(fieldManagers(t, admitted)).To(ContainElement("plimsoll-dispatch"))
	updateStatus(admitted, func(*kueue.WorkloadStatus) {})
	g.Expect(nominatedClusters(t, admitted)()).To(Equal([]string{"own-1"}), "without the policy Kueue can't clear the list")

	createNominationPolicy(t)
	cluster := "own-1"
	// The API server takes a moment to activate the policy.
	g.Eventually(func() []string {
		updateStatus(admitted, func(s *kueue.WorkloadStatus) { s.ClusterName = &cluster })
		return nominatedClusters(t, admitted)()
	}).Should(BeEmpty(), "a cluster has admitted the workload")
	live := getWorkload(t, admitted)
	g.Expect(live.Status.ClusterName).To(HaveValue(Equal("own-1")))
	g.Expect(kueuestate.HoldsQuota(live)).To(BeTrue())
	g.Expect(live.Status.AdmissionChecks).To(HaveLen(2))

	for _, tc := range []struct {
		name   string
		change func(*kueue.WorkloadStatus)
	}{
		{"eviction", func(s *kueue.WorkloadStatus) {
			apimeta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: kueue.WorkloadEvicted, Status: "True", Reason: "Preempted"})
		}},
		{"quota-lost", releaseQuota},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wl := submitNominated(t, tc.name)
			updateStatus(wl, tc.change)
			NewWithT(t).Expect(nominatedClusters(t, wl)()).To(BeEmpty())
		})
	}
}

// createNominationPolicy creates the objects of config/nomination.
func createNominationPolicy(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile("../../../../config/nomination/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range bytes.Split(text, []byte("\n---\n")) {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(doc, &u.Object); err != nil {
			t.Fatal(err)
		}
		if err := apiClient.Create(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
}

func fieldManagers(t *testing.T, wl *kueue.Workload) []string {
	t.Helper()
	var names []string
	for _, m := range getWorkload(t, wl).ManagedFields {
		names = append(names, m.Manager)
	}
	return names
}
