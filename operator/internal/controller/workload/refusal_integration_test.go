//go:build integration

package workload_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// The annotations of a Workload leave no room for the gate's record, so that the API server refuses it. Another workload
// gets the devices.
func TestRefusedWriteReservesNothing(t *testing.T) {
	g := NewWithT(t)
	tg := newTestGate(t, "refused", nil)
	tg.connect("refused-1", "refused-2")
	fleet.reset(map[string]*clusterMetrics{"refused-1": {0, 0, 0, 64}, "refused-2": {0, 0, 0, 64}})
	filled := tg.submitGated("filled", 1)
	g.Eventually(checkState(t, filled, tg.gateCheck())).Should(HavePrefix("Pending: no cluster has"))
	const limit = 256 << 10 // bytes of all annotations
	tg.patch(filled, `{"metadata":{"annotations":{"filler":"`+strings.Repeat("x", limit-len("filler"))+`"}}}`)
	fleet.reset(map[string]*clusterMetrics{"refused-1": {1, 8, 8, 64}, "refused-2": {0, 0, 0, 64}})
	g.Eventually(checkState(t, filled, tg.gateCheck())).Should(And(HavePrefix("Pending: the API server refuses a write of the gate"), ContainSubstring("annotations: Too long")))
	g.Expect(nominatedClusters(t, filled)()).To(BeEmpty())
	g.Eventually(eventsOf(t, filled)).Should(ContainElement(HavePrefix("WriteRefused: ")))

	other := tg.submitGated("other", 1)
	g.Eventually(nominatedClusters(t, other)).Should(Equal([]string{"refused-1"}))
}
