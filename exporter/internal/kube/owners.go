package kube

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/workqueue"
)

// intermediateControllers are the kinds that can have a controller above them, with their
// resource names. Only these are read. A controller of another kind is the topmost.
var intermediateControllers = map[schema.GroupKind]string{
	{Group: "batch", Kind: "Job"}:              "jobs",         // below a JobSet or CronJob
	{Group: "jobset.x-k8s.io", Kind: "JobSet"}: "jobsets",      // below a TrainJob
	{Group: "ray.io", Kind: "RayCluster"}:      "rayclusters",  // below a RayJob or RayService
	{Group: "apps", Kind: "ReplicaSet"}:        "replicasets",  // below a Deployment
	{Group: "apps", Kind: "StatefulSet"}:       "statefulsets", // below a LeaderWorkerSet, or the Pod that leads its workers
	{Group: "", Kind: "Pod"}:                   "pods",
}

// owner is the topmost controller of a pod.
type owner struct{ Kind, Name string }

// ownerLookup is the state of the lookup for one pod.
type ownerLookup struct {
	namespace  string
	controller metav1.OwnerReference // of the pod
	top        owner
	done       bool
}

// ownerIndex looks up the topmost controllers of pods in the background, once for each
// pod.
type ownerIndex struct {
	client metadata.Interface
	queue  workqueue.TypedRateLimitingInterface[types.UID]
	log    *slog.Logger

	mu        sync.Mutex
	pods      map[types.UID]*ownerLookup
	forbidden map[schema.GroupKind]bool // kinds whose missing permission was logged
}

// Delays between attempts of a lookup while the API server is unreachable.
const firstRetry, lastRetry = time.Second, time.Minute

func newOwnerIndex(client metadata.Interface, log *slog.Logger) *ownerIndex {
	return &ownerIndex{client: client, log: log, pods: map[types.UID]*ownerLookup{}, forbidden: map[schema.GroupKind]bool{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](firstRetry, lastRetry))}
}

// ownerOf returns the owner of a pod. The first call starts the lookup, and known is false
// until the lookup has succeeded. A pod without a controller is its own owner.
func (x *ownerIndex) ownerOf(pod *metav1.PartialObjectMetadata) (top owner, known bool) {
	ref := controllerOf(pod)
	if ref == nil {
		return owner{"Pod", pod.Name}, true
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	l := x.pods[pod.UID]
	if l == nil {
		l = &ownerLookup{namespace: pod.Namespace, controller: *ref}
		x.pods[pod.UID] = l
		x.queue.Add(pod.UID)
	}
	return l.top, l.done
}

// Limits of Kubernetes for the names of objects and kinds, and for group and version. The API server
// accepts any length in a reference.
const maxName, maxKind, maxAPIVersion = 253, 63, 253 + 1 + 63

// controllerOf returns the reference to the controller of an object. It is nil without a controller,
// and for a reference that is too long to be one of an object.
func controllerOf(object metav1.Object) *metav1.OwnerReference {
	ref := metav1.GetControllerOf(object)
	if ref == nil || len(ref.Name) > maxName || len(ref.Kind) > maxKind || len(ref.APIVersion) > maxAPIVersion || len(ref.UID) > maxName {
		return nil
	}
	return ref
}

// forget drops the lookup of a deleted pod.
func (x *ownerIndex) forget(pod types.UID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.pods, pod)
	x.queue.Forget(pod)
}

// run processes lookups until ctx ends.
func (x *ownerIndex) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, x.queue.ShutDown)
	defer stop()
	for {
		pod, shutdown := x.queue.Get()
		if shutdown {
			return
		}
		if err := x.lookUp(ctx, pod); err != nil && ctx.Err() == nil {
			x.log.Debug("cannot look up the owner of a pod yet", "uid", pod, "err", err)
			x.queue.AddRateLimited(pod)
		} else {
			x.queue.Forget(pod)
		}
		x.queue.Done(pod)
	}
}

func (x *ownerIndex) lookUp(ctx context.Context, pod types.UID) error {
	x.mu.Lock()
	l := x.pods[pod]
	x.mu.Unlock()
	if l == nil {
		return nil // the pod was deleted
	}
	top, err := x.findTop(ctx, l.namespace, l.controller)
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	l.top, l.done = top, true
	return nil
}

// maxDepth limits the number of controllers above a pod, in case their references form a
// cycle.
const maxDepth = 10

// findTop follows controllers upward from a reference. A controller that was deleted, or
// that the exporter may not read, counts as the topmost. So does one whose name or version is no
// segment of a path: the API server accepts any text in a reference, and a name with dots and
// slashes would read another object.
func (x *ownerIndex) findTop(ctx context.Context, namespace string, ref metav1.OwnerReference) (owner, error) {
	for range maxDepth {
		group, err := schema.ParseGroupVersion(ref.APIVersion)
		kind := schema.GroupKind{Group: group.Group, Kind: ref.Kind}
		resource, isIntermediate := intermediateControllers[kind]
		if err != nil || !isIntermediate || len(content.IsPathSegmentName(ref.Name)) > 0 || len(content.IsPathSegmentName(group.Version)) > 0 {
			break
		}
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		object, err := x.client.Resource(group.WithResource(resource)).Namespace(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		cancel()
		if apierrors.IsForbidden(err) {
			x.logForbidden(kind, err)
			break
		}
		if apierrors.IsNotFound(err) {
			break
		}
		if err != nil {
			return owner{}, fmt.Errorf("read %s %s/%s: %w", ref.Kind, namespace, ref.Name, err)
		}
		above := controllerOf(object)
		if object.UID != ref.UID || above == nil {
			break
		}
		ref = *above
	}
	return owner{ref.Kind, ref.Name}, nil
}

// logForbidden logs once for each kind that the exporter lacks the permission to read it.
func (x *ownerIndex) logForbidden(kind schema.GroupKind, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.forbidden[kind] {
		x.forbidden[kind] = true
		x.log.Warn("no permission to read controllers of pods; plimsoll_pod_owner_info has this kind instead of a controller above it", "kind", kind.String(), "err", err)
	}
}
