package workload

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/admission/waitqueue"
)

// expectExplained compares the explanation of the workload with the decision of a reconciliation.
// A Pending workload waits for what the decision says.
func (b *bench) expectExplained() {
	b.t.Helper()
	b.lead()
	want := lifecycle.Next(b.look()).Decision
	got, err := b.Explain(b.t.Context(), b.key)
	if err != nil {
		b.t.Fatal(err)
	}
	text := func(d *gate.Decision) string { return string(d.State) + " " + d.Reason + ": " + d.Message }
	if text(&got.Decision) != text(want) {
		b.t.Errorf("explained %s, the gate decides %s", text(&got.Decision), text(want))
	}
	if check := b.check(); got.State != string(check.State) || got.Message != check.Message {
		b.t.Errorf("explained check %s %q, it is %s %q", got.State, got.Message, check.State, check.Message)
	}
	if want.State != gate.Ready && got.WaitsFor != want.Message {
		b.t.Errorf("explained: waits for %q, want %q", got.WaitsFor, want.Message)
	}
}

// An explanation says that the gate gives the workload up.
func TestExplanationOfAWorkloadThatIsGivenUp(t *testing.T) {
	minute := int32(60)
	b := newBench(t, v1alpha1.PlacementGateSpec{WhenUnplaceable: v1alpha1.WhenUnplaceable{GiveUpAfterSeconds: &minute}})
	b.room(map[string]float64{"cluster1": 0, "cluster2": 0})
	b.create(fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon)))
	b.reconcile()
	b.clock.add(2 * time.Minute)
	if d := lifecycle.Next(b.look()).Decision; d.Reason != gate.ReasonGaveUp {
		t.Fatalf("the gate decides %s %s", d.State, d.Reason)
	}
	b.expectExplained()
}

// A caller who may read a Workload of one namespace sees that devices are reserved for others, and not
// for whom.
func TestExplanationHidesWorkloadsOfOtherNamespaces(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.lead()
	b.create(fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon)))
	podSets := []shape.PodSet{{Name: "trainer", Resource: "nvidia.com/gpu", Model: "H100", Flavor: "secret-flavor", DevicesPerPod: 2, Pods: 3, NodeSelector: map[string]string{"team": "secret"}}}
	for _, namespace := range []string{"team-a", "team-b"} {
		b.engine.Ledger.Debit(ledger.Entry{UID: "uid-" + namespace, Workload: namespace + "/secret-project", Cluster: "cluster1", Queue: ledger.Queue{Cluster: "secret-queue"}, PodSets: podSets,
			DebitedAt: fixture.Noon, Owners: []ledger.Owner{{Namespace: namespace, Kind: "Job", Name: "secret-project"}}})
	}
	b.engine.Waiting.Add(waitqueue.Entry{Workload: types.NamespacedName{Namespace: "team-b", Name: "secret-urgent"}, Key: gatestate.QueryKey{Gate: "gpu", Facts: "eight devices"},
		Rank: ledger.Rank{Priority: 1000, Since: fixture.Noon, Name: "team-b/secret-urgent"}, PodSets: b.look().Request.Facts.PodSets})

	response := httptest.NewRecorder()
	b.Handler().ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), http.MethodGet, Prefix+"team-a/job", nil))
	var e gate.Explanation
	if err := json.Unmarshal(response.Body.Bytes(), &e); err != nil || response.Code != http.StatusOK {
		t.Fatalf("status %d, %v: %s", response.Code, err, response.Body)
	}
	i := slices.IndexFunc(e.Clusters, func(c gate.ClusterExplanation) bool { return c.Cluster == "cluster1" })
	if i < 0 || len(e.Clusters[i].Ledger) != 2 {
		t.Fatalf("clusters %+v", e.Clusters)
	}
	for _, entry := range e.Clusters[i].Ledger {
		if entry.Workload == "team-a/secret-project" {
			if d := cmp.Diff(podSets, entry.PodSets); d != "" || entry.UID != "uid-team-a" || len(entry.Owners) != 1 {
				t.Errorf("entry of the own namespace %+v", entry)
			}
			continue
		}
		want := ledger.Entry{Workload: otherNamespace, Cluster: "cluster1", DebitedAt: fixture.Noon, PodSets: []shape.PodSet{{Resource: "nvidia.com/gpu", DevicesPerPod: 2, Pods: 3}}}
		if d := cmp.Diff(want, entry); d != "" {
			t.Errorf("entry of another namespace (-want +got):\n%s", d)
		}
	}
	if want := "there is room, but a workload of another namespace is decided first"; e.Preceding != otherNamespace || e.Decision.Message != want || e.WaitsFor != want {
		t.Errorf("preceding %q, decision %q, waits for %q", e.Preceding, e.Decision.Message, e.WaitsFor)
	}
	if text := response.Body.String(); strings.Contains(text, "team-b") {
		t.Errorf("the explanation names team-b:\n%s", text)
	}
}
