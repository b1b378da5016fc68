package fleet

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// watchPods reports the pods of each node to its simulated device manager until
// lifetime ends.
func (c *Cluster) watchPods(lifetime context.Context) error {
	clientset, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(clientset, 0)
	informer := factory.Core().V1().Pods().Informer()
	observe := func(object any, deleted bool) {
		if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = tombstone.Obj
		}
		pod, ok := object.(*corev1.Pod)
		if !ok || pod.Spec.NodeName == "" {
			return
		}
		if node := c.fleet.node(pod.Spec.NodeName); node != nil {
			node.observe(pod, deleted)
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { observe(o, false) },
		UpdateFunc: func(_, o any) { observe(o, false) },
		DeleteFunc: func(o any) { observe(o, true) },
	}); err != nil {
		return err
	}
	factory.Start(lifetime.Done())
	c.fleet.servers.Add(1)
	go func() { defer c.fleet.servers.Done(); <-lifetime.Done(); factory.Shutdown() }()
	ctx, cancel := context.WithTimeout(lifetime, 30*time.Second)
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return fmt.Errorf("the pods of %s could not be listed within 30 s", c.Name)
	}
	return nil
}
