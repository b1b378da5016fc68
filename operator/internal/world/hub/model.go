package hub

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Get returns the live object of a type, nil if it does not exist. It must not be changed.
func Get[T client.Object](s Store, key types.NamespacedName) T {
	var none T
	live, _ := s.Get(none, key).(T)
	return live
}

// Update lets a component of the model change an object: its content, metadata and status in one
// write. change edits a copy of the live object and reports whether to store it. It runs under no
// lock, and again if the object changed meanwhile. Update returns what change reported, and a
// NotFound error if there is no such object.
func Update[T client.Object](s Store, key types.NamespacedName, manager string, change func(T) bool) (bool, error) {
	var none T
	return s.Change(none, key, manager, func(obj client.Object) bool { return change(obj.(T)) })
}

// Get implements Store.
func (s *Server) Get(kind client.Object, key types.NamespacedName) client.Object {
	k, err := s.kindOf(kind)
	if err != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if live, err := s.live(k, key); err == nil {
		return live.obj
	}
	return nil
}

// Change implements Store.
func (s *Server) Change(kind client.Object, key types.NamespacedName, manager string, change func(client.Object) bool) (bool, error) {
	k, err := s.kindOf(kind)
	if err != nil {
		return false, err
	}
	for {
		s.mu.Lock()
		live, err := s.live(k, key)
		if err != nil {
			s.mu.Unlock()
			return false, err
		}
		before := live.obj
		s.mu.Unlock()
		next := before.DeepCopyObject().(client.Object)
		if !change(next) {
			return false, nil
		}
		stored := false
		err = s.locked(func() error {
			live, err := s.live(k, key)
			if err != nil || live.obj != before {
				return nil
			}
			stored = true
			_, err = s.update(live, write{kind: k, manager: manager, part: allParts, next: next})
			return err
		})
		if stored || err != nil {
			return err == nil, err
		}
	}
}

// Add implements Store. As a client does, it writes the status after the object.
func (s *Server) Add(obj client.Object, manager string) error {
	c := s.Client(manager)
	status := obj.DeepCopyObject().(client.Object)
	if err := c.Create(context.Background(), obj); err != nil {
		return err
	}
	status.SetResourceVersion(obj.GetResourceVersion())
	status.SetUID(obj.GetUID())
	return client.IgnoreNotFound(c.Status().Update(context.Background(), status)) // some kinds have no status
}

// Remove implements Store.
func (s *Server) Remove(kind client.Object, key types.NamespacedName, manager string) error {
	k, err := s.kindOf(kind)
	if err != nil {
		return err
	}
	return s.locked(func() error { return s.delete(k, key, manager, &client.DeleteOptions{}) })
}

// RecordAsApply makes the updates of a manager to objects of a kind look like server-side applies
// of the given paths below the status, such as "admission", "conditions" or
// "conditions[QuotaReserved]": after each change of the status by the manager, its managedFields
// entry for Apply has what exists at these paths. Kueue writes the status of a Workload in this
// way.
//
// Unlike a real apply, such an update also removes fields that other managers own.
func (s *Server) RecordAsApply(manager string, obj client.Object, paths ...string) error {
	k, err := s.kindOf(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.storeOf(k) // builds the schema
	if k.status == nil {
		return newBadRequest("%s has no status", k.gvk.Kind)
	}
	var rule fields
	for _, path := range paths {
		set, err := statusPath(k.status.node, path)
		if err != nil {
			return err
		}
		rule = union(rule, fields{"f:status": set})
	}
	s.applied[managedKind{k, manager}] = rule
	return nil
}

// statusPath parses a path such as "admission.clusterQueue" or "conditions[QuotaReserved].reason".
func statusPath(n *node, path string) (fields, error) {
	if path == "" {
		return member, nil
	}
	name, rest, _ := strings.Cut(path, ".")
	name, key, hasKey := strings.Cut(strings.TrimSuffix(name, "]"), "[")
	f := n.byName[name]
	if f == nil {
		return nil, newBadRequest("the path %s does not exist", path)
	}
	n = f.node
	if !hasKey {
		set, err := statusPath(n, rest)
		return fields{f.path: set}, err
	}
	if n.shape != keyedList {
		return nil, newBadRequest("the path %s has a key, but is not a list with keys", path)
	}
	set, err := statusPath(n.item, rest)
	return fields{f.path: {itemPath(n.key.name, key): set}}, err
}
