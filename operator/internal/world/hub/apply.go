package hub

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// apply is a server-side apply: it sets the fields of config, and removes those that the manager
// applied before, config leaves out, and no other manager owns. An object that does not exist is
// created, but not by an apply of its status.
func (s *Server) apply(w write, config *unstructured.Unstructured) (client.Object, error) {
	key := types.NamespacedName{Namespace: config.GetNamespace(), Name: config.GetName()}
	live, err := s.live(w.kind, key)
	w.isApply = true
	if err != nil {
		if w.part == statusPart || config.GetResourceVersion() != "" {
			return nil, err
		}
		if w.apply, err = w.kind.appliedPaths(config.Object, mainPart); err == nil {
			w.next, err = w.kind.typed(config)
		}
		if err != nil {
			return nil, newBadRequest("apply %s %s: %v", w.kind.gvk.Kind, key, err)
		}
		created, err := s.create(w)
		if err != nil {
			return nil, err
		}
		return created.obj, nil
	}
	if err := checkIdentity(w.kind, key, w.kind.metaOf(live.obj), config.GetResourceVersion(), config.GetUID()); err != nil {
		return nil, err
	}
	if err := w.merge(live, config); err != nil {
		return nil, newBadRequest("apply %s %s: %v", w.kind.gvk.Kind, key, err)
	}
	return s.update(live, w)
}

// merge sets the next version and the paths of an apply.
func (w *write) merge(live *item, config *unstructured.Unstructured) (err error) {
	if w.apply, err = w.kind.appliedPaths(config.Object, w.part); err != nil {
		return err
	}
	var before, others fields
	for _, m := range live.managers {
		if m.managerID == (managerID{w.manager, "Apply", w.part}) {
			before = m.fields
		} else {
			others = union(others, m.fields)
		}
	}
	w.next = w.kind.shallowCopy(live.obj)
	for i := range w.kind.node.fields {
		f := &w.kind.node.fields[i]
		node := f.node
		switch {
		case !isContent(f.name) && f.name != "metadata" && f.name != "status", (f.name == "status") != (w.part == statusPart):
			continue
		case f.name == "metadata":
			node = w.kind.metadata
		}
		if before[f.path] == nil && w.apply[f.path] == nil {
			continue
		}
		// An object with only this part: the converter needs a struct.
		only := w.kind.newObject()
		w.kind.part(only, f).Set(w.kind.part(live.obj, f))
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(only)
		if err != nil {
			return err
		}
		merged := content[f.name]
		if applied := config.Object[f.name]; applied != nil {
			merged = node.merge(merged, applied)
		}
		merged, _ = node.prune(merged, before[f.path], w.apply[f.path], others[f.path])
		only = w.kind.newObject()
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{f.name: merged}, only); err != nil {
			return err
		}
		w.kind.part(w.next, f).Set(w.kind.part(only, f))
	}
	return nil
}

// appliedPaths returns the paths that an apply of a part of an object sets. A field that the type
// does not have is an error.
func (k *kind) appliedPaths(config map[string]any, part subresource) (fields, error) {
	var all fields
	for name, value := range config {
		node := k.metadata
		switch {
		case name == "apiVersion" || name == "kind" || (name == "status") != (part == statusPart):
			continue
		case name != "metadata":
			f := k.node.byName[name]
			if f == nil {
				return nil, fmt.Errorf("the field %s does not exist", name)
			}
			node = f.node
		default:
			value = ownMetadata(value)
		}
		set, err := node.valuePaths(value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if name != "metadata" || len(set) > 0 {
			all = union(all, fields{"f:" + name: set})
		}
	}
	return all, nil
}

// ownMetadata returns the metadata that field managers own.
func ownMetadata(metadata any) any {
	owned := map[string]any{}
	all, _ := metadata.(map[string]any)
	for _, name := range []string{"annotations", "finalizers", "labels", "ownerReferences"} {
		if value, ok := all[name]; ok {
			owned[name] = value
		}
	}
	return owned
}

// valuePaths returns the paths of a value in JSON.
func (n *node) valuePaths(value any) (fields, error) {
	all := fields{}
	var err error
	switch v := value.(type) {
	case map[string]any:
		for name, child := range v {
			item := n.item
			if n.shape == object {
				f := n.byName[name]
				if f == nil {
					return nil, fmt.Errorf("the field %s does not exist", name)
				}
				item = f.node
			}
			if n.shape == leaf {
				return member, nil
			}
			if all["f:"+name], err = item.valuePaths(child); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	case []any:
		if n.shape != keyedList {
			return member, nil
		}
		for _, child := range v {
			key, ok := n.keyOfValue(child)
			if !ok {
				return nil, fmt.Errorf("an item has no %s", n.key.name)
			}
			set, err := n.item.valuePaths(child)
			if err != nil {
				return nil, err
			}
			all[itemPath(n.key.name, key)] = union(fields{".": member}, set)
		}
	}
	return all, nil
}

func (n *node) keyOfValue(item any) (string, bool) {
	object, _ := item.(map[string]any)
	key, ok := object[n.key.name].(string)
	return key, ok
}

// merge returns the live value with the applied one set in it. It changes the live value.
func (n *node) merge(live, applied any) any {
	switch a := applied.(type) {
	case map[string]any:
		into, ok := live.(map[string]any)
		if !ok || n.shape == leaf {
			return applied
		}
		for name, value := range a {
			item := n.item
			if n.shape == object {
				if n.byName[name] == nil {
					continue // name, namespace and the like
				}
				item = n.byName[name].node
			}
			if value == nil {
				delete(into, name)
			} else {
				into[name] = item.merge(into[name], value)
			}
		}
		return into
	case []any:
		into, ok := live.([]any)
		if !ok || n.shape != keyedList {
			return applied
		}
		for _, value := range a {
			key, _ := n.keyOfValue(value)
			if i := n.findValue(into, key); i >= 0 {
				into[i] = n.item.merge(into[i], value)
			} else {
				into = append(into, value)
			}
		}
		return into
	}
	return applied
}

func (n *node) findValue(list []any, key string) int {
	return slices.IndexFunc(list, func(item any) bool {
		found, ok := n.keyOfValue(item)
		return ok && found == key
	})
}

// prune removes what is in before, but not in applied and not in others. It reports whether
// nothing is left.
func (n *node) prune(value any, before, applied, others fields) (left any, empty bool) {
	switch v := value.(type) {
	case map[string]any:
		for path, sub := range before {
			name, ok := fieldName(path)
			if !ok || v[name] == nil {
				continue
			}
			item := n.item
			if n.shape == object {
				item = n.byName[name].node
			}
			removed := applied[path] == nil && others[path] == nil
			if !removed && len(sub) > 0 {
				v[name], removed = item.prune(v[name], sub, applied[path], others[path])
				removed = removed && applied[path] == nil
			}
			if removed {
				delete(v, name)
			}
		}
		return v, len(v) == 0
	case []any:
		if n.shape != keyedList {
			return v, false
		}
		kept := make([]any, 0, len(v))
		for _, item := range v {
			key, _ := n.keyOfValue(item)
			path := itemPath(n.key.name, key)
			if sub := before[path]; sub != nil {
				if applied[path] == nil && others[path] == nil {
					continue
				}
				item, _ = n.item.prune(item, sub, applied[path], others[path])
			}
			kept = append(kept, item)
		}
		return kept, len(kept) == 0
	}
	return value, false
}

func fieldName(path string) (string, bool) {
	if len(path) > 2 && path[:2] == "f:" {
		return path[2:], true
	}
	return "", false
}
