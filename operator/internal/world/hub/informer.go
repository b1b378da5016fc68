package hub

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// informer is the cache of a kind. The view's lock guards it.
type informer struct {
	view *View
	kind *kind
	// ready is closed when the cache has the objects that existed when the informer was started.
	ready chan struct{}
	// startedAt is the version of these objects.
	startedAt uint64
	// lastEvent is when the latest event is or was delivered.
	lastEvent time.Time
	*store
	indexes  []*index
	handlers []*registration
	removed  bool
}

// startInformer returns the informer of a kind, with the live objects in the cache.
func (v *View) startInformer(k *kind) *informer {
	v.mu.Lock()
	if inf := v.informers[k.gvk]; inf != nil {
		v.mu.Unlock()
		<-inf.ready
		return inf
	}
	inf := &informer{view: v, kind: k, ready: make(chan struct{}), store: newStore()}
	v.informers[k.gvk] = inf
	v.mu.Unlock()

	// From here on, the informer gets events. Those of versions that the snapshot has are ignored.
	v.server.mu.Lock()
	live := make([]item, 0, len(v.server.storeOf(k).sorted))
	for _, i := range v.server.storeOf(k).sorted {
		live = append(live, *i)
	}
	inf.startedAt = v.server.version
	v.server.mu.Unlock()

	cached := make([]*item, 0, len(live))
	for i := range live {
		if obj := v.cached(live[i].obj); obj != nil {
			cached = append(cached, &item{key: live[i].key, obj: obj})
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	inf.sorted = cached
	for _, i := range cached {
		inf.byKey[i.key] = i
	}
	for _, x := range v.indexers[k.gvk] {
		inf.addIndex(x)
	}
	close(inf.ready)
	return inf
}

// cached returns the object as the cache stores it, nil if the cache does not hold it.
func (v *View) cached(obj client.Object) client.Object {
	if obj == nil || v.opts.Select != nil && !v.opts.Select(obj) {
		return nil
	}
	copied := obj.DeepCopyObject().(client.Object)
	if v.opts.Transform == nil {
		return copied
	}
	transformed, err := v.opts.Transform(copied)
	if err != nil {
		panic(fmt.Sprintf("transform %T %s: %v", obj, client.ObjectKeyFromObject(obj), err))
	}
	return transformed.(client.Object)
}

// receive schedules the delivery of an event of the server. Only one goroutine at a time calls it.
func (v *View) receive(e Event) {
	v.mu.Lock()
	inf := v.informers[e.Kind]
	v.mu.Unlock()
	if inf == nil {
		return
	}
	var delay time.Duration
	if v.opts.Delay != nil {
		delay = max(0, v.opts.Delay(e.Kind, e.Key, e.Version))
	}
	now := v.server.now()
	at := now.Add(delay)
	v.mu.Lock()
	if at.Before(inf.lastEvent) {
		at = inf.lastEvent
	}
	inf.lastEvent = at
	v.mu.Unlock()
	v.opts.Schedule(at.Sub(now), func() { inf.deliver(e) })
}

// deliver updates the cache and schedules the handlers, each on its own.
func (inf *informer) deliver(e Event) {
	<-inf.ready
	v := inf.view
	v.mu.Lock()
	outdated := v.stopped || inf.removed || e.number <= inf.startedAt
	v.mu.Unlock()
	if outdated {
		return
	}
	next := v.cached(e.New)
	last := next
	if next == nil {
		last = v.cached(e.Old)
	}
	v.mu.Lock()
	old := inf.replace(e.Key, next)
	handlers := slices.Clone(inf.handlers)
	v.mu.Unlock()
	if old == nil && next == nil {
		return
	}
	for _, r := range handlers {
		v.opts.Schedule(0, func() {
			if r.isRemoved() {
				return
			}
			switch {
			case old == nil:
				r.handler.OnAdd(next, false)
			case next == nil:
				// If the cache no longer selects the object, its last state is the cached one.
				r.handler.OnDelete(cmp.Or(last, old))
			default:
				r.handler.OnUpdate(old, next)
			}
		})
	}
}

// replace sets or, with nil, removes an object in the cache and returns what was there.
func (inf *informer) replace(key types.NamespacedName, next client.Object) (old client.Object) {
	i := inf.byKey[key]
	if i != nil {
		old = i.obj
	}
	switch {
	case next == nil && i == nil:
		return nil
	case next == nil:
		inf.store.delete(key)
	case i == nil:
		i = &item{key: key}
		i.obj = next
		inf.put(i)
	}
	for _, x := range inf.indexes {
		x.update(i, old, next)
	}
	if next != nil {
		i.obj = next
	}
	return old
}

// registration is an event handler of an informer.
type registration struct {
	inf     *informer
	handler toolscache.ResourceEventHandler
	// present are the objects in the cache when the handler was added.
	present []client.Object
	synced  chan struct{}
	removed atomic.Bool
}

func (r *registration) isRemoved() bool {
	select {
	case <-r.inf.view.done:
		return true
	default:
		return r.removed.Load()
	}
}

// HasSynced reports whether the handler has got the objects that existed when it was added.
func (r *registration) HasSynced() bool {
	select {
	case <-r.synced:
		return true
	default:
		return false
	}
}

func (r *registration) HasSyncedChecker() toolscache.DoneChecker { return checker{r.synced} }

// checker is a toolscache.DoneChecker.
type checker struct{ done <-chan struct{} }

func (checker) Name() string            { return "hub" }
func (c checker) Done() <-chan struct{} { return c.done }

// AddEventHandler adds a handler. It gets the present objects as soon as the schedule allows.
func (inf *informer) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	v := inf.view
	r := &registration{inf: inf, handler: handler, synced: make(chan struct{})}
	v.mu.Lock()
	if v.stopped || inf.removed {
		v.mu.Unlock()
		return nil, errors.New("the informer has stopped")
	}
	r.present = make([]client.Object, len(inf.sorted))
	for i, present := range inf.sorted {
		r.present[i] = present.obj
	}
	inf.handlers = append(inf.handlers, r)
	v.starting = append(v.starting, r)
	first := len(v.starting) == 1
	v.mu.Unlock()
	if first {
		v.opts.Schedule(0, v.startHandlers)
	}
	return r, nil
}

// startHandlers delivers the present objects to new handlers. A manager starts its sources at
// once, each on a goroutine: the handlers of one moment get their objects kind by kind, so that
// the order does not depend on these goroutines.
func (v *View) startHandlers() {
	v.mu.Lock()
	starting := v.starting
	v.starting = nil
	v.mu.Unlock()
	slices.SortStableFunc(starting, func(a, b *registration) int {
		return cmp.Compare(a.inf.kind.gvk.String(), b.inf.kind.gvk.String())
	})
	for _, r := range starting {
		for _, obj := range r.present {
			if r.isRemoved() {
				break
			}
			r.handler.OnAdd(obj, true)
		}
		r.present = nil
	}
	for _, r := range starting {
		close(r.synced)
	}
}

// AddEventHandlerWithResyncPeriod is AddEventHandler: the hub does not resync.
func (inf *informer) AddEventHandlerWithResyncPeriod(handler toolscache.ResourceEventHandler, _ time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return inf.AddEventHandler(handler)
}

// AddEventHandlerWithOptions is AddEventHandler: the hub does not resync.
func (inf *informer) AddEventHandlerWithOptions(handler toolscache.ResourceEventHandler, _ toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	return inf.AddEventHandler(handler)
}

// RemoveEventHandler removes a handler; events in flight do not reach it.
func (inf *informer) RemoveEventHandler(handle toolscache.ResourceEventHandlerRegistration) error {
	r, ok := handle.(*registration)
	if !ok || r.inf != inf {
		return fmt.Errorf("%T is not a handler of this informer", handle)
	}
	r.removed.Store(true)
	inf.view.mu.Lock()
	defer inf.view.mu.Unlock()
	inf.handlers = slices.DeleteFunc(inf.handlers, func(other *registration) bool { return other == r })
	return nil
}

// AddIndexers is not supported; use IndexField of the view.
func (inf *informer) AddIndexers(toolscache.Indexers) error {
	return errors.New("the hub does not support AddIndexers")
}

// HasSynced reports whether the cache has the live objects, which is always the case.
func (inf *informer) HasSynced() bool { return true }

func (inf *informer) HasSyncedChecker() toolscache.DoneChecker { return checker{inf.ready} }

// IsStopped reports whether the informer gets no more events.
func (inf *informer) IsStopped() bool {
	inf.view.mu.Lock()
	defer inf.view.mu.Unlock()
	return inf.view.stopped || inf.removed
}
