package kube

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/workqueue"
)

// followed are the controllers that may have one above them, and the only ones that
// are read: an owner of another kind is the top.
var followed = map[schema.GroupKind]string{
	{Group: "batch", Kind: "Job"}:              "jobs",         // of a JobSet, CronJob
	{Group: "jobset.x-k8s.io", Kind: "JobSet"}: "jobsets",      // of a TrainJob
	{Group: "ray.io", Kind: "RayCluster"}:      "rayclusters",  // of a RayJob, RayService
	{Group: "apps", Kind: "ReplicaSet"}:        "replicasets",  // of a Deployment
	{Group: "apps", Kind: "StatefulSet"}:       "statefulsets", // of a LeaderWorkerSet, or the Pod that leads its workers
	{Group: "", Kind: "Pod"}:                   "pods",
}

// owner at the top.
type owner struct{ Kind, Name string }

// lookUp is the way up from one pod.
type lookUp struct {
	namespace string
	from      metav1.OwnerReference
	top       owner
	known     bool
}

// owners looks up the tops of pods' controllers, once for each pod that is asked for.
type owners struct {
	client metadata.Interface
	queue  workqueue.TypedRateLimitingInterface[types.UID]
	log    *slog.Logger

	mu   sync.Mutex
	pods map[types.UID]*lookUp
}

// Between attempts while the API server does not answer.
const firstRetry, lastRetry = time.Second, time.Minute

func newOwners(client metadata.Interface, log *slog.Logger) *owners {
	return &owners{client: client, log: log, pods: map[types.UID]*lookUp{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](firstRetry, lastRetry))}
}

// of a pod; known is false until it has been looked up.
func (o *owners) of(pod *metav1.PartialObjectMetadata) (top owner, known bool) {
	ref := metav1.GetControllerOf(pod)
	if ref == nil {
		return owner{"Pod", pod.Name}, true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.pods[pod.UID]
	if l == nil {
		l = &lookUp{namespace: pod.Namespace, from: *ref}
		o.pods[pod.UID] = l
		o.queue.Add(pod.UID)
	}
	return l.top, l.known
}

// forget a pod that is gone.
func (o *owners) forget(pod types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.pods, pod)
	o.queue.Forget(pod)
}

// run looks up what is asked for until ctx ends.
func (o *owners) run(ctx context.Context) {
	stopped := context.AfterFunc(ctx, o.queue.ShutDown)
	defer stopped()
	for {
		pod, ended := o.queue.Get()
		if ended {
			return
		}
		if err := o.find(ctx, pod); err != nil && ctx.Err() == nil {
			o.log.Debug("the owner of a pod is not known yet", "uid", pod, "err", err)
			o.queue.AddRateLimited(pod)
		} else {
			o.queue.Forget(pod)
		}
		o.queue.Done(pod)
	}
}

func (o *owners) find(ctx context.Context, pod types.UID) error {
	o.mu.Lock()
	l := o.pods[pod]
	o.mu.Unlock()
	if l == nil {
		return nil // it went away meanwhile
	}
	top, err := o.top(ctx, l.namespace, l.from)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	l.top, l.known = top, true
	return nil
}

// maxHeight of a hierarchy, in case it goes round in a circle.
const maxHeight = 10

// top follows controllers upwards from a reference. One that is gone, or which we
// may not read, is the top as far as can be told.
func (o *owners) top(ctx context.Context, namespace string, ref metav1.OwnerReference) (owner, error) {
	for range maxHeight {
		group, err := schema.ParseGroupVersion(ref.APIVersion)
		resource, more := followed[schema.GroupKind{Group: group.Group, Kind: ref.Kind}]
		if err != nil || !more {
			break
		}
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		object, err := o.client.Resource(group.WithResource(resource)).Namespace(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		cancel()
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			break
		}
		if err != nil {
			return owner{}, fmt.Errorf("read %s %s/%s: %w", ref.Kind, namespace, ref.Name, err)
		}
		above := metav1.GetControllerOf(object)
		if object.UID != ref.UID || above == nil {
			break
		}
		ref = *above
	}
	return owner{ref.Kind, ref.Name}, nil
}
