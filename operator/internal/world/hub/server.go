package hub

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// EventType is what happened to an object.
type EventType string

// What happens to objects.
const (
	Added    EventType = "Added"
	Modified EventType = "Modified"
	Deleted  EventType = "Deleted"
)

// Event is a change of an object. Old and New are the stored objects, which must not be changed.
// Old is nil if the object was added, New if it was deleted.
type Event struct {
	Type     EventType
	Kind     schema.GroupVersionKind
	Key      types.NamespacedName
	Old, New client.Object
	// Manager is the field manager of the write.
	Manager string
	// Version is the resourceVersion of the change. A deletion has one, too.
	Version string

	number uint64
}

// Server is an API server in memory. All methods are safe for concurrent use. Stored objects are
// never changed, so that they can be shared.
type Server struct {
	scheme *runtime.Scheme
	now    func() time.Time
	mapper meta.RESTMapper
	byGVK  map[schema.GroupVersionKind]*kind
	byType map[reflect.Type]*kind

	mu      sync.Mutex
	version uint64
	uids    uint64
	stores  map[schema.GroupVersionKind]*store
	// dependents are the objects by the UIDs of their owners.
	dependents map[types.UID]map[reference]bool
	// applied are the status paths that the updates of a manager own as if it had applied them.
	applied map[managedKind]fields
	// pending are the events that no listener has got yet. One goroutine at a time delivers them.
	pending    []Event
	delivering bool
	listeners  []func(Event)
	views      []*View
}

// reference identifies an object.
type reference struct {
	kind *kind
	key  types.NamespacedName
}

type managedKind struct {
	kind    *kind
	manager string
}

// NewServer returns an empty API server for the kinds of a scheme. now is the clock.
func NewServer(scheme *runtime.Scheme, now func() time.Time) *Server {
	s := &Server{scheme: scheme, now: now, byGVK: map[schema.GroupVersionKind]*kind{}, byType: map[reflect.Type]*kind{},
		stores: map[schema.GroupVersionKind]*store{}, dependents: map[types.UID]map[reference]bool{}, applied: map[managedKind]fields{}}
	s.addKinds()
	return s
}

// OnChange registers a function that gets the event of each write, in the order of the versions
// and under no lock. It runs before the write returns, with two exceptions: if the function itself
// writes, that event comes after the function has returned; and if two goroutines write at once,
// one of them runs the function for both.
func (s *Server) OnChange(f func(Event)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = append(s.listeners[:len(s.listeners):len(s.listeners)], f)
}

// RESTMapper returns the mapper of the kinds that the server stores.
func (s *Server) RESTMapper() meta.RESTMapper { return s.mapper }

// locked runs a write and delivers its events.
func (s *Server) locked(do func() error) error {
	s.mu.Lock()
	err := do()
	s.mu.Unlock()
	s.deliver()
	return err
}

// deliver passes the pending events on, to the views before the listeners.
func (s *Server) deliver() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.delivering {
		return
	}
	s.delivering = true
	for len(s.pending) > 0 {
		e := s.pending[0]
		s.pending = s.pending[1:]
		views, listeners := s.views, s.listeners
		s.mu.Unlock()
		for _, v := range views {
			v.receive(e)
		}
		for _, f := range listeners {
			f(e)
		}
		s.mu.Lock()
	}
	s.delivering = false
}

// emit adds an event of the latest version.
func (s *Server) emit(k *kind, key types.NamespacedName, old, next client.Object, manager string) {
	e := Event{Type: Modified, Kind: k.gvk, Key: key, Old: old, New: next, Manager: manager, Version: strconv.FormatUint(s.version, 10), number: s.version}
	switch {
	case old == nil:
		e.Type = Added
	case next == nil:
		e.Type = Deleted
	}
	s.pending = append(s.pending, e)
}

// storeOf returns the objects of a kind.
func (s *Server) storeOf(k *kind) *store {
	objects := s.stores[k.gvk]
	if objects == nil {
		k.buildSchema()
		objects = newStore()
		s.stores[k.gvk] = objects
	}
	return objects
}

// live returns the stored object.
func (s *Server) live(k *kind, key types.NamespacedName) (*item, error) {
	if !k.namespaced {
		key.Namespace = ""
	}
	if i := s.storeOf(k).byKey[key]; i != nil {
		return i, nil
	}
	return nil, newNotFound(k, key)
}

// dependentsOf returns the objects that name an owner, sorted by kind and key.
func (s *Server) dependentsOf(owner types.UID) []reference {
	return slices.SortedFunc(maps.Keys(s.dependents[owner]), func(a, b reference) int {
		return cmp.Or(cmp.Compare(a.kind.gvk.String(), b.kind.gvk.String()), compareKeys(a.key, b.key))
	})
}
