// Package kube follows the metadata of one node's pods through the API server:
// their UIDs, labels and owners. It never asks for anything else of them.
package kube

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// Watcher keeps what it last knew while the API server is away. Create one with New
// and call Run.
type Watcher struct {
	client    metadata.Interface
	informer  cache.SharedIndexInformer
	node      fields.Selector
	owners    *owners // nil where they are not asked for
	reachable atomic.Bool
	log       *slog.Logger
}

// Options of a Watcher.
type Options struct {
	Node   string // whose pods are followed
	Owners bool   // follow them up to the top
	Log    *slog.Logger
}

const byUID = "uid"

// New watcher over the API server that config names.
func New(config *rest.Config, o Options) (*Watcher, error) {
	config = metadata.ConfigFor(config)
	config.Timeout = 0 // a watch has no end; each request has its own
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("a client of the API server: %w", err)
	}
	w := &Watcher{client: client, node: fields.OneTermEqualSelector("spec.nodeName", o.Node), log: o.Log}
	if o.Owners {
		w.owners = newOwners(client, o.Log)
	}
	w.informer = cache.NewSharedIndexInformer(&cache.ListWatch{ListWithContextFunc: w.list, WatchFuncWithContext: w.watch}, &metav1.PartialObjectMetadata{}, 0,
		cache.Indexers{byUID: func(object any) ([]string, error) {
			return []string{string(object.(*metav1.PartialObjectMetadata).UID)}, nil
		}})
	if err := w.informer.SetTransform(slim); err != nil {
		return nil, err
	}
	if err := w.informer.SetWatchErrorHandlerWithContext(w.failed); err != nil {
		return nil, err
	}
	if w.owners != nil {
		if _, err := w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: w.gone}); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (w *Watcher) gone(object any) {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	if m, ok := object.(*metav1.PartialObjectMetadata); ok {
		w.owners.forget(m.UID)
	}
}

func (w *Watcher) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	o.FieldSelector = w.node.String()
	l, err := w.client.Resource(pods).List(ctx, o)
	w.note(err)
	return l, err
}

func (w *Watcher) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.FieldSelector = w.node.String()
	i, err := w.client.Resource(pods).Watch(ctx, o)
	w.note(err)
	return i, err
}

// note whether the API server answered, and say so when that changes.
func (w *Watcher) note(err error) {
	if was := w.reachable.Swap(err == nil); err != nil && was {
		w.log.Warn("the API server does not tell of the node's pods; what was known of them stays", "err", err)
	}
}

// failed is told of each list and watch that ended with an error; the informer
// tries again by itself.
func (w *Watcher) failed(_ context.Context, _ *cache.Reflector, err error) {
	w.log.Debug("following the node's pods goes on anew", "err", err)
}

// slim drops what is not read.
func slim(object any) (any, error) {
	if m, ok := object.(*metav1.PartialObjectMetadata); ok {
		m.ManagedFields, m.Annotations = nil, nil
	}
	return object, nil
}

// Run until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	if w.owners != nil {
		done := make(chan struct{})
		go func() { defer close(done); w.owners.run(ctx) }()
		defer func() { <-done }()
	}
	w.informer.RunWithContext(ctx)
}

// WaitForList of the node's pods; false when ctx ended before.
func (w *Watcher) WaitForList(ctx context.Context) bool {
	return cache.WaitForCacheSync(ctx.Done(), w.informer.HasSynced)
}

// Reachable tells whether the API server answered the last list or watch of pods.
func (w *Watcher) Reachable() bool { return w.reachable.Load() }

// Pod by its name; false where it is not known. Its owner is looked up at the first
// call, and known at a later one.
func (w *Watcher) Pod(namespace, name string) (podmap.Meta, bool) {
	object, ok, err := w.informer.GetStore().GetByKey(namespace + "/" + name)
	if err != nil || !ok {
		return podmap.Meta{}, false
	}
	m := object.(*metav1.PartialObjectMetadata)
	out := podmap.Meta{UID: string(m.UID), Labels: m.Labels}
	if w.owners != nil {
		if top, known := w.owners.of(m); known {
			out.OwnerKind, out.OwnerName = top.Kind, top.Name
		}
	}
	return out, true
}

// Named pod with a UID; false where there is none on the node.
func (w *Watcher) Named(uid string) (namespace, name string, ok bool) {
	objects, err := w.informer.GetIndexer().ByIndex(byUID, uid)
	if err != nil || len(objects) == 0 {
		return "", "", false
	}
	m := objects[0].(*metav1.PartialObjectMetadata)
	return m.Namespace, m.Name, true
}

// Count the pods on a node, once; an error says what is missing.
func Count(ctx context.Context, config *rest.Config, node string) (int, error) {
	client, err := metadata.NewForConfig(metadata.ConfigFor(config))
	if err != nil {
		return 0, fmt.Errorf("a client of the API server: %w", err)
	}
	l, err := client.Resource(pods).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()})
	if err != nil {
		return 0, fmt.Errorf("list the node's pods: %w", err)
	}
	return len(l.Items), nil
}
