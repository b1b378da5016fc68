package fleet

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// watchPods reports the pods of each node to its simulated device manager until
// lifetime ends.
func (c *Cluster) watchPods(lifetime context.Context) error {
	pods, err := c.startCache(lifetime, cache.Options{}, &corev1.Pod{}, func(o client.Object, deleted bool) {
		pod := o.(*corev1.Pod)
		node := c.fleet.node(pod.Spec.NodeName)
		if node == nil {
			return
		}
		node.observe(pod, deleted)
		if err := c.annotateHAMi(lifetime, node, pod); err != nil && lifetime.Err() == nil {
			c.fleet.procs.report(err)
		}
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(lifetime, 30*time.Second)
	defer cancel()
	if !pods.WaitForCacheSync(ctx) {
		return fmt.Errorf("the pods of %s could not be listed within 30 s", c.Name)
	}
	return nil
}

// startCache starts a cache that calls record for each change of the kind's objects until
// ctx ends.
func (c *Cluster) startCache(ctx context.Context, options cache.Options, kind client.Object, record func(o client.Object, deleted bool)) (cache.Cache, error) {
	options.Scheme = Scheme
	objects, err := cache.New(c.Config, options)
	if err != nil {
		return nil, err
	}
	informer, err := objects.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { record(o.(client.Object), false) },
		UpdateFunc: func(_, o any) { record(o.(client.Object), false) },
		DeleteFunc: func(o any) {
			if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			record(o.(client.Object), true)
		},
	}); err != nil {
		return nil, err
	}
	go func() { _ = objects.Start(ctx) }() // a failed start makes WaitForCacheSync fail
	return objects, nil
}
