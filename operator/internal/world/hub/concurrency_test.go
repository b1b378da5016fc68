package hub

import (
	"strconv"
	"sync"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Writers on several goroutines lose no update, and everybody gets the events by version.
func TestConcurrentWriters(t *testing.T) {
	const writers, writes = 8, 50
	v := newViewFixture(t, ViewOptions{})
	v.must(v.fixture.client.Create(t.Context(), newWorkload("job")))
	last := 0
	v.fixture.server.OnChange(func(e Event) {
		version, err := strconv.Atoi(e.Version)
		if err != nil || version <= last {
			t.Errorf("version %s after %d", e.Version, last)
		}
		last = version
	})
	r := v.record(&kueue.Workload{})
	v.loop.run(0)
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			for range writes {
				_, err := Update(v.fixture.server, key("job"), "writer", func(wl *kueue.Workload) bool { wl.Spec.PodSets[0].Count++; return true })
				if err != nil {
					t.Error(err)
				}
				if err := v.Client().Get(background, key("job"), &kueue.Workload{}); err != nil {
					t.Error(err)
				}
				if err := v.Reader().List(background, &kueue.WorkloadList{}, client.InNamespace("team")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	v.loop.run(0)
	if count := v.workloadNamed("job").Spec.PodSets[0].Count; count != 2+writers*writes {
		t.Errorf("%d updates arrived", count-2)
	}
	if len(r.events) != 1+writers*writes {
		t.Errorf("%d events", len(r.events))
	}
}
