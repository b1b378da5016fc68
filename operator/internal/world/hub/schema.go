package hub

import (
	"encoding/json"
	"reflect"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
)

// shape says how field managers share a value.
type shape int

const (
	// leaf is a value that one manager owns as a whole: a scalar, or a list without keys.
	leaf shape = iota
	// object is a struct, whose fields have different owners.
	object
	// mapping is a map, whose entries have different owners.
	mapping
	// keyedList is a list whose items are identified by one of their fields.
	keyedList
)

// node describes the values of a Go type as the API server's schema does.
type node struct {
	shape
	isTime bool
	// fields of an object, in the order of the Go type.
	fields []field
	byName map[string]*field
	// item of a mapping or a keyedList.
	item *node
	// key is the field that identifies an item of a keyedList.
	key *field
}

// field is a field of a struct in JSON.
type field struct {
	name string
	// path is the element of FieldsV1.
	path      string
	index     []int
	omitEmpty bool
	omitZero  bool
	node      *node
}

// listKeys are the fields that identify the items of the lists of a type. All other lists are
// atomic.
var listKeys = map[reflect.Type]string{
	reflect.TypeFor[metav1.Condition]():                        "type",
	reflect.TypeFor[metav1.OwnerReference]():                   "uid",
	reflect.TypeFor[clusterv1alpha1.AddOnPlacementScoreItem](): "name",
	reflect.TypeFor[kueue.AdmissionCheckState]():               "name",
	reflect.TypeFor[kueue.PodSet]():                            "name",
	reflect.TypeFor[kueue.PodSetAssignment]():                  "name",
	reflect.TypeFor[kueue.PodSetRequest]():                     "name",
	reflect.TypeFor[kueue.ReclaimablePod]():                    "name",
	reflect.TypeFor[kueue.UnhealthyNode]():                     "name",
}

var (
	nodesMu sync.Mutex
	nodes   = map[reflect.Type]*node{}

	marshaler = reflect.TypeFor[json.Marshaler]()
	timeType  = reflect.TypeFor[metav1.Time]()
)

// nodeOf returns the description of a type or of what a pointer type points to.
func nodeOf(t reflect.Type) *node {
	nodesMu.Lock()
	defer nodesMu.Unlock()
	return buildNode(t)
}

func buildNode(t reflect.Type) *node {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if n := nodes[t]; n != nil {
		return n
	}
	n := &node{isTime: t == timeType}
	nodes[t] = n // before the fields: a type may contain itself
	switch {
	case t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler):
	case t.Kind() == reflect.Struct:
		n.shape = object
		n.addFields(t, nil)
		n.byName = make(map[string]*field, len(n.fields))
		for i := range n.fields {
			n.byName[n.fields[i].name] = &n.fields[i]
		}
	case t.Kind() == reflect.Map && t.Key().Kind() == reflect.String:
		n.shape, n.item = mapping, buildNode(t.Elem())
	case t.Kind() == reflect.Slice && listKeys[t.Elem()] != "":
		n.shape, n.item = keyedList, buildNode(t.Elem())
		n.key = n.item.byName[listKeys[t.Elem()]]
	}
	return n
}

// addFields adds the fields of a struct and of the structs that it embeds.
func (n *node) addFields(t reflect.Type, prefix []int) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		index := append(append([]int(nil), prefix...), i)
		if f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct {
			n.addFields(f.Type, index)
			continue
		}
		if !f.IsExported() || tag == "-" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		n.fields = append(n.fields, field{name: name, path: "f:" + name, index: index, node: buildNode(f.Type),
			omitEmpty: strings.Contains(options, "omitempty"), omitZero: strings.Contains(options, "omitzero")})
	}
}

// value returns the field of a struct, and whether JSON contains it with a value.
func (f *field) value(v reflect.Value) (reflect.Value, bool) {
	v = v.FieldByIndex(f.index)
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return v, !v.IsNil()
	case reflect.Map, reflect.Slice:
		return v, !v.IsNil() && (v.Len() > 0 || !f.omitEmpty)
	case reflect.Struct:
		return v, !f.node.isTime && !f.omitZero || !v.IsZero()
	default: // has no elements
	}
	return v, !f.omitEmpty && !f.omitZero || !v.IsZero()
}
