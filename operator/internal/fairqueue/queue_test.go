package fairqueue

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func request(namespace string, i int) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: fmt.Sprint(i)}}
}

// take returns the next n items, which stay in progress.
func take(q workqueue.TypedInterface[reconcile.Request], n int) []string {
	var items []string
	for range n {
		item, _ := q.Get()
		items = append(items, item.String())
	}
	return items
}

func TestTenantsTakeTurns(t *testing.T) {
	q := NewForRequests("test", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	for i := range 1000 {
		q.Add(request("flood", i))
		q.Add(request("flood", i)) // keeps its place
	}
	q.Add(request("a", 0))
	q.Add(request("a", 1))
	q.Add(request("b", 0))
	if diff := cmp.Diff([]string{"flood/0", "a/0", "b/0", "flood/1", "a/1", "flood/2", "flood/3"}, take(q, 7)); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	q.Add(request("c", 0))
	if diff := cmp.Diff([]string{"flood/4", "c/0", "flood/5"}, take(q, 3)); diff != "" {
		t.Errorf("order after another tenant came (-want +got):\n%s", diff)
	}
	if got := q.Len(); got != 994 {
		t.Errorf("%d items left, want 994", got)
	}
}

// An item that is added while it is in progress comes back after it is done.
func TestItemInProgressComesBack(t *testing.T) {
	q := New(func(r reconcile.Request) string { return r.Namespace })
	defer q.ShutDown()
	q.Add(request("a", 0))
	take(q, 1)
	q.Add(request("a", 0))
	if q.Len() != 0 {
		t.Fatal("the item is served twice at once")
	}
	q.Done(request("a", 0))
	if diff := cmp.Diff([]string{"a/0"}, take(q, 1)); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}
