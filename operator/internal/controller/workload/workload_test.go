//go:build integration

package workload_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/kueuestate"
)

const patience = 15 * time.Second

// connect makes Kueue's part: every MultiKueueCluster of the hub is Active.
func (h *hub) connect(g *WithT, clusters ...string) {
	for _, name := range clusters {
		g.Eventually(func() error {
			c := &kueue.MultiKueueCluster{}
			if err := api.Get(h.t.Context(), client.ObjectKey{Name: name}, c); err != nil {
				return err
			}
			apimeta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: kueue.MultiKueueClusterActive, Status: "True", Reason: "Active"})
			return api.Status().Update(h.t.Context(), c)
		}).WithTimeout(patience).Should(Succeed())
	}
}

// submit a job of pods with 8 devices each whose quota Kueue has reserved.
func (h *hub) submit(name string, pods int32, checks ...string) *kueue.Workload {
	h.t.Helper()
	eight := corev1.ResourceList{"nvidia.com/gpu": resource.MustParse(cmp.Or(h.devices, "8"))}
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: h.name, Name: name, Annotations: h.annotations}, Spec: kueue.WorkloadSpec{QueueName: "gpu",
		PodSets: []kueue.PodSet{{Name: "main", Count: pods, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, NodeSelector: h.nodeSelector,
			Containers: []corev1.Container{{Name: "main", Image: "none", Resources: corev1.ResourceRequirements{Limits: eight, Requests: eight}}}}}}}}}
	h.create(wl)
	h.asKueue(wl, func(status *kueue.WorkloadStatus) {
		status.Admission = &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(cmp.Or(h.clusterQueue, "gpu")), PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: &pods,
			Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"nvidia.com/gpu": kueue.ResourceFlavorReference(cmp.Or(h.flavor, "h100"))}}}}
		apimeta.SetStatusCondition(&status.Conditions, metav1.Condition{Type: kueue.WorkloadQuotaReserved, Status: "True", Reason: "QuotaReserved"})
		for _, c := range checks {
			status.AdmissionChecks = append(status.AdmissionChecks, kueue.AdmissionCheckState{
				Name: kueue.AdmissionCheckReference(c), State: kueue.CheckStatePending, LastTransitionTime: metav1.NewTime(time.Now().Add(-h.queued))})
		}
		if h.found != nil {
			h.found(status)
		}
	})
	return wl
}

func (h *hub) gated(name string, pods int32) *kueue.Workload {
	return h.submit(name, pods, h.name+"-plimsoll", h.name+"-multikueue")
}

// asKueue applies the whole status as Kueue's manager of admission does.
func (h *hub) asKueue(wl *kueue.Workload, change func(*kueue.WorkloadStatus)) {
	h.t.Helper()
	NewWithT(h.t).Eventually(func() error {
		live := &kueue.Workload{}
		if err := api.Get(h.t.Context(), client.ObjectKeyFromObject(wl), live); err != nil {
			return err
		}
		change(&live.Status)
		status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&live.Status)
		if err != nil {
			return err
		}
		u := &unstructured.Unstructured{Object: map[string]any{"status": status}}
		u.SetGroupVersionKind(kueue.SchemeGroupVersion.WithKind("Workload"))
		u.SetNamespace(wl.Namespace)
		u.SetName(wl.Name)
		u.SetResourceVersion(live.ResourceVersion)
		return api.Status().Apply(h.t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("kueue-admission"), client.ForceOwnership)
	}).WithTimeout(patience).Should(Succeed())
}

func get(t *testing.T, wl *kueue.Workload) *kueue.Workload {
	t.Helper()
	live := &kueue.Workload{}
	if err := api.Get(context.Background(), client.ObjectKeyFromObject(wl), live); err != nil {
		t.Fatal(err)
	}
	return live
}

func nominated(t *testing.T, wl *kueue.Workload) func() []string {
	return func() []string { return get(t, wl).Status.NominatedClusterNames }
}

func check(t *testing.T, wl *kueue.Workload, name string) func() string {
	return func() string {
		c := kueuestate.FindCheck(get(t, wl), name)
		return fmt.Sprintf("%s: %s", c.State, c.Message)
	}
}

