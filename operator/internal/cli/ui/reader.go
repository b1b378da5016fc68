package ui

import (
	"context"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/cli/hubclient"
)

// reader reads the hub through a snapshot: each kind is listed once, and objects without a namespace come from these lists.
// Callers share the objects and must not change them.
type reader struct {
	hub      client.Reader
	snapshot *snapshot
}

// listLimit is the number of objects of one response of the hub.
const listLimit = 500

// kindList has the objects of a kind, and a map from names to them.
type kindList struct {
	objects []runtime.Object
	byName  map[string]client.Object
}

// list returns the objects of a kind in a namespace; "" = all.
func (r reader) list(ctx context.Context, gvk schema.GroupVersionKind, namespace string) (kindList, error) {
	found, err := remember(ctx, r.snapshot, "list "+gvk.String()+" "+namespace, func(ctx context.Context) (kindList, error) {
		found := kindList{byName: map[string]client.Object{}}
		for next := ""; ; {
			object, err := hubclient.Scheme.New(gvk)
			if err != nil {
				return kindList{}, err
			}
			list := object.(client.ObjectList) //nolint:forcetypeassert // callers pass kinds of lists
			if err := r.hub.List(ctx, list, client.InNamespace(namespace), client.Limit(listLimit), client.Continue(next)); err != nil {
				return kindList{}, err
			}
			objects, err := meta.ExtractList(list)
			if err != nil {
				return kindList{}, err
			}
			found.add(objects)
			if next = list.GetContinue(); next == "" {
				return found, nil
			}
		}
	})
	return found, r.note(err)
}

// add adds the objects of a response, without what no page shows: it would be most of the memory.
func (l *kindList) add(objects []runtime.Object) {
	for _, o := range objects {
		if wl, ok := o.(*kueue.Workload); ok {
			kueuestate.Trim(wl)
		}
		l.byName[o.(client.Object).GetName()] = o.(client.Object) //nolint:forcetypeassert // all items are objects
	}
	l.objects = append(l.objects, objects...)
}

// note remembers that the hub does not accept the credentials.
func (r reader) note(err error) error {
	if apierrors.IsUnauthorized(err) {
		r.snapshot.unauthorized.Store(true)
	}
	return err
}

// List implements client.Reader, with a namespace and a label selector.
func (r reader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	gvk, err := apiutil.GVKForObject(list, hubclient.Scheme)
	if err != nil {
		return err
	}
	var options client.ListOptions
	options.ApplyOptions(opts)
	found, err := r.list(ctx, gvk, options.Namespace)
	if err != nil {
		return err
	}
	objects := found.objects
	if options.LabelSelector != nil {
		objects = nil
		for _, o := range found.objects {
			if options.LabelSelector.Matches(labelsOf(o)) {
				objects = append(objects, o)
			}
		}
	}
	return meta.SetList(list, objects)
}

// Get implements client.Reader.
func (r reader) Get(ctx context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	gvk, err := apiutil.GVKForObject(obj, hubclient.Scheme)
	if err != nil {
		return err
	}
	var found client.Object
	if key.Namespace != "" {
		found, err = remember(ctx, r.snapshot, "get "+gvk.String()+" "+key.String(), func(ctx context.Context) (client.Object, error) {
			fresh := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(client.Object) //nolint:forcetypeassert // of the same type
			return fresh, r.hub.Get(ctx, key, fresh)
		})
		err = r.note(err)
	} else {
		var list kindList
		if list, err = r.list(ctx, gvk.GroupVersion().WithKind(gvk.Kind+"List"), ""); err == nil {
			found = list.byName[key.Name]
		}
	}
	switch {
	case err != nil:
		return err
	case found == nil:
		return apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: strings.ToLower(gvk.Kind)}, key.Name)
	}
	reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(found).Elem())
	return nil
}

func labelsOf(o runtime.Object) labels.Set {
	return o.(client.Object).GetLabels() //nolint:forcetypeassert // all items are objects
}
