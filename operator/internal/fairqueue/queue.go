// Package fairqueue contains work queues that serve tenants in turn.
//
// A tenant with 1,000 items delays an item of another tenant by one item, not by 1,000. The
// items of one tenant keep their order.
package fairqueue

import (
	"slices"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// New returns a work queue that serves tenants in turn.
func New[T comparable](tenantOf func(T) string) workqueue.TypedInterface[T] {
	return workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[T]{Queue: newStorage(tenantOf)})
}

// NewForRequests returns the work queue of a controller. The namespaces are the tenants.
func NewForRequests(controllerName string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{
		Name: controllerName,
		DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[reconcile.Request]{
			Name: controllerName,
			Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[reconcile.Request]{
				Name:  controllerName,
				Queue: newStorage(func(r reconcile.Request) string { return r.Namespace }),
			}),
		}),
	})
}

// storage implements workqueue.Queue, which calls it under its own lock.
type storage[T comparable] struct {
	tenantOf func(T) string
	// items of each tenant that has any, the first one first.
	items map[string][]T
	// turns are these tenants in the order of their turns.
	turns []string
	count int
}

func newStorage[T comparable](tenantOf func(T) string) *storage[T] {
	return &storage[T]{tenantOf: tenantOf, items: map[string][]T{}}
}

// Touch implements workqueue.Queue: an item that is added again keeps its place.
func (s *storage[T]) Touch(T) {}

// Push implements workqueue.Queue.
func (s *storage[T]) Push(item T) {
	tenant := s.tenantOf(item)
	if len(s.items[tenant]) == 0 {
		s.turns = append(s.turns, tenant)
	}
	s.items[tenant] = append(s.items[tenant], item)
	s.count++
}

// Len implements workqueue.Queue.
func (s *storage[T]) Len() int { return s.count }

// Pop implements workqueue.Queue.
func (s *storage[T]) Pop() T {
	tenant := s.turns[0]
	s.turns = slices.Delete(s.turns, 0, 1)
	items := s.items[tenant]
	item, rest := items[0], items[1:]
	s.count--
	if len(rest) == 0 {
		delete(s.items, tenant)
		return item
	}
	clear(items[:1]) // the array outlives the item
	s.items[tenant] = rest
	s.turns = append(s.turns, tenant)
	return item
}
