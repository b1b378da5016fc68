package hub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ViewOptions configure a View. Only Schedule is required.
type ViewOptions struct {
	// Schedule runs a function after a delay, in virtual time. Functions of equal time must run in
	// the order of the calls, one at a time. It must not run the function before it returns.
	Schedule func(delay time.Duration, do func())
	// Delay returns how long the watch event of a version takes. Default: no time. An event is
	// never delivered before an earlier one of its kind.
	Delay func(gvk schema.GroupVersionKind, key types.NamespacedName, resourceVersion string) time.Duration
	// Transform changes a copy of each object before the cache stores it, such as
	// cache.Options.DefaultTransform.
	Transform toolscache.TransformFunc
	// Select reports whether the caches hold an object, such as cache.Options.ByObject. Default:
	// they hold all.
	Select func(client.Object) bool
	// Intercept returns what goes wrong with a request. Cached reads are no requests.
	Intercept func(Request) Fault
	// OnWrite is called after each write that the API server has served.
	OnWrite func(Request)
	// Manager is the field manager of writes that do not name one. Default "operator".
	Manager string
}

// View is what one process sees of the server: caches, which get watch events with a delay, and
// clients. It implements cache.Cache.
type View struct {
	server *Server
	opts   ViewOptions
	// done is closed when the process ends.
	done chan struct{}

	mu        sync.Mutex
	stopped   bool
	informers map[schema.GroupVersionKind]*informer
	indexers  map[schema.GroupVersionKind][]indexer
	// starting are the event handlers that have not got the present objects yet.
	starting []*registration
	writes   map[string]int
}

var _ cache.Cache = (*View)(nil)

// NewView returns the caches of a new process. They are empty until first used.
func (s *Server) NewView(opts ViewOptions) *View {
	if opts.Manager == "" {
		opts.Manager = "operator"
	}
	v := &View{server: s, opts: opts, done: make(chan struct{}), informers: map[schema.GroupVersionKind]*informer{},
		indexers: map[schema.GroupVersionKind][]indexer{}, writes: map[string]int{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.views = append(slices.Clone(s.views), v)
	return v
}

// Client returns the client of the process: it reads typed objects from the caches, and
// unstructured ones from the server.
func (v *View) Client() client.Client { return &cachedClient{liveClient: v.live(), view: v} }

// Reader returns a reader of the live objects.
func (v *View) Reader() client.Reader { return v.live() }

func (v *View) live() *liveClient {
	return &liveClient{server: v.server, manager: v.opts.Manager, serve: v.serve}
}

// Stop ends the process: no event is delivered any more, and each request fails with ErrStopped.
func (v *View) Stop() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.stopped {
		return
	}
	v.stopped = true
	close(v.done)
	v.server.mu.Lock()
	defer v.server.mu.Unlock()
	v.server.views = slices.DeleteFunc(slices.Clone(v.server.views), func(other *View) bool { return other == v })
}

// Start blocks until the context is done, and ends the process then.
func (v *View) Start(ctx context.Context) error {
	<-ctx.Done()
	v.Stop()
	return nil
}

// WaitForCacheSync waits until every event handler has got the objects that existed when it was
// added. It returns false if the process or the context ends before.
func (v *View) WaitForCacheSync(ctx context.Context) bool {
	v.mu.Lock()
	starting := slices.Clone(v.starting)
	v.mu.Unlock()
	for _, r := range starting {
		select {
		case <-r.synced:
		case <-v.done:
			return false
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// IndexField adds an index, which can be used from then on.
func (v *View) IndexField(_ context.Context, obj client.Object, name string, extract client.IndexerFunc) error {
	k, err := v.server.kindOf(obj)
	if err != nil {
		return err
	}
	v.mu.Lock()
	if slices.ContainsFunc(v.indexers[k.gvk], func(i indexer) bool { return i.name == name }) {
		v.mu.Unlock()
		return fmt.Errorf("the index %s of %s exists already", name, k.gvk.Kind)
	}
	v.indexers[k.gvk] = append(v.indexers[k.gvk], indexer{name, extract})
	inf := v.informers[k.gvk]
	v.mu.Unlock()
	if inf == nil {
		return nil
	}
	<-inf.ready
	v.mu.Lock()
	defer v.mu.Unlock()
	inf.addIndex(indexer{name, extract})
	return nil
}

// Get reads an object from the cache of its kind.
func (v *View) Get(_ context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	inf, err := v.informerOf(obj)
	if err != nil {
		return err
	}
	if !inf.kind.namespaced {
		key.Namespace = ""
	}
	v.mu.Lock()
	i := inf.byKey[key]
	if i == nil {
		v.mu.Unlock()
		return newNotFound(inf.kind, key)
	}
	stored := i.obj
	v.mu.Unlock()
	options := (&client.GetOptions{}).ApplyOptions(opts)
	deep := !deref(options.UnsafeDisableDeepCopy)
	err = inf.kind.copyTo(obj, stored, deep)
	if deep && err == nil {
		obj.GetObjectKind().SetGroupVersionKind(inf.kind.gvk)
	}
	return err
}

// List reads objects from the cache of their kind, sorted by namespace and name. A field selector
// needs an index.
func (v *View) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	inf, err := v.informerOf(list)
	if err != nil {
		return err
	}
	options := (&client.ListOptions{}).ApplyOptions(opts)
	if options.Continue != "" {
		return errors.New("continue list option is not supported by the cache")
	}
	v.mu.Lock()
	candidates, matches, err := inf.candidates(options)
	if err != nil {
		v.mu.Unlock()
		return err
	}
	found := selectItems(candidates, options, matches)
	v.mu.Unlock()
	return inf.kind.setItems(list, found, !deref(options.UnsafeDisableDeepCopy), true)
}

// GetInformer returns the informer of a kind, and starts it if this is its first use.
func (v *View) GetInformer(_ context.Context, obj client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	inf, err := v.informerOf(obj)
	if err != nil {
		return nil, err
	}
	return inf, nil
}

// GetInformerForKind is GetInformer by kind.
func (v *View) GetInformerForKind(_ context.Context, gvk schema.GroupVersionKind, _ ...cache.InformerGetOption) (cache.Informer, error) {
	k, err := v.server.kindFor(gvk)
	if err != nil {
		return nil, err
	}
	return v.startInformer(k), nil
}

// RemoveInformer stops the informer of a kind.
func (v *View) RemoveInformer(_ context.Context, obj client.Object) error {
	k, err := v.server.kindOf(obj)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if inf := v.informers[k.gvk]; inf != nil {
		inf.removed = true
		delete(v.informers, k.gvk)
	}
	return nil
}

func (v *View) informerOf(obj runtime.Object) (*informer, error) {
	if _, ok := obj.(runtime.Unstructured); ok {
		return nil, fmt.Errorf("the caches of the hub hold typed objects only, not %T", obj)
	}
	k, err := v.server.kindOf(obj)
	if err != nil {
		return nil, err
	}
	return v.startInformer(k), nil
}

// cachedClient reads typed objects from the caches.
type cachedClient struct {
	*liveClient
	view *View
}

func (c *cachedClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if _, ok := obj.(runtime.Unstructured); ok {
		return c.liveClient.Get(ctx, key, obj, opts...)
	}
	return c.view.Get(ctx, key, obj, opts...)
}

func (c *cachedClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, ok := list.(runtime.Unstructured); ok {
		return c.liveClient.List(ctx, list, opts...)
	}
	return c.view.List(ctx, list, opts...)
}
