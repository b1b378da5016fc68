//go:build integration

package workload_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/dispatch"
)

func (h *hub) patch(wl *kueue.Workload, merge string) {
	h.t.Helper()
	if err := api.Patch(h.t.Context(), get(h.t, wl), client.RawPatch(types.MergePatchType, []byte(merge))); err != nil {
		h.t.Fatal(err)
	}
}

func dispatched(t *testing.T, wl *kueue.Workload) func() (dispatch.Record, error) {
	return func() (dispatch.Record, error) { return dispatch.Decode(get(t, wl).Annotations) }
}

func TestWhoIsWokenByHandIsNotWokenAgain(t *testing.T) {
	g := NewWithT(t)
	h := newHub(t, "byhand", func(pg *v1alpha1.PlacementGate) {
		pg.Spec.WhenUnplaceable = v1alpha1.WhenUnplaceable{Mode: v1alpha1.UnplaceableYield, YieldAfterSeconds: 1}
	})
	h.connect(g, "byhand-1", "byhand-2")
	fleet.set(map[string]*measured{"byhand-1": {0, 4, 4, 64}, "byhand-2": {0, 6, 6, 64}})
	h.clusterQueue = "byhand"
	h.queue("gpu", "byhand", "")
	h.pending("small", "gpu")
	wl := h.gated("big", 1)
	g.Eventually(dispatched(t, wl)).WithTimeout(patience).ShouldNot(HaveField("SleepsUntil", BeZero()))
	h.patch(wl, `{"spec":{"active":true}}`)
	g.Eventually(dispatched(t, wl)).WithTimeout(5*time.Second).Should(And(HaveField("SleepsUntil", BeZero()), HaveField("Yields", 1)),
		"or whoever deactivates it later would see that undone")
	g.Expect(get(t, wl).Spec.Active).To(HaveValue(BeTrue()))
}

// What counts towards giving up outlives a restart, and stands still while the
// source or the gate is at fault.
func TestClockOfGivingUp(t *testing.T) {
	g := NewWithT(t)
	hour := int32(3600)
	h := newHub(t, "clock", func(pg *v1alpha1.PlacementGate) { pg.Spec.WhenUnplaceable.GiveUpAfterSeconds = &hour })
	h.connect(g, "clock-1", "clock-2")
	fleet.set(map[string]*measured{"clock-1": {0, 4, 4, 64}, "clock-2": {0, 6, 6, 64}})
	wl := h.gated("big", 1)
	runs, stands := HaveField("UnplacedSince", Not(BeZero())), HaveField("UnplacedSince", BeZero())
	g.Eventually(dispatched(t, wl)).WithTimeout(patience).Should(runs)
	fleet.with(func(m *metrics) { m.err = errors.New("connection refused") })
	g.Eventually(dispatched(t, wl)).WithTimeout(patience).Should(stands)
	fleet.with(func(m *metrics) { m.err = nil })
	g.Eventually(dispatched(t, wl)).WithTimeout(patience).Should(runs)
	g.Eventually(check(t, wl, "clock-plimsoll")).WithTimeout(patience).ShouldNot(ContainSubstring("refused"))
	version := get(t, wl).ResourceVersion
	g.Consistently(func() string { return get(t, wl).ResourceVersion }).WithTimeout(3*time.Second).Should(Equal(version), "it is written when it starts, not in each round")
	g.Expect(api.Delete(t.Context(), &v1alpha1.PlacementGate{ObjectMeta: metav1.ObjectMeta{Name: h.name}})).To(Succeed())
	g.Eventually(dispatched(t, wl)).WithTimeout(patience).Should(stands)
	g.Expect(check(t, wl, "clock-plimsoll")()).To(HavePrefix("Pending: "))
}

func TestAnnotationThatCannotBeReadIsBegunAnew(t *testing.T) {
	g := NewWithT(t)
	h := newHub(t, "broken", nil)
	h.connect(g, "broken-1", "broken-2")
	fleet.set(map[string]*measured{"broken-1": {1, 8, 8, 64}, "broken-2": {0, 0, 0, 64}})
	sent, waits := h.gated("sent", 1), h.gated("waits", 2)
	g.Eventually(nominated(t, sent)).WithTimeout(patience).Should(Equal([]string{"broken-1"}))
	g.Eventually(check(t, waits, "broken-plimsoll")).WithTimeout(patience).Should(HavePrefix("Pending: no cluster has room for 2 pods"))
	for _, wl := range []*kueue.Workload{sent, waits} {
		h.patch(wl, `{"metadata":{"annotations":{"`+v1alpha1.DispatchAnnotation+`":"{"}}}`)
		g.Eventually(dispatched(t, wl)).WithTimeout(patience).Should(HaveField("Nominated", Equal(nominated(t, wl)())), "what is nominated stays")
		g.Eventually(reasons(t, wl)).WithTimeout(patience).Should(ContainElement(HavePrefix("BadAnnotation: annotation " + v1alpha1.DispatchAnnotation)))
	}
	said := 0
	for _, reason := range reasons(t, waits)() {
		if strings.HasPrefix(reason, "BadAnnotation") {
			said++
		}
	}
	g.Expect(said).To(Equal(1))
	g.Consistently(condition(t, "broken", v1alpha1.ConditionDispatcherMatches)).WithTimeout(2*time.Second).ShouldNot(HavePrefix("False"), "no other component nominated")
}
