package kube

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
)

// newEndedPods returns an informer of the node's pods that have ended. The metadata of a pod does not
// contain its phase, but the API server can select by it. A field selector has no "or": the phases
// other than Succeeded and Failed are excluded.
func newEndedPods(client metadata.Interface, node fields.Selector) (cache.SharedIndexInformer, error) {
	selector := fields.AndSelectors(node, fields.OneTermNotEqualSelector("status.phase", "Pending"),
		fields.OneTermNotEqualSelector("status.phase", "Running"), fields.OneTermNotEqualSelector("status.phase", "Unknown")).String()
	ended := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			return client.Resource(pods).List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			return client.Resource(pods).Watch(ctx, o)
		},
	}, &metav1.PartialObjectMetadata{}, 0, cache.Indexers{})
	return ended, ended.SetTransform(Options{}.dropUnusedMetadata)
}

// hasEnded reports whether a pod has ended, as far as the watch shows it. Kubelets before 1.34 list such
// pods until they are deleted. A pod that is not known to have ended counts as running.
func (w *Watcher) hasEnded(pod *metav1.PartialObjectMetadata) bool {
	if w.ended == nil {
		return false
	}
	object, ok, err := w.ended.GetStore().GetByKey(pod.Namespace + "/" + pod.Name)
	return err == nil && ok && object.(*metav1.PartialObjectMetadata).UID == pod.UID
}
