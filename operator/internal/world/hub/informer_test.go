package hub

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// recorder is an event handler that records its events.
type recorder struct {
	events       []string
	registration toolscache.ResourceEventHandlerRegistration
	// onEvent runs at each event; nil = nothing.
	onEvent func()
}

// record adds a recorder to the informer of a kind.
func (v *viewFixture) record(obj client.Object) *recorder {
	v.Helper()
	inf, err := v.GetInformer(background, obj)
	v.must(err)
	r := &recorder{}
	note := func(text string) {
		r.events = append(r.events, text)
		if r.onEvent != nil {
			r.onEvent()
		}
	}
	r.registration, err = inf.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			text := "add " + obj.(client.Object).GetName()
			if initial {
				text += " initial"
			}
			note(text)
		},
		UpdateFunc: func(old, next any) {
			note("update " + next.(client.Object).GetName() + " " + old.(client.Object).GetResourceVersion() + "-" + next.(client.Object).GetResourceVersion())
		},
		DeleteFunc: func(obj any) { note("delete " + obj.(client.Object).GetName()) },
	})
	v.must(err)
	return r
}

func (r *recorder) take() []string {
	events := r.events
	r.events = nil
	return events
}

func (v *viewFixture) expect(what string, r *recorder, want ...string) {
	v.Helper()
	if diff := cmp.Diff(want, r.take()); diff != "" {
		v.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestHandlers(t *testing.T) {
	v := newViewFixture(t, ViewOptions{Delay: delayOf(time.Second)})
	v.must(v.fixture.client.Create(t.Context(), newWorkload("a")))
	first := v.record(&kueue.Workload{})
	if first.registration.HasSynced() {
		t.Error("the handler must not be synced before its first event")
	}
	v.loop.run(0)
	v.expect("present objects", first, "add a initial")
	if !first.registration.HasSynced() || !v.WaitForCacheSync(t.Context()) {
		t.Error("the handler must be synced")
	}

	// A handler that is added while events are in flight gets each state once.
	v.setLabel("a", "x", "1")
	v.must(v.fixture.client.Create(t.Context(), newWorkload("b")))
	second := v.record(&kueue.Workload{})
	v.loop.run(0)
	v.expect("before the events", second, "add a initial")
	v.loop.run(time.Second)
	v.expect("first handler", first, "update a 1-2", "add b")
	v.expect("second handler", second, "update a 1-2", "add b")

	v.must(v.fixture.client.Delete(t.Context(), newWorkload("a")))
	v.must(v.fixture.client.Create(t.Context(), newWorkload("a")))
	v.loop.run(time.Second)
	v.expect("deleted and created again", first, "delete a", "add a")

	inf, err := v.GetInformerForKind(t.Context(), kueue.SchemeGroupVersion.WithKind("Workload"))
	v.must(err)
	v.setLabel("a", "x", "2")
	v.must(inf.RemoveEventHandler(first.registration))
	second.take()
	v.loop.run(time.Second)
	v.expect("removed handler", first)
	v.expect("other handler", second, "update a 5-6")

	v.setLabel("a", "x", "3")
	v.Stop()
	v.loop.run(time.Second)
	v.expect("stopped process", second)
	if !inf.IsStopped() || !inf.HasSynced() {
		t.Error("the informer must be stopped and synced")
	}
	if _, err := inf.AddEventHandler(toolscache.ResourceEventHandlerFuncs{}); err == nil {
		t.Error("a stopped informer must refuse handlers")
	}
}

// An event is never delivered before an earlier one of its kind. Events of other kinds overtake it.
func TestEventOrder(t *testing.T) {
	delays := map[string]time.Duration{"slow": 5 * time.Second, "fast": time.Second, "gate": time.Second}
	v := newViewFixture(t, ViewOptions{Delay: func(_ schema.GroupVersionKind, key types.NamespacedName, _ string) time.Duration {
		return delays[key.Name]
	}})
	workloads, gates := v.record(&kueue.Workload{}), v.record(&v1alpha1.PlacementGate{})
	v.loop.run(0)
	gate := &v1alpha1.PlacementGate{}
	gate.Name = "gate"
	for _, obj := range []client.Object{newWorkload("slow"), newWorkload("fast"), gate} {
		v.must(v.fixture.client.Create(t.Context(), obj))
	}
	v.loop.run(time.Second)
	v.expect("workloads after 1 s", workloads)
	v.expect("gates after 1 s", gates, "add gate")
	v.loop.run(4 * time.Second)
	v.expect("workloads after 5 s", workloads, "add slow", "add fast")
}

// Each handler gets its event in a scheduled function of its own, after the cache was updated.
func TestHandlersRunOneByOne(t *testing.T) {
	v := newViewFixture(t, ViewOptions{})
	first, second := v.record(&kueue.Workload{}), v.record(&kueue.Workload{})
	v.loop.run(0)
	v.must(v.fixture.client.Create(t.Context(), newWorkload("a")))
	first.onEvent = func() {
		if len(v.names()) != 1 {
			t.Error("the cache must be updated before the handlers run")
		}
	}
	steps := []int{}
	for len(v.loop.queue) > 0 {
		next := v.loop.queue[0]
		v.loop.queue = v.loop.queue[1:]
		next.do()
		steps = append(steps, len(first.events)*10+len(second.events))
	}
	if diff := cmp.Diff([]int{0, 10, 11}, steps); diff != "" {
		t.Errorf("events of the handlers after each function (-want +got):\n%s", diff)
	}
}

func TestRemoveInformer(t *testing.T) {
	v := newViewFixture(t, ViewOptions{})
	r := v.record(&kueue.Workload{})
	v.loop.run(0)
	v.must(v.RemoveInformer(t.Context(), &kueue.Workload{}))
	v.must(v.fixture.client.Create(t.Context(), newWorkload("a")))
	v.loop.run(0)
	v.expect("removed informer", r)
	if len(v.names()) != 1 {
		t.Error("the next read must start a new informer")
	}
}
