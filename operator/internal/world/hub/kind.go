package hub

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kind is a kind that the server stores.
type kind struct {
	gvk        schema.GroupVersionKind
	resource   schema.GroupResource
	namespaced bool
	goType     reflect.Type // the struct

	schemaOnce sync.Once
	node       *node
	metadata   *node
	status     *field // nil if the kind has none
}

var objectType = reflect.TypeFor[client.Object]()

// addKinds registers the kinds of a scheme, with the types of their objects and lists.
func (s *Server) addKinds() {
	known := s.scheme.AllKnownTypes()
	all := slices.SortedFunc(maps.Keys(known), func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	mapper := meta.NewDefaultRESTMapper(s.scheme.PrioritizedVersionsAllGroups())
	for _, gvk := range all {
		t := known[gvk]
		if gvk.Version == runtime.APIVersionInternal || !reflect.PointerTo(t).Implements(objectType) {
			continue
		}
		plural, singular := meta.UnsafeGuessKindToResource(gvk)
		k := &kind{gvk: gvk, resource: plural.GroupResource(), namespaced: !isClusterScoped(gvk.GroupKind()), goType: t}
		s.byGVK[gvk] = k
		if s.byType[t] == nil {
			s.byType[t] = k
		}
		scope := meta.RESTScopeNamespace
		if !k.namespaced {
			scope = meta.RESTScopeRoot
		}
		mapper.AddSpecific(gvk, plural, singular, scope)
		if list, ok := known[gvk.GroupVersion().WithKind(gvk.Kind+"List")]; ok && s.byType[list] == nil {
			s.byType[list] = k
		}
	}
	s.mapper = mapper
}

// kindOf returns the kind of an object or of the items of a list.
func (s *Server) kindOf(obj runtime.Object) (*kind, error) {
	if _, ok := obj.(runtime.Unstructured); ok {
		gvk := obj.GetObjectKind().GroupVersionKind()
		gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
		return s.kindFor(gvk)
	}
	if k := s.byType[reflect.TypeOf(obj).Elem()]; k != nil {
		return k, nil
	}
	return nil, fmt.Errorf("the scheme of the hub has no kind for %T", obj)
}

func (s *Server) kindFor(gvk schema.GroupVersionKind) (*kind, error) {
	if k := s.byGVK[gvk]; k != nil {
		return k, nil
	}
	return nil, &meta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{gvk.Version}}
}

// buildSchema describes the kind's type. A scheme has hundreds of kinds and a world uses twenty.
func (k *kind) buildSchema() {
	k.schemaOnce.Do(func() {
		k.node, k.metadata = nodeOf(k.goType), &node{shape: object}
		for _, f := range nodeOf(reflect.TypeFor[metav1.ObjectMeta]()).fields {
			switch f.name {
			case "annotations", "finalizers", "labels", "ownerReferences":
				k.metadata.fields = append(k.metadata.fields, f)
			}
		}
		k.metadata.byName = map[string]*field{}
		for i := range k.metadata.fields {
			k.metadata.byName[k.metadata.fields[i].name] = &k.metadata.fields[i]
		}
		k.status = k.node.byName["status"]
	})
}

// isContent reports whether a top-level field belongs to the spec in the widest sense: a change
// of it changes the generation.
func isContent(name string) bool {
	return name != "apiVersion" && name != "kind" && name != "metadata" && name != "status"
}

// compare returns the difference between two versions of an object, and whether the content
// changed. It ignores what the server itself writes in the metadata.
func (k *kind) compare(old, next client.Object) (d delta, content bool) {
	a, b := reflect.ValueOf(old).Elem(), reflect.ValueOf(next).Elem()
	for i := range k.node.fields {
		f := &k.node.fields[i]
		switch {
		case f.name == "metadata":
			d.add(f.path, k.metadata.compareObjects(a.FieldByIndex(f.index), b.FieldByIndex(f.index)))
		case isContent(f.name) || f.name == "status":
			before, hadOld := f.value(a)
			after, hasNew := f.value(b)
			child := f.node.compare(before, after, hadOld, hasNew)
			content = content || child.changed && f.name != "status"
			d.add(f.path, child)
		}
	}
	return d, content
}

// newObject returns an empty object.
func (k *kind) newObject() client.Object { return reflect.New(k.goType).Interface().(client.Object) }

// shallowCopy returns a copy that shares everything below the fields of the object.
func (k *kind) shallowCopy(obj client.Object) client.Object {
	v := reflect.New(k.goType)
	v.Elem().Set(reflect.ValueOf(obj).Elem())
	return v.Interface().(client.Object)
}

// setStatus gives the object the status of another one.
func (k *kind) setStatus(obj, from client.Object) {
	if k.status != nil {
		k.part(obj, k.status).Set(k.part(from, k.status))
	}
}

func (k *kind) part(obj client.Object, f *field) reflect.Value {
	return reflect.ValueOf(obj).Elem().FieldByIndex(f.index)
}

// metaOf returns the metadata of a typed object.
func (k *kind) metaOf(obj client.Object) *metav1.ObjectMeta {
	return obj.(metav1.ObjectMetaAccessor).GetObjectMeta().(*metav1.ObjectMeta)
}

// typed returns a typed copy of an object that a client sent.
func (k *kind) typed(obj client.Object) (client.Object, error) {
	u, ok := obj.(runtime.Unstructured)
	if !ok {
		copied := obj.DeepCopyObject().(client.Object)
		copied.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		return copied, nil
	}
	converted := k.newObject()
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.UnstructuredContent(), converted)
	converted.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return converted, err
}

// content returns an object as JSON values.
func (k *kind) content(obj client.Object) (map[string]any, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err == nil {
		content["apiVersion"], content["kind"] = k.gvk.GroupVersion().String(), k.gvk.Kind
	}
	return content, err
}

// copyTo writes a copy of a stored object into the object of a client. A typed object keeps its
// own type information.
func (k *kind) copyTo(into, stored client.Object, deep bool) error {
	if u, ok := into.(*unstructured.Unstructured); ok {
		content, err := k.content(stored)
		u.Object = content
		return err
	}
	if t := reflect.TypeOf(into).Elem(); t != k.goType {
		return fmt.Errorf("the hub stores %s as %s, not as %s", k.gvk.Kind, k.goType, t)
	}
	gvk := into.GetObjectKind().GroupVersionKind()
	if deep {
		stored = stored.DeepCopyObject().(client.Object)
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(stored).Elem())
	if deep {
		into.GetObjectKind().SetGroupVersionKind(gvk)
	}
	return nil
}
