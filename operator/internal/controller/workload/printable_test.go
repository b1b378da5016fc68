package workload

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
)

// hostile is a text that sets the title of a terminal, clears it and fakes a line.
const hostile = "\x1b]0;pwned\x07\x1b[2J\nfaked \u202eline \u009b2J"

// Texts of users, and of the API servers of workers, reach checks and events, which administrators read
// on terminals.
func TestMessagesArePrintable(t *testing.T) {
	for _, tc := range []struct {
		name    string
		prepare func(*bench, *kueue.Workload)
	}{
		{"node selector", func(_ *bench, wl *kueue.Workload) {
			wl.Spec.PodSets[0].Template.Spec.NodeSelector = map[string]string{"zone" + hostile: "a"}
		}},
		{"model", func(b *bench, wl *kueue.Workload) {
			wl.Spec.PodSets[0].Template.Spec.NodeSelector = map[string]string{"nvidia.com/gpu.product": hostile}
			b.putGate(func(g *gatestate.Gate) { g.Spec.ModelFrom = []string{"nvidia.com/gpu.product"} })
			b.room(map[string]float64{"cluster1": 0})
		}},
		{"connection of a worker", func(b *bench, _ *kueue.Workload) {
			b.room(map[string]float64{"cluster1": 0})
			cluster := &kueue.MultiKueueCluster{}
			if err := b.hub.Get(b.t.Context(), types.NamespacedName{Name: "cluster2"}, cluster); err != nil {
				b.t.Fatal(err)
			}
			cluster.Status.Conditions = []metav1.Condition{{Type: kueue.MultiKueueClusterActive, Status: metav1.ConditionFalse, Message: hostile}}
			if err := b.hub.Status().Update(b.t.Context(), cluster); err != nil {
				b.t.Fatal(err)
			}
		}},
		{"problem of the gate", func(b *bench, _ *kueue.Workload) { b.putGate(func(g *gatestate.Gate) { g.Problem = hostile }) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			wl := fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon))
			tc.prepare(b, wl)
			b.create(wl)
			b.reconcile()
			b.clock.add(time.Minute)
			b.reconcile()
			isForeign := false
			for _, text := range append(b.events(), fmt.Sprint(checkTexts(b.workload()))) {
				isForeign = isForeign || strings.Contains(text, "2J")
				if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
					t.Errorf("message %q", text)
				}
			}
			if !isForeign {
				t.Errorf("no message has the foreign text: %v", checkTexts(b.workload()))
			}
			if n := len(b.check().Message); n > gate.MaxMessage {
				t.Errorf("%d bytes", n)
			}
		})
	}
}