// reasons and notes of the events about a workload.
func reasons(t *testing.T, wl *kueue.Workload) func() []string {
	return func() []string {
		list := &eventsv1.EventList{}
		if err := api.List(t.Context(), list, client.InNamespace(wl.Namespace)); err != nil {
			t.Fatal(err)
		}
		var said []string
		for _, e := range list.Items {
			if e.Regarding.Name == wl.Name && e.Regarding.UID == wl.UID {
				said = append(said, e.Reason+": "+e.Note)
			}
		}
		return said
	}
}

func TestConfiguration(t *testing.T) {
	g := NewWithT(t)
	h := newHub(t, "conf", nil)
	config := &kueue.MultiKueueConfig{}
	g.Eventually(func() error { return api.Get(t.Context(), client.ObjectKey{Name: "conf"}, config) }).WithTimeout(patience).Should(Succeed())
	g.Expect(config.Spec.Clusters).To(Equal([]string{"conf-1", "conf-2"}))
	g.Expect(config.Labels).To(HaveKeyWithValue(v1alpha1.ManagedByLabel, "conf"))
	cluster := &kueue.MultiKueueCluster{}
	g.Expect(api.Get(t.Context(), client.ObjectKey{Name: "conf-2"}, cluster)).To(Succeed())
	g.Expect(cluster.Spec.ClusterSource.KubeConfig.Location).To(Equal("conf-2-kubeconfig"))
	g.Expect(append(config.OwnerReferences, cluster.OwnerReferences...)).To(BeEmpty(), "collecting them would evict what runs")

	active := func() string {
		c := &kueue.AdmissionCheck{}
		if err := api.Get(t.Context(), client.ObjectKey{Name: "conf-plimsoll"}, c); err != nil {
			return err.Error()
		}
		condition := apimeta.FindStatusCondition(c.Status.Conditions, kueue.AdmissionCheckActive)
		if condition == nil {
			return "none"
		}
		return fmt.Sprintf("%s %s: %s", condition.Status, condition.Reason, condition.Message)
	}
	g.Eventually(active).WithTimeout(patience).Should(HavePrefix("True Active"))
	edit := func(change func(*v1alpha1.PlacementGate)) {
		g.Eventually(func() error {
			pg := &v1alpha1.PlacementGate{}
			if err := api.Get(t.Context(), client.ObjectKey{Name: "conf"}, pg); err != nil {
				return err
			}
			change(pg)
			return api.Update(t.Context(), pg)
		}).WithTimeout(patience).Should(Succeed())
	}
	edit(func(pg *v1alpha1.PlacementGate) {
		pg.Spec.Queries.Fit = `sum by (cluster) (x{model="$model"}`
	})
	g.Eventually(active).WithTimeout(patience).Should(HavePrefix("False InvalidQuery: fit: "))
	edit(func(pg *v1alpha1.PlacementGate) { pg.Spec.Queries.Fit, pg.Spec.PlacementRef.Name = "", "absent" })
	g.Eventually(active).WithTimeout(patience).Should(Equal("False PlacementNotFound: Placement conf/absent does not exist"))
	edit(func(pg *v1alpha1.PlacementGate) { pg.Spec.PlacementRef.Name = "gpu" })
	g.Eventually(active).WithTimeout(patience).Should(HavePrefix("True Active"))

	g.Expect(api.Delete(t.Context(), &v1alpha1.PlacementGate{ObjectMeta: metav1.ObjectMeta{Name: h.name}})).To(Succeed())
	g.Eventually(active).WithTimeout(patience).Should(Equal("False GateNotFound: PlacementGate conf does not exist"))
	g.Expect(api.Get(t.Context(), client.ObjectKey{Name: "conf"}, config)).To(Succeed(), "what jobs run on must stay")
}

func TestForeignConfigurationIsLeftAlone(t *testing.T) {
	g := NewWithT(t)
	theirs := &kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}, Spec: kueue.MultiKueueConfigSpec{Clusters: []string{"other"}}}
	g.Expect(api.Create(t.Context(), theirs)).To(Succeed())
	newHub(t, "theirs", nil)
	g.Eventually(func() string {
		pg := &v1alpha1.PlacementGate{}
		if err := api.Get(t.Context(), client.ObjectKey{Name: "theirs"}, pg); err != nil {
			return err.Error()
		}
		if c := apimeta.FindStatusCondition(pg.Status.Conditions, v1alpha1.ConditionConfigured); c != nil {
			return c.Message
		}
		return ""
	}).WithTimeout(patience).Should(Equal("MultiKueueConfig theirs was not created by a gate and is left alone: name another in spec.multiKueue.configName"))
	g.Expect(api.Get(t.Context(), client.ObjectKey{Name: "theirs"}, theirs)).To(Succeed())
	g.Expect(theirs.Spec.Clusters).To(Equal([]string{"other"}))
}

