// Package kube watches the metadata of a node's pods: UIDs, labels, owners and the devices
// that HAMi assigned. It never requests specs or statuses.
package kube

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// Watcher watches the pods of a node. While the API server is unreachable it keeps the last
// known metadata. Create a Watcher with New and call Run.
type Watcher struct {
	client      metadata.Interface
	connections *http.Client // of client
	informer    cache.SharedIndexInformer
	ended       cache.SharedIndexInformer // pods that have ended; nil without Fractions
	node        fields.Selector
	owners      *ownerIndex // nil if owners are not looked up
	reachable   atomic.Bool
	failing     atomic.Bool // a failure was logged
	log         *slog.Logger
}

// Options configure a Watcher.
type Options struct {
	Node      string                // name of the node
	Owners    bool                  // look up the topmost controller of each pod
	Fractions bool                  // Fraction is called
	Label     func(key string) bool // selects the labels that Pod returns; nil selects none
	Log       *slog.Logger
}

const byUID = "uid"

// mirrorAnnotation is on the mirror of a static pod in the API server. It has the UID by which the
// kubelet knows the pod, which is the UID in the pod's cgroup.
const mirrorAnnotation = "kubernetes.io/config.mirror"

// New returns a Watcher of the pods of a node.
func New(config *rest.Config, o Options) (*Watcher, error) {
	config = metadata.ConfigFor(config)
	config.Timeout = 0 // a watch is unlimited; other requests have their own timeout
	connections, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("create a client for the API server: %w", err)
	}
	client, err := metadata.NewForConfigAndClient(config, connections)
	if err != nil {
		return nil, fmt.Errorf("create a client for the API server: %w", err)
	}
	w := &Watcher{client: client, connections: connections, node: fields.OneTermEqualSelector("spec.nodeName", o.Node), log: o.Log}
	if o.Owners {
		w.owners = newOwnerIndex(client, o.Log)
	}
	w.informer = cache.NewSharedIndexInformer(&cache.ListWatch{ListWithContextFunc: w.list, WatchFuncWithContext: w.watch}, &metav1.PartialObjectMetadata{}, 0,
		cache.Indexers{byUID: func(object any) ([]string, error) {
			m := object.(*metav1.PartialObjectMetadata)
			uids := []string{string(m.UID)}
			if static, ok := m.Annotations[mirrorAnnotation]; ok {
				uids = append(uids, static)
			}
			return uids, nil
		}})
	if err := w.informer.SetTransform(o.dropUnusedMetadata); err != nil {
		return nil, err
	}
	if err := w.informer.SetWatchErrorHandlerWithContext(w.logWatchError); err != nil {
		return nil, err
	}
	if o.Fractions {
		if w.ended, err = newEndedPods(client, w.node); err != nil {
			return nil, err
		}
	}
	if w.owners != nil {
		if _, err := w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: w.forgetReplaced, DeleteFunc: w.forgetOwner}); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// forgetReplaced drops the owner of a pod that was replaced by another one of the same name while
// the watch was interrupted. The informer reports that as an update.
func (w *Watcher) forgetReplaced(before, after any) {
	if m, ok := before.(*metav1.PartialObjectMetadata); ok && m.UID != after.(*metav1.PartialObjectMetadata).UID {
		w.owners.forget(m.UID)
	}
}

// forgetOwner drops the owner of a deleted pod.
func (w *Watcher) forgetOwner(object any) {
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
	w.recordReachable(err)
	return l, err
}

func (w *Watcher) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.FieldSelector = w.node.String()
	i, err := w.client.Resource(pods).Watch(ctx, o)
	w.recordReachable(err)
	return i, err
}

// recordReachable records the result of a request, and logs when requests start to fail and
// when they succeed again. The exporter may lack the permission from the start.
func (w *Watcher) recordReachable(err error) {
	w.reachable.Store(err == nil)
	switch wasFailing := w.failing.Swap(err != nil); {
	case err != nil && !wasFailing:
		w.log.Warn("cannot list or watch the node's pods; keeping the last known metadata", "err", err)
	case err == nil && wasFailing:
		w.log.Info("the node's pods can be listed again")
	}
}

// logWatchError logs each list or watch that ends with an error. The informer retries.
func (w *Watcher) logWatchError(_ context.Context, _ *cache.Reflector, err error) {
	w.log.Debug("watching the node's pods again", "err", err)
}

// maxAnnotation is the size in bytes from which on an annotation is dropped. No device has so many
// parts that one of HAMi's is larger.
const maxAnnotation = 16 << 10

