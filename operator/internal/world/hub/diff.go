package hub

import (
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// delta is the difference between two versions of a value.
type delta struct {
	// set are the paths with a new value, removed those that no longer exist.
	set, removed fields
	// changed also reports another order of the same items.
	changed bool
}

// compare returns the difference between two values of a node. It cuts the new times to seconds,
// as JSON does.
func (n *node) compare(old, next reflect.Value, hadOld, hasNew bool) delta {
	switch {
	case !hadOld && !hasNew:
		return delta{}
	case !hadOld:
		set := n.paths(next)
		return delta{set: set, changed: set != nil}
	case !hasNew:
		removed := n.paths(old)
		return delta{removed: removed, changed: removed != nil}
	}
	switch old.Kind() {
	case reflect.Pointer:
		if old.Pointer() == next.Pointer() {
			return delta{}
		}
		old, next = old.Elem(), next.Elem()
	case reflect.Slice:
		if old.Len() == next.Len() && old.Pointer() == next.Pointer() {
			return delta{}
		}
	case reflect.Map:
		if old.Pointer() == next.Pointer() {
			return delta{}
		}
	default: // compared below
	}
	switch n.shape {
	case object:
		return n.compareObjects(old, next)
	case mapping:
		return n.compareMaps(old, next)
	case keyedList:
		return n.compareLists(old, next)
	default: // compared below
	}
	if n.equalLeaves(old, next) {
		return delta{}
	}
	return delta{set: member, changed: true}
}

func (n *node) equalLeaves(old, next reflect.Value) bool {
	switch old.Kind() {
	case reflect.String:
		return old.String() == next.String()
	case reflect.Bool:
		return old.Bool() == next.Bool()
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return old.Int() == next.Int()
	default: // compared below
	}
	if n.isTime {
		truncate(next)
		a, b := old.Interface().(metav1.Time), next.Interface().(metav1.Time)
		return a.Equal(&b)
	}
	return equality.Semantic.DeepEqual(old.Interface(), next.Interface())
}

// truncate cuts a time to seconds.
func truncate(v reflect.Value) {
	if !v.CanAddr() {
		return
	}
	t := v.Addr().Interface().(*metav1.Time)
	if cut := t.Truncate(time.Second); !t.IsZero() && !cut.Equal(t.Time) {
		t.Time = cut
	}
}

func (n *node) compareObjects(old, next reflect.Value) delta {
	var d delta
	for i := range n.fields {
		f := &n.fields[i]
		a, hadOld := f.value(old)
		b, hasNew := f.value(next)
		d.add(f.path, f.node.compare(a, b, hadOld, hasNew))
	}
	return d
}

func (n *node) compareMaps(old, next reflect.Value) delta {
	var d delta
	for entries := next.MapRange(); entries.Next(); {
		path, before := "f:"+entries.Key().String(), old.MapIndex(entries.Key())
		if !before.IsValid() {
			d.add(path, delta{set: orMember(n.item.paths(entries.Value())), changed: true})
			continue
		}
		d.add(path, n.item.compare(before, entries.Value(), true, true))
	}
	for entries := old.MapRange(); entries.Next(); {
		if !next.MapIndex(entries.Key()).IsValid() {
			d.add("f:"+entries.Key().String(), delta{removed: orMember(n.item.paths(entries.Value())), changed: true})
		}
	}
	return d
}

// orMember is the set of an entry that exists although it contains nothing.
func orMember(s fields) fields {
	if s == nil {
		return member
	}
	return s
}

func (n *node) compareLists(old, next reflect.Value) delta {
	var d delta
	kept := 0
	for i := range next.Len() {
		item, key := next.Index(i), n.keyOf(next.Index(i))
		j := n.find(old, key, i)
		if j < 0 {
			d.add(itemPath(n.key.name, key), delta{set: n.itemPaths(item), changed: true})
			continue
		}
		kept++
		d.changed = d.changed || j != i
		d.add(itemPath(n.key.name, key), n.item.compare(old.Index(j), item, true, true))
	}
	if kept == old.Len() {
		return d
	}
	for i := range old.Len() {
		if key := n.keyOf(old.Index(i)); n.find(next, key, i) < 0 {
			d.add(itemPath(n.key.name, key), delta{removed: n.itemPaths(old.Index(i)), changed: true})
		}
	}
	return d
}

// find returns the index of the item with a key, -1 if there is none. It looks at guess first.
func (n *node) find(list reflect.Value, key string, guess int) int {
	if guess < list.Len() && n.keyOf(list.Index(guess)) == key {
		return guess
	}
	for i := range list.Len() {
		if n.keyOf(list.Index(i)) == key {
			return i
		}
	}
	return -1
}

func (n *node) keyOf(item reflect.Value) string { return item.FieldByIndex(n.key.index).String() }

// add adds the difference of a child.
func (d *delta) add(path string, child delta) {
	d.changed = d.changed || child.changed
	if child.set != nil {
		if d.set == nil {
			d.set = fields{}
		}
		d.set[path] = child.set
	}
	if child.removed != nil {
		if d.removed == nil {
			d.removed = fields{}
		}
		d.removed[path] = child.removed
	}
}

// paths returns the paths of a value, nil for a struct without any. It cuts times to seconds.
func (n *node) paths(v reflect.Value) fields {
	whole := v.Kind() == reflect.Pointer || v.Kind() == reflect.Map || v.Kind() == reflect.Slice
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	all := fields{}
	switch n.shape {
	case leaf:
		if n.isTime {
			truncate(v)
		}
		return member
	case object:
		for i := range n.fields {
			if child, ok := n.fields[i].value(v); ok {
				if sub := n.fields[i].node.paths(child); sub != nil {
					all[n.fields[i].path] = sub
				}
			}
		}
	case mapping:
		for entries := v.MapRange(); entries.Next(); {
			all["f:"+entries.Key().String()] = orMember(n.item.paths(entries.Value()))
		}
	case keyedList:
		for i := range v.Len() {
			all[itemPath(n.key.name, n.keyOf(v.Index(i)))] = n.itemPaths(v.Index(i))
		}
	}
	if len(all) == 0 && !whole {
		return nil
	}
	return all
}

// itemPaths returns the paths of an item of a list, with the item itself.
func (n *node) itemPaths(item reflect.Value) fields {
	return union(fields{".": member}, n.item.paths(item))
}