func TestWaitsForRoomThenIsNominated(t *testing.T) {
	g := NewWithT(t)
	h := newHub(t, "room", nil)
	h.connect(g, "room-1", "room-2")
	fleet.set(map[string]*measured{"room-1": {0, 20, 4, 64}, "room-2": {0, 12, 6, 64}})
	wl := h.gated("big", 1)
	g.Eventually(check(t, wl, "room-plimsoll")).WithTimeout(patience).Should(
		Equal("Pending: no cluster has 8 free " + h100 + " on one node: best is room-2 with 6"))
	g.Expect(nominated(t, wl)()).To(BeEmpty())

	answer := httptest.NewRecorder()
	served.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/explain/workload/room/big", nil))
	var e gate.Explanation
	g.Expect(json.Unmarshal(answer.Body.Bytes(), &e)).To(Succeed(), answer.Body.String())
	g.Expect(e.WaitsFor).To(Equal("no cluster has 8 free " + h100 + " on one node: best is room-2 with 6"))
	g.Expect(e.Clusters).To(HaveLen(2))

	fleet.set(map[string]*measured{"room-1": {0, 20, 4, 64}, "room-2": {1, 14, 8, 64}})
	g.Eventually(nominated(t, wl)).WithTimeout(patience).Should(Equal([]string{"room-2"}))
	live := get(t, wl)
	g.Expect(check(t, wl, "room-plimsoll")()).To(HavePrefix("Ready: room-2 can take it"))
	g.Expect(kueuestate.HoldsQuota(live)).To(BeTrue(), "a nomination must not wipe what Kueue owns")
	g.Expect(live.Status.AdmissionChecks).To(HaveLen(2))
	d, err := dispatch.Decode(live.Annotations)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(d.Attempt).To(Equal(1))
	g.Expect(d.Nominated).To(Equal([]string{"room-2"}))

	g.Eventually(reasons(t, wl)).WithTimeout(patience).Should(ContainElements("NoRoom: no cluster has 8 free "+h100+" on one node: best is room-2 with 6",
		"Placeable: room-2 can take it: room for 1 such pod there, as far as its queue has quota (QuotaUnknown)",
		"Nominated: [room-2]: room-2 can take it: room for 1 such pod there, as far as its queue has quota (QuotaUnknown)"))

	cluster := "room-2"
	h.asKueue(wl, func(s *kueue.WorkloadStatus) { s.NominatedClusterNames, s.ClusterName = nil, &cluster })
	g.Expect(get(t, wl).Status.NominatedClusterNames).To(BeEmpty(), "Kueue must be able to clear what we nominated")
}

func TestBurstIsSpread(t *testing.T) {
	g := NewWithT(t)
	h := newHub(t, "burst", nil)
	h.connect(g, "burst-1", "burst-2")
	fleet.set(map[string]*measured{"burst-1": {5, 40, 8, 40}, "burst-2": {5, 40, 8, 40}})
	var all []*kueue.Workload
	for i := range 10 {
		all = append(all, h.gated(fmt.Sprintf("job-%d", i), 1))
	}
	g.Eventually(func() map[string]int {
		sent := map[string]int{}
		for _, wl := range all {
			for _, c := range nominated(t, wl)() {
				sent[c]++
			}
		}
		return sent
	}).WithTimeout(patience).Should(Equal(map[string]int{"burst-1": 5, "burst-2": 5}))
}

func TestWidens(t *testing.T) {
	g := NewWithT(t)
	h := newHub(t, "wide", func(pg *v1alpha1.PlacementGate) { pg.Spec.Widen.AfterSeconds = 2 })
	h.connect(g, "wide-1", "wide-2")
	fleet.set(map[string]*measured{"wide-1": {2, 16, 8, 64}, "wide-2": {1, 8, 8, 64}})
	wl := h.gated("slow", 1)
	g.Eventually(nominated(t, wl)).WithTimeout(patience).Should(Equal([]string{"wide-1"}))
	g.Eventually(nominated(t, wl)).WithTimeout(patience).Should(Equal([]string{"wide-1", "wide-2"}))
}

