package hub

import (
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// indexer is the definition of an index.
type indexer struct {
	name    string
	extract client.IndexerFunc
}

// index has the objects of a cache by the values of a field.
type index struct {
	indexer
	byValue map[string]items
}

func (inf *informer) addIndex(x indexer) {
	if slices.ContainsFunc(inf.indexes, func(other *index) bool { return other.name == x.name }) {
		return
	}
	added := &index{indexer: x, byValue: map[string]items{}}
	for _, i := range inf.sorted {
		added.update(i, nil, i.obj)
	}
	inf.indexes = append(inf.indexes, added)
}

// update moves an item from the values of its old object to those of the next one.
func (x *index) update(i *item, old, next client.Object) {
	var before, after []string
	if old != nil {
		before = x.extract(old)
	}
	if next != nil {
		after = x.extract(next)
	}
	if slices.Equal(before, after) && old != nil && next != nil {
		return
	}
	for _, value := range before {
		bucket := x.byValue[value]
		bucket.remove(i.key)
		if len(bucket) == 0 {
			delete(x.byValue, value)
		} else {
			x.byValue[value] = bucket
		}
	}
	for _, value := range after {
		bucket := x.byValue[value]
		bucket.insert(i)
		x.byValue[value] = bucket
	}
}

// candidates returns the items that the index of the first field finds, and a function for the
// other fields.
func (inf *informer) candidates(options *client.ListOptions) (items, func(client.Object) bool, error) {
	if options.FieldSelector == nil || options.FieldSelector.Empty() {
		return inf.sorted.in(options.Namespace), nil, nil
	}
	requirements, err := exactFields(options.FieldSelector)
	if err != nil {
		return nil, nil, err
	}
	var used []*index
	for _, r := range requirements {
		at := slices.IndexFunc(inf.indexes, func(x *index) bool { return x.name == r.Field })
		if at < 0 {
			return nil, nil, fmt.Errorf("index with name field:%s does not exist", r.Field)
		}
		used = append(used, inf.indexes[at])
	}
	found := used[0].byValue[requirements[0].Value].in(options.Namespace)
	if len(used) == 1 {
		return found, nil, nil
	}
	return found, func(obj client.Object) bool {
		for i, x := range used[1:] {
			if !slices.Contains(x.extract(obj), requirements[i+1].Value) {
				return false
			}
		}
		return true
	}, nil
}
