//go:build integration

package workload_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/controller/workload"
	"plimsoll.dev/plimsoll/operator/internal/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/ledger"
)

// midway is the status of a workload whose gate's check got Ready a while ago.
func midway(nominated ...string) func(*kueue.WorkloadStatus) {
	return func(s *kueue.WorkloadStatus) {
		s.NominatedClusterNames = nominated
		s.AdmissionChecks[0].State, s.AdmissionChecks[0].LastTransitionTime = kueue.CheckStateReady, metav1.NewTime(time.Now().Add(-20*time.Second))
		s.Conditions[0].LastTransitionTime = metav1.NewTime(time.Now().Add(-30 * time.Second))
	}
}

// settle waits until the operator knows that every cluster is connected.
func (h *hub) settle(g *WithT) {
	h.t.Helper()
	h.devices = "0"
	wl := h.gated("probe", 1)
	g.Eventually(func() []string {
		e, err := served.Explain(h.t.Context(), client.ObjectKeyFromObject(wl))
		g.Expect(err).NotTo(HaveOccurred())
		var usable []string
		for _, c := range e.Clusters {
			if c.Rejection != gate.RejectUnusable {
				usable = append(usable, c.Cluster)
			}
		}
		return usable
	}).WithTimeout(patience).Should(ConsistOf(h.name+"-1", h.name+"-2"))
	g.Expect(api.Delete(h.t.Context(), wl)).To(Succeed())
	h.devices = ""
}

// promised is what the ledger holds for a workload on a cluster.
func promised(t *testing.T, wl *kueue.Workload, cluster string) func() []ledger.Entry {
	return func() []ledger.Entry {
		e, err := served.Explain(t.Context(), client.ObjectKeyFromObject(wl))
		if err != nil {
			t.Fatal(err)
		}
		var held []ledger.Entry
		for _, c := range e.Clusters {
			for _, entry := range c.Ledger {
				if c.Cluster == cluster && entry.UID == string(wl.UID) {
					held = append(held, entry)
				}
			}
		}
		return held
	}
}

