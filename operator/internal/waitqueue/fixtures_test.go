package waitqueue

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/querycache"
	"plimsoll.dev/plimsoll/operator/internal/registry"
)

// fixture is a queue for the gate "gpu" that starts at noon. It records the requested
// refreshes and counts the wake-ups.
type fixture struct {
	*Queue
	now       time.Time
	gates     *registry.Registry
	refreshes []refresh
	woken     int
}

type refresh struct {
	key       querycache.Key
	newerThan time.Time
}

// newFixture returns a fixture whose gate has the period. With 0 the gate does not exist.
func newFixture(periodSeconds int32) *fixture {
	f := &fixture{now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC), gates: registry.New()}
	if periodSeconds > 0 {
		f.gates.Put(registry.Gate{Name: "gpu", Spec: v1alpha1.PlacementGateSpec{PeriodSeconds: periodSeconds}})
	}
	f.Queue = New(f.gates, func() time.Time { return f.now }, func(key querycache.Key, newerThan time.Time) {
		f.refreshes = append(f.refreshes, refresh{key, newerThan})
	})
	f.SetEnqueuer(func(types.NamespacedName) { f.woken++ })
	return f
}

// finishRefreshes finishes the latest refresh of each key.
func (f *fixture) finishRefreshes() {
	latest := map[querycache.Key]time.Time{}
	for _, r := range f.refreshes {
		latest[r.key] = r.newerThan
	}
	f.refreshes = nil
	for key, newerThan := range latest {
		f.Refreshed(key, newerThan)
	}
}

func workload(name string) types.NamespacedName { return types.NamespacedName{Name: name} }
