package hub

import (
	"fmt"
	"reflect"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Store has the hub's objects, as the model of the world reads and writes them: a Server, or plain Objects.
// Stored objects are never changed.
type Store interface {
	// Get returns the live object of the type of kind, nil if it does not exist.
	Get(kind client.Object, key types.NamespacedName) client.Object
	// Change is Update for the type of kind.
	Change(kind client.Object, key types.NamespacedName, manager string, change func(client.Object) bool) (bool, error)
	// Add stores a new object with its status. The store owns the object.
	Add(obj client.Object, manager string) error
	// Remove deletes an object. It returns a NotFound error if there is no such object.
	Remove(kind client.Object, key types.NamespacedName, manager string) error
	// OnChange registers a function that gets the event of each write.
	OnChange(f func(Event))
}

var _, _ Store = &Server{}, &Objects{}

// Objects is a Store without an API server: maps of objects, for worlds with many jobs. It knows no field
// managers, finalizers, owners or caches. It is not safe for concurrent use.
type Objects struct {
	now       func() time.Time
	version   uint64
	byType    map[reflect.Type]map[types.NamespacedName]client.Object
	listeners []func(Event)
	// copyOf copies an object for a change.
	copyOf func(client.Object) client.Object
}

// NewObjects returns an empty store. now is the clock. copyOf makes the copies of objects that are to be changed.
func NewObjects(now func() time.Time, copyOf func(client.Object) client.Object) *Objects {
	return &Objects{now: now, byType: map[reflect.Type]map[types.NamespacedName]client.Object{}, copyOf: copyOf}
}

// OnChange implements Store.
func (o *Objects) OnChange(f func(Event)) { o.listeners = append(o.listeners, f) }

// Get implements Store.
func (o *Objects) Get(kind client.Object, key types.NamespacedName) client.Object {
	return o.byType[reflect.TypeOf(kind)][key]
}

// Change implements Store.
func (o *Objects) Change(kind client.Object, key types.NamespacedName, manager string, change func(client.Object) bool) (bool, error) {
	before := o.Get(kind, key)
	if before == nil {
		return false, notFound(kind, key)
	}
	next := o.copyOf(before)
	if !change(next) {
		return false, nil
	}
	o.store(Event{Type: Modified, Key: key, Old: before, New: next, Manager: manager})
	return true, nil
}

// Add implements Store.
func (o *Objects) Add(obj client.Object, manager string) error {
	key := client.ObjectKeyFromObject(obj)
	if o.Get(obj, key) != nil {
		return apierrors.NewAlreadyExists(resourceOf(obj), key.String())
	}
	if obj.GetUID() == "" {
		obj.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012x", o.version+1)))
	}
	obj.SetGeneration(1)
	obj.SetCreationTimestamp(metav1.NewTime(o.now()).Rfc3339Copy())
	o.store(Event{Type: Added, Key: key, New: obj, Manager: manager})
	return nil
}

// Remove implements Store.
func (o *Objects) Remove(kind client.Object, key types.NamespacedName, manager string) error {
	before := o.Get(kind, key)
	if before == nil {
		return notFound(kind, key)
	}
	o.store(Event{Type: Deleted, Key: key, Old: before, Manager: manager})
	return nil
}

// store carries out an event, and passes it on.
func (o *Objects) store(e Event) {
	o.version++
	e.Version = strconv.FormatUint(o.version, 10)
	if e.New == nil {
		delete(o.byType[reflect.TypeOf(e.Old)], e.Key)
	} else {
		e.New.SetResourceVersion(e.Version)
		t := reflect.TypeOf(e.New)
		if o.byType[t] == nil {
			o.byType[t] = map[types.NamespacedName]client.Object{}
		}
		o.byType[t][e.Key] = e.New
	}
	for _, f := range o.listeners {
		f(e)
	}
}

func resourceOf(obj client.Object) schema.GroupResource {
	return schema.GroupResource{Resource: reflect.TypeOf(obj).Elem().Name()}
}

func notFound(kind client.Object, key types.NamespacedName) error {
	return apierrors.NewNotFound(resourceOf(kind), key.String())
}