// The nomination that ends a stuck eviction outlives it: to where the workload fits
// now or, for quota must not hang on room, to where it was.
func TestEvictionDeadlockIsRepaired(t *testing.T) {
	for name, tc := range map[string]struct {
		elsewhere measured
		want      string
	}{"stuck": {measured{0, 0, 0, 64}, "stuck-1"}, "moved": {measured{1, 8, 8, 64}, "moved-2"}} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := newHub(t, name, nil)
			h.connect(g, name+"-1", name+"-2")
			fleet.set(map[string]*measured{name + "-1": {1, 8, 8, 64}, name + "-2": {0, 0, 0, 64}})
			wl := h.gated("lost", 1)
			g.Eventually(nominated(t, wl)).WithTimeout(patience).Should(Equal([]string{name + "-1"}))
			fleet.set(map[string]*measured{name + "-1": {0, 0, 0, 64}, name + "-2": &tc.elsewhere})
			h.evict(wl)
			g.Consistently(nominated(t, wl)).WithTimeout(3 * time.Second).Should(BeEmpty())
			g.Eventually(nominated(t, wl)).WithTimeout(patience).Should(Equal([]string{tc.want}))
			g.Expect(check(t, wl, name+"-plimsoll")()).To(HavePrefix("Ready: "))
		})
	}
}

// evict as Kueue does when the copy of a running job is gone: nominations and checks
// are reset, and quota stays until the job's status has come home.
func (h *hub) evict(wl *kueue.Workload) {
	h.asKueue(wl, func(s *kueue.WorkloadStatus) {
		s.NominatedClusterNames = nil
		apimeta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: kueue.WorkloadEvicted, Status: "True", Reason: "AdmissionCheck"})
		for i := range s.AdmissionChecks {
			s.AdmissionChecks[i].State, s.AdmissionChecks[i].LastTransitionTime = kueue.CheckStatePending, metav1.Now()
		}
	})
}

// A cluster that a repair chose may not admit the workload either: without quota,
// without the queue, or gone itself. The hub's quota must not hang on it.
func TestEvictionRepairGoesOn(t *testing.T) {
	g := NewWithT(t)
	h := newHub(t, "goeson", func(pg *v1alpha1.PlacementGate) { pg.Spec.Widen.AfterSeconds = 1 })
	h.connect(g, "goeson-1", "goeson-2")
	fleet.set(map[string]*measured{"goeson-1": {1, 8, 8, 64}, "goeson-2": {0, 0, 0, 64}})
	wl := h.gated("lost", 1)
	g.Eventually(nominated(t, wl)).WithTimeout(patience).Should(Equal([]string{"goeson-1"}))
	h.evict(wl)
	g.Eventually(nominated(t, wl)).WithTimeout(patience).Should(Equal([]string{"goeson-1"}))
	g.Eventually(nominated(t, wl)).WithTimeout(patience).Should(Equal([]string{"goeson-1", "goeson-2"}), "in the end every active one is tried")
}

func TestUngatedMultiKueueIsServed(t *testing.T) {
	g := NewWithT(t)
	h := newHub(t, "plain", nil)
	h.connect(g, "plain-1", "plain-2")
	wl := h.submit("job", 1, "plain-multikueue")
	g.Eventually(func() []string { return slices.Sorted(slices.Values(nominated(t, wl)())) }).
		WithTimeout(patience).Should(Equal([]string{"plain-1", "plain-2"}))
}

func TestForbiddenWorkloadsAreLeftAlone(t *testing.T) {
	g := NewWithT(t)
	h := newHub(t, "guard", nil)
	h.connect(g, "guard-1", "guard-2")
	fleet.set(map[string]*measured{"guard-1": {0, 0, 0, 64}, "guard-2": {0, 0, 0, 64}})
	wl := h.gated("evicted", 1)
	g.Eventually(check(t, wl, "guard-plimsoll")).WithTimeout(patience).Should(HavePrefix("Pending: no cluster has"))
	h.asKueue(wl, func(s *kueue.WorkloadStatus) {
		s.Admission = nil
		apimeta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: kueue.WorkloadQuotaReserved, Status: "False", Reason: "Pending"})
	})
	before := get(t, wl).ResourceVersion
	fleet.set(map[string]*measured{"guard-1": {4, 32, 8, 64}, "guard-2": {4, 32, 8, 64}})
	g.Consistently(func() string { return get(t, wl).ResourceVersion }).WithTimeout(3*time.Second).Should(Equal(before), "without quota nothing may be written")
}