func record(t *testing.T, wl *kueue.Workload) func() dispatch.Record {
	return func() dispatch.Record {
		d, err := dispatch.Decode(get(t, wl).Annotations)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
}

// The annotation is written first: who stops then has revoked nothing.
func TestStopBetweenAnnotationAndNomination(t *testing.T) {
	g := NewWithT(t)
	h := newHub(t, "halfway", nil)
	h.connect(g, "halfway-1", "halfway-2")
	fleet.set(map[string]*measured{"halfway-1": {9, 72, 8, 72}, "halfway-2": {1, 8, 8, 8}})
	h.settle(g)
	h.annotations = map[string]string{v1alpha1.DispatchAnnotation: dispatch.Record{}.Begin([]string{"halfway-2"}, "room", time.Now().Add(-15*time.Second)).Encode()}
	h.found = midway()
	wl := h.gated("job", 1)
	g.Eventually(nominated(t, wl)).WithTimeout(patience).Should(Equal([]string{"halfway-2"}), "as was written")
	g.Expect(promised(t, wl, "halfway-2")()).To(HaveLen(1), "and debited")
	g.Consistently(condition(t, "halfway", v1alpha1.ConditionDispatcherMatches)).WithTimeout(2 * time.Second).Should(HavePrefix("True"))
}

// Another dispatcher nominated before it was told to leave that to us. What it chose
// may never admit the workload.
func TestWhatSomebodyElseNominatedIsLookedAfter(t *testing.T) {
	g := NewWithT(t)
	h := newHub(t, "theirs2", func(pg *v1alpha1.PlacementGate) { pg.Spec.Widen.AfterSeconds = 2 })
	h.connect(g, "theirs2-1", "theirs2-2")
	fleet.set(map[string]*measured{"theirs2-1": {1, 8, 8, 64}, "theirs2-2": {1, 8, 8, 64}})
	h.settle(g)
	h.found = midway("theirs2-1")
	wl := h.gated("job", 1)
	g.Eventually(promised(t, wl, "theirs2-1")).WithTimeout(patience).Should(HaveLen(1))
	g.Eventually(nominated(t, wl)).WithTimeout(patience).Should(Equal([]string{"theirs2-1", "theirs2-2"}))
	g.Expect(record(t, wl)()).To(And(HaveField("Attempt", 1), HaveField("Ever", ConsistOf("theirs2-1", "theirs2-2"))))
	g.Expect(promised(t, wl, "theirs2-2")()).To(HaveLen(1))
}

// A repair's nomination outlives the eviction.
func TestWhatOutlivedAnEvictionIsKeptAndDebited(t *testing.T) {
	g := NewWithT(t)
	h := newHub(t, "outlive", nil)
	h.connect(g, "outlive-1", "outlive-2")
	fleet.set(map[string]*measured{"outlive-1": {9, 72, 8, 72}, "outlive-2": {2, 16, 8, 16}})
	h.settle(g)
	h.annotations = map[string]string{v1alpha1.DispatchAnnotation: dispatch.Record{}.Begin([]string{"outlive-2"}, "repair", time.Now().Add(-time.Minute)).Encode()}
	for name, check := range map[string]kueue.CheckState{"ready": kueue.CheckStateReady, "reset": kueue.CheckStatePending} {
		h.found = func(s *kueue.WorkloadStatus) {
			midway("outlive-2")(s)
			s.AdmissionChecks[0].State = check
		}
		wl := h.gated(name, 1)
		g.Eventually(record(t, wl)).WithTimeout(patience).Should(HaveField("Attempt", 2))
		g.Eventually(promised(t, wl, "outlive-2")).WithTimeout(patience).Should(HaveLen(1))
		g.Expect(nominated(t, wl)()).To(Equal([]string{"outlive-2"}), "no second copy")
	}
}

// Kueue reserves quota anew within a fraction of a second after an eviction: the two
// may be seen as one change.
func TestEvictedAndReservedAtOnce(t *testing.T) {
	g := NewWithT(t)
	h := newHub(t, "atonce", nil)
	h.connect(g, "atonce-1", "atonce-2")
	fleet.set(map[string]*measured{"atonce-1": {9, 72, 8, 72}, "atonce-2": {0, 0, 0, 64}})
	fleet.with(func(m *metrics) { m.at = time.Now() }) // no newer sample
	h.found = func(s *kueue.WorkloadStatus) {
		s.Conditions[0].LastTransitionTime = metav1.NewTime(time.Now().Add(-time.Minute))
	}
	wl := h.gated("job", 1)
	g.Eventually(nominated(t, wl)).WithTimeout(patience).Should(Equal([]string{"atonce-1"}))
	cluster := "atonce-1"
	h.asKueue(wl, func(s *kueue.WorkloadStatus) {
		s.NominatedClusterNames, s.ClusterName = nil, &cluster
		s.AdmissionChecks[1].State, s.AdmissionChecks[1].LastTransitionTime = kueue.CheckStateReady, metav1.Now()
	})
	admitted := HaveField("Admitted", Not(BeZero()))
	g.Eventually(promised(t, wl, cluster)).WithTimeout(patience).Should(ConsistOf(admitted))
	h.asKueue(wl, func(s *kueue.WorkloadStatus) {
		s.ClusterName = nil
		for i := range s.AdmissionChecks {
			s.AdmissionChecks[i].State, s.AdmissionChecks[i].LastTransitionTime = kueue.CheckStatePending, metav1.Now()
		}
		apimeta.FindStatusCondition(s.Conditions, kueue.WorkloadQuotaReserved).LastTransitionTime = metav1.Now()
	})
	g.Eventually(nominated(t, wl)).WithTimeout(patience).Should(Equal([]string{"atonce-1"}))
	g.Expect(promised(t, wl, cluster)()).To(ConsistOf(Not(admitted)), "it is on its way, again")
}

// Without MultiKueue a place ends what was counted while there was none, too.
func TestWithoutMultiKueueAPlaceEndsTheWait(t *testing.T) {
	g := NewWithT(t)
	h := newHub(t, "single", func(pg *v1alpha1.PlacementGate) { pg.Spec.MultiKueue = nil })
	fleet.set(map[string]*measured{"single-1": {1, 8, 8, 64}, "single-2": {0, 0, 0, 64}})
	h.annotations = map[string]string{v1alpha1.DispatchAnnotation: dispatch.Record{UnplacedSeconds: 100, Yields: 2}.Encode()}
	wl := h.submit("job", 1, "single-plimsoll")
	g.Eventually(check(t, wl, "single-plimsoll")).WithTimeout(patience).Should(HavePrefix("Ready: single-1"))
	g.Expect(record(t, wl)()).To(And(HaveField("Yields", 0), HaveField("UnplacedSeconds", BeZero())))
}

// Nothing is lost with a process, and nothing counted twice.
func TestRestart(t *testing.T) {
	g := NewWithT(t)
	cfg := ownServer(t)
	before, after := prometheus.NewRegistry(), prometheus.NewRegistry()
	stop := start(t, cfg, workload.Options{Registerer: before})
	h := newHub(t, "restart", func(pg *v1alpha1.PlacementGate) { pg.Spec.MultiKueue = nil })
	fleet.set(map[string]*measured{"restart-1": {9, 72, 8, 72}, "restart-2": {0, 0, 0, 64}})
	fleet.with(func(m *metrics) { m.at = time.Now() }) // no newer sample
	for _, name := range []string{"on-its-way", "runs"} {
		wl := h.submit(name, 1, "restart-plimsoll")
		g.Eventually(check(t, wl, "restart-plimsoll")).WithTimeout(patience).Should(HavePrefix("Ready: restart-1"))
		if name == "runs" {
			h.asKueue(wl, func(s *kueue.WorkloadStatus) {
				apimeta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: kueue.WorkloadAdmitted, Status: "True", Reason: "Admitted"})
			})
		}
	}
	g.Eventually(func() float64 { return summarize(g, before, "plimsoll_gate_admitted_seconds", "restart") }).WithTimeout(patience).Should(BeEquivalentTo(1))
	stop()
	start(t, cfg, workload.Options{Registerer: after})
	g.Eventually(func() float64 { return summarize(g, after, "plimsoll_gate_ledger_devices", "restart-1") }).WithTimeout(patience).Should(BeEquivalentTo(16))
	g.Expect(summarize(g, after, "plimsoll_gate_admitted_seconds", "restart")).To(BeZero())
}

