package hub

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// item is an object in a store. The object is replaced, never changed.
type item struct {
	key types.NamespacedName
	obj client.Object
	// managers are the owners of the object's fields; only the server has them.
	managers []ownership
}

// items are items sorted by namespace and name.
type items []*item

func (s items) search(key types.NamespacedName) (int, bool) {
	return slices.BinarySearchFunc(s, key, func(i *item, key types.NamespacedName) int { return compareKeys(i.key, key) })
}

func (s *items) insert(i *item) {
	at, exists := s.search(i.key)
	if !exists {
		*s = slices.Insert(*s, at, i)
	}
}

func (s *items) remove(key types.NamespacedName) {
	if at, exists := s.search(key); exists {
		*s = slices.Delete(*s, at, at+1)
	}
}

// in returns the items of a namespace; empty = all.
func (s items) in(namespace string) items {
	if namespace == "" {
		return s
	}
	first, _ := s.search(types.NamespacedName{Namespace: namespace})
	last := first
	for last < len(s) && s[last].key.Namespace == namespace {
		last++
	}
	return s[first:last]
}

func compareKeys(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// store is all objects of a kind.
type store struct {
	byKey  map[types.NamespacedName]*item
	sorted items
}

func newStore() *store { return &store{byKey: map[types.NamespacedName]*item{}} }

func (s *store) put(i *item) {
	s.byKey[i.key] = i
	s.sorted.insert(i)
}

func (s *store) delete(key types.NamespacedName) {
	delete(s.byKey, key)
	s.sorted.remove(key)
}
