//go:build e2e && long

package e2e

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	workv1 "open-cluster-management.io/api/work/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// workHistory records the states of the add-on's ManifestWorks in the order in which the hub
// stored them.
type workHistory struct {
	mu     sync.Mutex
	before map[string]workState // latest states before the last reset, by cluster
	states []workState
}

// workState is a ManifestWork after one write.
type workState struct {
	cluster    string
	generation int64
	ready      bool // OCM's work agent applied this generation, and its objects exist
}

// watchWorks records until the end of the test.
func watchWorks(ctx context.Context, t *testing.T) *workHistory {
	t.Helper()
	events, err := lab.Hub.Client.Watch(ctx, &workv1.ManifestWorkList{}, client.MatchingLabels{addonv1alpha1.AddonLabelKey: addOn})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(events.Stop)
	h := &workHistory{}
	go func() {
		for event := range events.ResultChan() {
			if work, ok := event.Object.(*workv1.ManifestWork); ok {
				h.add(workState{work.Namespace, work.Generation, isReady(work)})
			}
		}
	}()
	return h
}

func isReady(work *workv1.ManifestWork) bool {
	for _, kind := range []string{workv1.WorkApplied, workv1.WorkAvailable} {
		c := meta.FindStatusCondition(work.Status.Conditions, kind)
		if c == nil || c.Status != "True" || c.ObservedGeneration != work.Generation {
			return false
		}
	}
	return true
}

func (h *workHistory) add(s workState) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.states = append(h.states, s)
}

// reset starts a new history.
func (h *workHistory) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.before = h.latest()
	h.states = nil
}

func (h *workHistory) latest() map[string]workState {
	latest := map[string]workState{}
	maps.Copy(latest, h.before)
	for _, s := range h.states {
		latest[s.cluster] = s
	}
	return latest
}

// outOfTurn returns each change of a ManifestWork while that of another worker was changed and
// not ready. It fails the test unless the ManifestWorks of all workers changed.
func (h *workHistory) outOfTurn(t *testing.T) (violations []string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	latest, changed := map[string]workState{}, map[string]bool{}
	maps.Copy(latest, h.before)
	var order []string
	for _, s := range h.states {
		before, known := latest[s.cluster]
		latest[s.cluster] = s
		if known && before.generation == s.generation {
			continue
		}
		for _, other := range latest {
			if changed[other.cluster] && other.cluster != s.cluster && !other.ready {
				violations = append(violations, fmt.Sprintf("OCM changed %s while %s was not ready: %+v", s.cluster, other.cluster, h.states))
			}
		}
		if !changed[s.cluster] {
			order = append(order, s.cluster)
		}
		changed[s.cluster] = true
	}
	t.Logf("OCM changed the clusters in the order %v", order)
	if len(order) != len(lab.Workers) {
		t.Errorf("ManifestWorks of %v changed, want all workers", order)
	}
	return violations
}