// sum of a metric's values, or of a histogram's observations, where a label has the value.
func summarize(g *WithT, registry *prometheus.Registry, name, value string) (n float64) {
	families, err := registry.Gather()
	g.Expect(err).NotTo(HaveOccurred())
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, label := range m.GetLabel() {
				if f.GetName() == name && label.GetValue() == value {
					n += m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
				}
			}
		}
	}
	return n
}

// Mispredictions are compared with admissions: both are of all workloads.
func TestAdmissionsAreCountedWithoutDevices(t *testing.T) {
	g := NewWithT(t)
	h := newHub(t, "none", nil)
	h.connect(g, "none-1", "none-2")
	fleet.set(map[string]*measured{"none-1": {1, 8, 8, 64}, "none-2": {1, 8, 8, 64}})
	h.devices = "0"
	wl := h.gated("idle", 1)
	g.Eventually(nominated(t, wl)).WithTimeout(patience).Should(HaveLen(1))
	cluster := nominated(t, wl)()[0]
	h.asKueue(wl, func(s *kueue.WorkloadStatus) { s.NominatedClusterNames, s.ClusterName = nil, &cluster })
	g.Eventually(func() float64 { return summarize(g, metricsRegistry, "plimsoll_gate_admitted_seconds", "none") }).WithTimeout(patience).Should(BeEquivalentTo(1))
}
