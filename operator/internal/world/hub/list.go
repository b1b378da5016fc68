package hub

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apifields "k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// selectItems returns the objects that match the options. matches may be nil.
func selectItems(candidates items, options *client.ListOptions, matches func(client.Object) bool) []client.Object {
	var found []client.Object
	if options.LabelSelector == nil && matches == nil && options.Limit == 0 {
		found = make([]client.Object, 0, len(candidates))
	}
	for _, i := range candidates {
		if options.Limit > 0 && int64(len(found)) >= options.Limit {
			break
		}
		if options.LabelSelector != nil && !options.LabelSelector.Matches(labels.Set(i.obj.GetLabels())) || matches != nil && !matches(i.obj) {
			continue
		}
		found = append(found, i.obj)
	}
	return found
}

// fieldsOfMetadata returns a function for a selector of names and namespaces, the only fields that
// the API server itself selects by; nil if there is no selector.
func fieldsOfMetadata(selector apifields.Selector) (func(client.Object) bool, error) {
	if selector == nil || selector.Empty() {
		return nil, nil
	}
	for _, r := range selector.Requirements() {
		if r.Field != "metadata.name" && r.Field != "metadata.namespace" {
			return nil, newBadRequest("field label not supported: %s", r.Field)
		}
	}
	return func(obj client.Object) bool {
		return selector.Matches(apifields.Set{"metadata.name": obj.GetName(), "metadata.namespace": obj.GetNamespace()})
	}, nil
}

// exactFields returns the requirements of a selector of the form field=value.
func exactFields(selector apifields.Selector) (apifields.Requirements, error) {
	requirements := selector.Requirements()
	for _, r := range requirements {
		if r.Operator != selection.Equals && r.Operator != selection.DoubleEquals {
			return nil, fmt.Errorf("non-exact field matches are not supported by the cache")
		}
	}
	return requirements, nil
}

// setItems writes objects into a list. With deep they are copied; setKind sets their kind, as a
// cache does.
func (k *kind) setItems(list client.ObjectList, objects []client.Object, deep, setKind bool) error {
	if u, ok := list.(*unstructured.UnstructuredList); ok {
		u.Items = make([]unstructured.Unstructured, len(objects))
		for i, obj := range objects {
			if err := k.copyTo(&u.Items[i], obj, true); err != nil {
				return err
			}
		}
		return nil
	}
	all := reflect.ValueOf(list).Elem().FieldByName("Items")
	if !all.IsValid() || all.Kind() != reflect.Slice || all.Type().Elem() != k.goType {
		return fmt.Errorf("the hub does not support lists of type %T", list)
	}
	values := reflect.MakeSlice(all.Type(), len(objects), len(objects))
	for i, obj := range objects {
		if deep {
			obj = obj.DeepCopyObject().(client.Object)
			if setKind {
				obj.GetObjectKind().SetGroupVersionKind(k.gvk)
			}
		}
		values.Index(i).Set(reflect.ValueOf(obj).Elem())
	}
	all.Set(values)
	return nil
}
