package hub

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// viewFixture is a process with a loop that delivers its events.
type viewFixture struct {
	*fixture
	*View
	loop *loop
}

func newViewFixture(t *testing.T, opts ViewOptions) *viewFixture {
	t.Helper()
	f := newFixture(t)
	return f.newView(opts)
}

func (f *fixture) newView(opts ViewOptions) *viewFixture {
	v := &viewFixture{fixture: f, loop: &loop{clock: f.clock}}
	opts.Schedule = v.loop.schedule
	v.View = f.server.NewView(opts)
	return v
}

func delayOf(d time.Duration) func(schema.GroupVersionKind, types.NamespacedName, string) time.Duration {
	return func(schema.GroupVersionKind, types.NamespacedName, string) time.Duration { return d }
}

// names returns the names that a list of the cache contains.
func (v *viewFixture) names(opts ...client.ListOption) []string {
	v.Helper()
	list := &kueue.WorkloadList{}
	v.must(v.View.List(background, list, opts...))
	names := []string{}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

func TestCachedReads(t *testing.T) {
	v := newViewFixture(t, ViewOptions{Delay: delayOf(2 * time.Second)})
	v.create(newWorkload("a"))
	cached := &kueue.Workload{}
	v.must(v.Client().Get(t.Context(), key("a"), cached))
	if cached.Kind != "Workload" || cached.Status.Admission == nil {
		t.Errorf("the objects that exist at the first read must be cached: %+v", cached)
	}
	cached.Labels["app"] = "changed by the reader"

	v.create(newWorkload("b"))
	if diff := cmp.Diff([]string{"a"}, v.names()); diff != "" {
		t.Errorf("before the event (-want +got):\n%s", diff)
	}
	if err := v.Client().Get(t.Context(), key("b"), cached); !apierrors.IsNotFound(err) {
		t.Errorf("before the event: %v", err)
	}
	v.must(v.Reader().Get(t.Context(), key("b"), cached))
	v.loop.run(time.Second)
	if len(v.names()) != 1 {
		t.Error("the event came too early")
	}
	v.loop.run(time.Second)
	if diff := cmp.Diff([]string{"a", "b"}, v.names()); diff != "" {
		t.Errorf("after the event (-want +got):\n%s", diff)
	}
	v.must(v.Client().Get(t.Context(), key("a"), cached))
	if cached.Labels["app"] != "a" {
		t.Error("a reader changed the cache")
	}
	list := &kueue.WorkloadList{}
	v.must(v.Client().List(t.Context(), list, client.UnsafeDisableDeepCopy))
	if stored := v.informers[kueue.SchemeGroupVersion.WithKind("Workload")].byKey[key("a")].obj.(*kueue.Workload); &list.Items[0].Status.Conditions[0] != &stored.Status.Conditions[0] {
		t.Error("UnsafeDisableDeepCopy must not copy")
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kueue.SchemeGroupVersion.WithKind("Workload"))
	v.must(v.Client().Get(t.Context(), key("a"), u))
	if len(u.GetManagedFields()) == 0 {
		t.Error("an unstructured read must be live")
	}
}

func TestIndexes(t *testing.T) {
	v := newViewFixture(t, ViewOptions{Delay: delayOf(time.Second)})
	queue := func(o client.Object) []string { return []string{string(o.(*kueue.Workload).Spec.QueueName)} }
	labels := func(o client.Object) []string { return slices.Sorted(maps.Keys(o.GetLabels())) }
	v.must(v.IndexField(t.Context(), &kueue.Workload{}, "queue", queue))
	for _, name := range []string{"c", "a", "b"} {
		v.must(v.fixture.client.Create(t.Context(), newWorkload(name)))
	}
	inQueue := func(name string) []string { return v.names(client.MatchingFields{"queue": name}) }
	expect := func(what string, want, got []string) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	expect("by queue", []string{"a", "b", "c"}, inQueue("gpu"))
	expect("limit", []string{"a"}, v.names(client.MatchingFields{"queue": "gpu"}, client.Limit(1)))
	expect("namespace", []string{}, v.names(client.MatchingFields{"queue": "gpu"}, client.InNamespace("x")))

	_, err := Update(v.fixture.server, key("b"), "m", func(wl *kueue.Workload) bool { wl.Spec.QueueName = "cpu"; return true })
	v.must(err)
	expect("before the event", []string{"a", "b", "c"}, inQueue("gpu"))
	v.loop.run(time.Second)
	expect("old value", []string{"a", "c"}, inQueue("gpu"))
	expect("new value", []string{"b"}, inQueue("cpu"))
	// The index has the object, not the version: a change of another field shows.
	_, err = Update(v.fixture.server, key("b"), "m", func(wl *kueue.Workload) bool { wl.Labels["new"] = "x"; return true })
	v.must(err)
	v.must(v.fixture.client.Delete(t.Context(), newWorkload("a")))
	v.loop.run(time.Second)
	expect("after a deletion", []string{"c"}, inQueue("gpu"))
	expect("with a label", []string{"b"}, v.names(client.MatchingFields{"queue": "cpu"}, client.HasLabels{"new"}))

	v.must(v.IndexField(t.Context(), &kueue.Workload{}, "label", labels))
	expect("an index that was added later", []string{"b", "c"}, v.names(client.MatchingFields{"label": "app"}))
	expect("two fields", []string{"b"}, v.names(client.MatchingFields{"label": "app", "queue": "cpu"}))
	if err := v.IndexField(t.Context(), &kueue.Workload{}, "label", labels); err == nil {
		t.Error("a second index of the same name must be refused")
	}
	if err := v.View.List(t.Context(), &kueue.WorkloadList{}, client.MatchingFields{"unknown": "x"}); err == nil {
		t.Error("a field without an index must be an error")
	}
}

func TestTransformAndSelect(t *testing.T) {
	v := newViewFixture(t, ViewOptions{
		Transform: func(obj any) (any, error) { obj.(client.Object).SetManagedFields(nil); return obj, nil },
		Select:    func(obj client.Object) bool { return obj.GetLabels()["hidden"] == "" },
	})
	v.create(newWorkload("a"))
	v.create(newWorkload("b"))
	cached := &kueue.Workload{}
	v.must(v.View.Get(t.Context(), key("a"), cached))
	if cached.ManagedFields != nil || v.workloadNamed("a").ManagedFields == nil {
		t.Error("Transform must change the cached object only")
	}
	r := v.record(&kueue.Workload{})
	v.loop.run(0)
	v.setLabel("a", "hidden", "yes")
	v.setLabel("a", "x", "y")
	v.loop.run(0)
	v.setLabel("a", "hidden", "")
	v.loop.run(0)
	if diff := cmp.Diff([]string{"add a initial", "add b initial", "delete a", "add a"}, r.take()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func (f *fixture) workloadNamed(name string) *kueue.Workload {
	return Get[*kueue.Workload](f.server, key(name))
}

func (f *fixture) setLabel(name, label, value string) {
	f.Helper()
	_, err := Update(f.server, key(name), "m", func(wl *kueue.Workload) bool {
		wl.Labels[label] = value
		return true
	})
	f.must(err)
}

func TestFaults(t *testing.T) {
	lost, refused := errors.New("lost"), errors.New("refused")
	var fault Fault
	var requests, written []string
	v := newViewFixture(t, ViewOptions{Manager: "plimsoll",
		Intercept: func(r Request) Fault {
			requests = append(requests, fmt.Sprint(r.Verb, " ", r.Kind.Kind, " ", r.Key.Name, " ", r.Subresource))
			return fault
		},
		OnWrite: func(r Request) { written = append(written, r.Verb) },
	})
	c := v.Client()
	v.must(c.Create(t.Context(), newWorkload("a")))
	v.must(c.Get(t.Context(), key("a"), &kueue.Workload{}))
	if ownedBy(v.workloadNamed("a"), "plimsoll", updatedOp, "") == "" {
		t.Error("Manager must be the field manager")
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"clusterName":"c"}}`))
	fault = Fault{Before: refused}
	if err := c.Status().Patch(t.Context(), newWorkload("a"), patch); !errors.Is(err, refused) || v.workloadNamed("a").Status.ClusterName != nil {
		t.Errorf("Before must refuse the request: %v", err)
	}
	fault = Fault{After: lost}
	if err := c.Status().Patch(t.Context(), newWorkload("a"), patch); !errors.Is(err, lost) || v.workloadNamed("a").Status.ClusterName == nil {
		t.Errorf("After must lose the response only: %v", err)
	}
	if err := c.Delete(t.Context(), newWorkload("unknown")); !apierrors.IsNotFound(err) {
		t.Errorf("an error of the server must win over After: %v", err)
	}
	fault = Fault{}
	v.must(v.Reader().List(t.Context(), &kueue.WorkloadList{}))
	if diff := cmp.Diff([]string{"create Workload a ", "patch Workload a status", "patch Workload a status", "delete Workload unknown ", "list Workload  "}, requests); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"create", "patch"}, written); diff != "" || v.Writes()["Workload"] != 2 {
		t.Errorf("writes %v (-want +got):\n%s", v.Writes(), diff)
	}
	v.Stop()
	if err := c.Delete(t.Context(), newWorkload("a")); !errors.Is(err, ErrStopped) || v.workloadNamed("a") == nil {
		t.Errorf("a request of a process that has ended: %v", err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := v.newView(ViewOptions{}).Client().Delete(canceled, newWorkload("a")); !errors.Is(err, context.Canceled) {
		t.Errorf("a request with a canceled context: %v", err)
	}
}

func TestTwoViews(t *testing.T) {
	f := newFixture(t)
	slow, fast := f.newView(ViewOptions{Delay: delayOf(time.Minute)}), f.newView(ViewOptions{Delay: delayOf(time.Second)})
	fast.loop = slow.loop
	fast.View.opts.Schedule = slow.loop.schedule
	slow.names() // starts the caches
	fast.names()
	f.must(fast.Client().Create(t.Context(), newWorkload("a")))
	slow.loop.run(time.Second)
	slowNames, fastNames := slow.names(), fast.names()
	if len(slowNames) != 0 || len(fastNames) != 1 {
		t.Errorf("slow %v, fast %v", slowNames, fastNames)
	}
	fast.Stop()
	f.must(slow.Client().Create(t.Context(), newWorkload("b")))
	slow.loop.run(time.Minute)
	if diff := cmp.Diff([]string{"a", "b"}, slow.names()); diff != "" || len(fast.names()) != 1 {
		t.Errorf("the other process must go on (-want +got):\n%s", diff)
	}
}