// dropUnusedMetadata removes metadata that the exporter does not use. Tenants write it, so it could
// fill the memory.
func (o Options) dropUnusedMetadata(object any) (any, error) {
	if m, ok := object.(*metav1.PartialObjectMetadata); ok {
		m.ManagedFields, m.Finalizers = nil, nil
		m.Annotations = filter(m.Annotations, func(key, value string) bool {
			return (key == podmap.HAMiAnnotation || podmap.IsKAIAnnotation(key) || key == mirrorAnnotation) && len(value) <= maxAnnotation
		})
		m.Labels = filter(m.Labels, func(key, _ string) bool {
			return o.Label != nil && o.Label(key) || o.Fractions && podmap.IsKAILabel(key)
		})
		controller := controllerOf(m)
		m.OwnerReferences = nil
		if controller != nil && o.Owners {
			m.OwnerReferences = []metav1.OwnerReference{*controller}
		}
	}
	return object, nil
}

// filter returns a new map: one from which most entries are deleted would keep its memory.
func filter(all map[string]string, isKept func(key, value string) bool) map[string]string {
	kept := map[string]string{}
	for key, value := range all {
		if isKept(key, value) {
			kept[key] = value
		}
	}
	return kept
}

// Run watches until ctx ends, and then closes its connections.
func (w *Watcher) Run(ctx context.Context) {
	defer closeConnections(w.connections)
	if w.owners != nil {
		done := make(chan struct{})
		go func() { defer close(done); w.owners.run(ctx) }()
		defer func() { <-done }()
	}
	if w.ended != nil {
		done := make(chan struct{})
		go func() { defer close(done); w.ended.RunWithContext(ctx) }()
		defer func() { <-done }()
	}
	w.informer.RunWithContext(ctx)
}

// closeConnections closes the idle connections of a client, and ends the dials whose requests have
// ended. A dial continues without its request, so that another request can use the connection.
func closeConnections(client *http.Client) { utilnet.CloseIdleConnectionsFor(client.Transport) }

// WaitForList waits for the first lists of pods. It returns false if ctx ends first.
func (w *Watcher) WaitForList(ctx context.Context) bool {
	lists := []cache.InformerSynced{w.informer.HasSynced}
	if w.ended != nil {
		lists = append(lists, w.ended.HasSynced)
	}
	return cache.WaitForCacheSync(ctx.Done(), lists...)
}

// Reachable reports whether the last request to list or watch pods succeeded.
func (w *Watcher) Reachable() bool { return w.reachable.Load() }

// Pod returns the metadata of a pod. ok is false if the pod is unknown. The first call
// starts the lookup of the owner, and later calls return the owner.
func (w *Watcher) Pod(namespace, name string) (meta podmap.Meta, ok bool) {
	object, ok, err := w.informer.GetStore().GetByKey(namespace + "/" + name)
	if err != nil || !ok {
		return podmap.Meta{}, false
	}
	m := object.(*metav1.PartialObjectMetadata)
	meta = podmap.Meta{UID: string(m.UID), Labels: m.Labels}
	if meta.HAMi, err = podmap.ParseHAMi(m.Annotations[podmap.HAMiAnnotation]); err != nil {
		w.log.Debug("cannot read the devices of a pod", "namespace", namespace, "pod", name, "err", err)
	}
	if w.owners != nil {
		if top, known := w.owners.ownerOf(m); known {
			meta.OwnerKind, meta.OwnerName = top.Kind, top.Name
		}
	}
	return meta, true
}

// Fraction returns what a pod requests from KAI Scheduler, which is nothing after it has ended. ok is
// false if the pod is unknown.
func (w *Watcher) Fraction(namespace, name string) (f podmap.Fraction, ok bool) {
	object, ok, err := w.informer.GetStore().GetByKey(namespace + "/" + name)
	if err != nil || !ok {
		return podmap.Fraction{}, false
	}
	m := object.(*metav1.PartialObjectMetadata)
	if w.hasEnded(m) {
		return podmap.Fraction{}, true
	}
	return podmap.ParseKAI(m.Labels, m.Annotations), true
}

// PodByUID returns the name of the pod with a UID, which may be that of a static pod. ok is false if
// the node has no such pod, or several mirrors name it.
func (w *Watcher) PodByUID(uid string) (namespace, name string, ok bool) {
	objects, err := w.informer.GetIndexer().ByIndex(byUID, uid)
	if err != nil {
		return "", "", false
	}
	for _, object := range objects {
		if m := object.(*metav1.PartialObjectMetadata); len(objects) == 1 || string(m.UID) == uid {
			return m.Namespace, m.Name, true
		}
	}
	return "", "", false
}
