//go:build integration

package workload_test

import (
	"bytes"
	"context"
	"os"
	"testing"

	. "github.com/onsi/gomega"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/operator/internal/controller/workload"
	"plimsoll.dev/plimsoll/operator/internal/kueuestate"
)

// ownServer is a second apiserver.
func ownServer(t *testing.T) *rest.Config {
	t.Helper()
	crds, err := definitions()
	if err != nil {
		t.Fatal(err)
	}
	env := &envtest.Environment{CRDInstallOptions: envtest.CRDInstallOptions{CRDs: crds, Scheme: runtime.NewScheme()}}
	cfg, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = env.Stop() })
	before := api
	t.Cleanup(func() { api = before })
	return cfg
}

// start an operator there, which the tests talk to from now on, until it is stopped.
func start(t *testing.T, cfg *rest.Config, opts workload.Options) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	var err error
	if api, err = operate(ctx, cfg, opts); err != nil {
		t.Fatal(err)
	}
	return cancel
}

func applyPolicy(t *testing.T) {
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
		if err := api.Create(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
}

// Kueue's apply cannot remove a list that it does not own: the policy does.
func TestPolicyClearsNominationsOfOurOwn(t *testing.T) {
	g := NewWithT(t)
	start(t, ownServer(t), workload.Options{NominateAsOwn: true})
	h := newHub(t, "own", nil)
	h.connect(g, "own-1", "own-2")
	fleet.set(map[string]*measured{"own-1": {9, 72, 8, 72}, "own-2": {0, 0, 0, 64}})
	status := func(wl *kueue.Workload, change func(*kueue.WorkloadStatus)) {
		h.asKueue(wl, func(s *kueue.WorkloadStatus) {
			s.NominatedClusterNames = nil
			change(s)
		})
	}
	cluster := "own-1"
	admit := func(wl *kueue.Workload) func() []string {
		return func() []string {
			status(wl, func(s *kueue.WorkloadStatus) { s.ClusterName = &cluster })
			return nominated(t, wl)()
		}
	}
	first := h.gated("first", 1)
	g.Eventually(nominated(t, first)).WithTimeout(patience).Should(Equal([]string{"own-1"}))
	g.Expect(managers(t, first)).To(ContainElement("plimsoll-dispatch"))
	status(first, func(*kueue.WorkloadStatus) {})
	g.Expect(nominated(t, first)()).To(Equal([]string{"own-1"}), "without the policy Kueue can't clear it")

	applyPolicy(t)
	g.Eventually(admit(first)).WithTimeout(patience).Should(BeEmpty(), "a cluster has admitted it")
	live := get(t, first)
	g.Expect(live.Status.ClusterName).To(HaveValue(Equal("own-1")))
	g.Expect(kueuestate.HoldsQuota(live)).To(BeTrue())
	g.Expect(live.Status.AdmissionChecks).To(HaveLen(2))

	second := h.gated("second", 1)
	g.Eventually(nominated(t, second)).WithTimeout(patience).Should(Equal([]string{"own-1"}))
	evict := metav1.Condition{Type: kueue.WorkloadEvicted, Status: "True", Reason: "Preempted"}
	status(second, func(s *kueue.WorkloadStatus) { apimeta.SetStatusCondition(&s.Conditions, evict) })
	g.Expect(nominated(t, second)()).To(BeEmpty(), "an eviction begins")

	third := h.gated("third", 1)
	g.Eventually(nominated(t, third)).WithTimeout(patience).Should(Equal([]string{"own-1"}))
	status(third, func(s *kueue.WorkloadStatus) {
		s.Admission = nil
		apimeta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: kueue.WorkloadQuotaReserved, Status: "False", Reason: "Pending"})
	})
	g.Expect(nominated(t, third)()).To(BeEmpty(), "its quota is gone")
}

func managers(t *testing.T, wl client.Object) []string {
	t.Helper()
	live := &kueue.Workload{}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(wl), live); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range live.ManagedFields {
		names = append(names, m.Manager)
	}
	return names
}
