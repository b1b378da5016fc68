package waitqueue

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

const h100 = "NVIDIA-H100-80GB-HBM3"

// fixture is a queue for the gate "gpu" that starts at noon. It records the requested
// refreshes and the woken workloads, and decides these.
type fixture struct {
	*Queue
	now       time.Time
	gates     *gatestate.Registry
	refreshes []refresh
	woken     []types.NamespacedName
	// room is the number of workloads that still find room, by line.
	room map[string]int
	// outcome of the decisions.
	outcome string
	// decided are the names of the decided workloads in their order.
	decided []string
	// reported are those that were woken without a turn, to report what the queue did.
	reported []string
}

type refresh struct {
	key       gatestate.QueryKey
	newerThan time.Time
}

// newFixture returns a fixture whose gate has the period. With 0 the gate does not exist.
func newFixture(periodSeconds int32) *fixture {
	f := &fixture{now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC), gates: gatestate.New(), outcome: "NoRoom"}
	if periodSeconds > 0 {
		f.gates.Put(gatestate.Gate{Name: "gpu", Spec: v1alpha1.PlacementGateSpec{PeriodSeconds: periodSeconds}})
	}
	f.Queue = New(f.gates, func() time.Time { return f.now }, func(key gatestate.QueryKey, newerThan time.Time) {
		f.refreshes = append(f.refreshes, refresh{key, newerThan})
	})
	f.SetEnqueuer(func(w types.NamespacedName) { f.woken = append(f.woken, w) })
	return f
}

func key(facts string) gatestate.QueryKey { return gatestate.QueryKey{Gate: "gpu", Facts: facts} }

// entry is a workload that has waited for devices of a model.
func (f *fixture) entry(model, facts, name string, priority int32, waited time.Duration) Entry {
	return Entry{Workload: workload(name), Key: key(facts), Aging: 4 * time.Hour,
		Rank:    ledger.Rank{Priority: priority, Since: f.now.Add(-waited), Name: name},
		PodSets: []shape.PodSet{{Resource: "nvidia.com/gpu", Model: model, DevicesPerPod: 1, Pods: 1}}}
}

func (f *fixture) add(facts, name string, priority int32, waited time.Duration) {
	f.addFor(h100, facts, name, priority, waited)
}

func (f *fixture) addFor(model, facts, name string, priority int32, waited time.Duration) {
	f.Add(f.entry(model, facts, name, priority, waited))
}

// run finishes the latest refresh of each key and decides what is woken.
func (f *fixture) run() {
	latest := map[gatestate.QueryKey]time.Time{}
	for _, r := range f.refreshes {
		latest[r.key] = r.newerThan
	}
	f.refreshes = nil
	for key, newerThan := range latest {
		f.Refreshed(key, newerThan)
	}
	f.decideWoken()
}

// decideWoken decides woken workloads until none is left.
func (f *fixture) decideWoken() {
	for len(f.woken) > 0 {
		w := f.woken[0]
		f.woken = f.woken[1:]
		e, ok := f.workloads[w]
		if !ok {
			continue
		}
		if !f.HasTurn(w) {
			f.reported = append(f.reported, w.Name)
			continue
		}
		f.decided = append(f.decided, w.Name)
		if facts := e.Key.Facts; f.room[facts] > 0 {
			f.room[facts]--
			f.Remove(w)
			continue
		}
		f.Decided(w, f.outcome)
	}
}

func workload(name string) types.NamespacedName { return types.NamespacedName{Name: name} }
