package publish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// FieldOwner is the field manager of every write.
const FieldOwner = client.FieldOwner("plimsoll-scores")

var scoreKind = schema.GroupVersionKind{Group: clusterv1alpha1.GroupName, Version: "v1alpha1", Kind: "AddOnPlacementScore"}

// Publisher writes AddOnPlacementScores.
type Publisher struct {
	// Client reads from a cache with the indexes of AddIndexes, and writes to the API
	// server.
	Client client.Client
	// Concurrency is the maximum number of concurrent writes. Default 16.
	Concurrency int
}

// Request is the desired state of all AddOnPlacementScores of a policy.
type Request struct {
	Owner Owner
	// Name of the AddOnPlacementScores.
	Name string
	// Adopt takes over objects of this name that no object controls.
	Adopt bool
	Want  []Desired
	// Valid is the validity of newly written scores.
	Valid time.Duration
	Now   time.Time
}

// Report is the outcome of a request.
type Report struct {
	// Written, Unchanged and Deleted are numbers of objects.
	Written, Unchanged, Deleted int
	// Unscored is the number of clusters without any score. No object is created for them.
	Unscored int
	// Reasons counts the written objects by reason.
	Reasons map[WriteReason]int
	// Taken lists the clusters with an object of the same name and another owner.
	Taken []string
	// NoNamespace lists the clusters without a namespace, or with a terminating one.
	NoNamespace []string
	// Failed is the number of failed writes and deletions, and Err one of the failures.
	Failed int
	Err    error
}

// Publish writes the desired scores that differ from the live ones, and deletes the
// owner's scores that are no longer desired.
func (p *Publisher) Publish(ctx context.Context, req Request) *Report {
	report := &Report{Reasons: map[WriteReason]int{}}
	var live, owned clusterv1alpha1.AddOnPlacementScoreList
	err := errors.Join(
		p.Client.List(ctx, &live, client.MatchingFields{nameIndex: req.Name}, client.UnsafeDisableDeepCopy),
		p.Client.List(ctx, &owned, client.MatchingFields{ownerIndex: ownerKey(req.Owner.Kind, req.Owner.Name)}, client.UnsafeDisableDeepCopy),
	)
	if err != nil {
		report.Failed, report.Err = 1, fmt.Errorf("list AddOnPlacementScores: %w", err)
		return report
	}
	byCluster := make(map[string]*clusterv1alpha1.AddOnPlacementScore, len(live.Items))
	for i := range live.Items {
		byCluster[live.Items[i].Namespace] = &live.Items[i]
	}
	p.apply(ctx, req, planWrites(req, byCluster, report), unwanted(req, owned.Items), report)
	slices.Sort(report.Taken)
	slices.Sort(report.NoNamespace)
	return report
}

// plannedWrite is one object to write.
type plannedWrite struct {
	want   *Desired
	live   *clusterv1alpha1.AddOnPlacementScore // nil if the object does not exist
	reason WriteReason
}

// planWrites returns the objects to write. It counts unchanged objects and records
// clusters with an object of another owner.
func planWrites(req Request, live map[string]*clusterv1alpha1.AddOnPlacementScore, report *Report) []plannedWrite {
	var writes []plannedWrite
	for i := range req.Want {
		want := &req.Want[i]
		if len(want.Scores) == 0 {
			report.Unscored++
		}
		object := live[want.Cluster]
		reason, taken := decideWrite(req, want, object)
		switch {
		case taken:
			report.Taken = append(report.Taken, want.Cluster)
		case reason == "":
			report.Unchanged++
		default:
			writes = append(writes, plannedWrite{want: want, live: object, reason: reason})
		}
	}
	return writes
}

// decideWrite returns why an object must be written. The reason is empty if the object
// is up to date. taken means that another owner has the object. A cluster without any
// score gets no new object.
func decideWrite(req Request, want *Desired, live *clusterv1alpha1.AddOnPlacementScore) (reason WriteReason, taken bool) {
	if live == nil {
		if len(want.Scores) == 0 {
			return "", false
		}
		return reasonNew, false
	}
	owned, current := req.Owner.owns(live)
	switch {
	case !owned && req.Adopt && metav1.GetControllerOfNoCopy(live) == nil:
		return reasonAdopted, false
	case !owned:
		return "", true
	case !current:
		return reasonOwner, false
	}
	return diff(live, want, req.Now, req.Valid), false
}

// unwanted returns the owner's objects with another name, or in clusters that the policy
// no longer scores.
func unwanted(req Request, owned []clusterv1alpha1.AddOnPlacementScore) []*clusterv1alpha1.AddOnPlacementScore {
	wanted := make(map[string]bool, len(req.Want))
	for i := range req.Want {
		wanted[req.Want[i].Cluster] = true
	}
	var objects []*clusterv1alpha1.AddOnPlacementScore
	for i := range owned {
		o := &owned[i]
		if ok, _ := req.Owner.owns(o); !ok || o.DeletionTimestamp != nil || o.Name == req.Name && wanted[o.Namespace] {
			continue
		}
		objects = append(objects, o)
	}
	return objects
}

// apply writes and deletes the objects concurrently, and counts the results.
func (p *Publisher) apply(ctx context.Context, req Request, writes []plannedWrite, deletions []*clusterv1alpha1.AddOnPlacementScore, report *Report) {
	var (
		mu    sync.Mutex
		group errgroup.Group
	)
	group.SetLimit(cmp.Or(p.Concurrency, 16))
	for _, w := range writes {
		group.Go(func() error {
			err := p.write(ctx, req, w.want, w.live)
			mu.Lock()
			defer mu.Unlock()
			report.countWrite(w.want.Cluster, w.reason, err)
			return nil
		})
	}
	for _, object := range deletions {
		group.Go(func() error {
			err := client.IgnoreNotFound(p.Client.Delete(ctx, object.DeepCopy(), client.Preconditions{UID: &object.UID}))
			mu.Lock()
			defer mu.Unlock()
			report.countDeletion(object.Namespace, err)
			return nil
		})
	}
	_ = group.Wait() // the functions report their errors themselves
}

// write creates or adopts the object if necessary, and applies its status.
func (p *Publisher) write(ctx context.Context, req Request, want *Desired, live *clusterv1alpha1.AddOnPlacementScore) error {
	if live == nil {
		created, err := p.create(ctx, req, want)
		if err != nil {
			return err
		}
		live = created
	} else if _, current := req.Owner.owns(live); !current {
		if err := p.adopt(ctx, req, live); err != nil {
			return err
		}
	}
	if err := p.writeSeries(ctx, want, live); err != nil {
		return err
	}
	return p.Client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(statusPatch(req, want, live)), FieldOwner, client.ForceOwnership)
}

// create creates the object. If the cache does not contain yet an object that exists, its error says so,
// and the next round decides on the object. Server-side apply would take one of another owner over.
func (p *Publisher) create(ctx context.Context, req Request, want *Desired) (*clusterv1alpha1.AddOnPlacementScore, error) {
	obj := &clusterv1alpha1.AddOnPlacementScore{ObjectMeta: metav1.ObjectMeta{
		Name: req.Name, Namespace: want.Cluster, OwnerReferences: []metav1.OwnerReference{req.Owner.reference()},
	}}
	setSeries(obj, want)
	return obj, p.Client.Create(ctx, obj, FieldOwner)
}

// adopt makes the owner the controller of an object: of one that nothing controls, or in
// place of the deleted owner of the same name. Server-side apply would add the owner beside
// the deleted one, but an object has only one controller.
//
// The status that other components wrote into an object without a controller is removed
// first: server-side apply would keep the scores that the policy does not publish, and
// validUntil would keep them valid for ever. If the next write fails, the object still has no
// controller, and the next round adopts it again.
func (p *Publisher) adopt(ctx context.Context, req Request, live *clusterv1alpha1.AddOnPlacementScore) error {
	unchanged := client.MergeFromWithOptimisticLock{}
	obj := live.DeepCopy()
	if owned, _ := req.Owner.owns(live); !owned {
		obj.Status = clusterv1alpha1.AddOnPlacementScoreStatus{}
		if err := p.Client.Status().Patch(ctx, obj, client.MergeFromWithOptions(live, unchanged), FieldOwner); err != nil {
			return err
		}
	}
	before := obj.DeepCopy()
	obj.OwnerReferences = slices.DeleteFunc(obj.OwnerReferences, req.Owner.matches)
	obj.OwnerReferences = append(obj.OwnerReferences, req.Owner.reference())
	return p.Client.Patch(ctx, obj, client.MergeFromWithOptions(before, unchanged), FieldOwner)
}

// statusPatch returns the status to apply.
func statusPatch(req Request, want *Desired, live *clusterv1alpha1.AddOnPlacementScore) *unstructured.Unstructured {
	scores := make([]any, len(want.Scores))
	for i, s := range want.Scores {
		scores[i] = map[string]any{"name": s.Name, "value": int64(s.Value)}
	}
	conditions := make([]any, len(want.Conditions))
	for i := range want.Conditions {
		c := &want.Conditions[i]
		conditions[i] = map[string]any{
			"type": c.Type, "status": string(c.Status), "reason": c.Reason, "message": c.Message,
			"lastTransitionTime": formatTime(transitionTime(live.Status.Conditions, c, req.Now)),
		}
	}
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(scoreKind)
	obj.SetNamespace(want.Cluster)
	obj.SetName(req.Name)
	obj.Object["status"] = map[string]any{"scores": scores, "validUntil": formatTime(want.ValidUntil), "conditions": conditions}
	return obj
}

// countWrite counts the result of one write.
func (r *Report) countWrite(cluster string, reason WriteReason, err error) {
	switch {
	case err == nil:
		r.Written++
		r.Reasons[reason]++
	case lacksNamespace(err):
		r.NoNamespace = append(r.NoNamespace, cluster)
	default:
		r.Failed++
		r.Err = fmt.Errorf("write the AddOnPlacementScore of cluster %s: %w", cluster, err)
	}
}

// lacksNamespace reports whether a write failed because the namespace of the cluster does
// not exist or terminates.
func lacksNamespace(err error) bool {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return true
	}
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &status) &&
		status.Status().Details != nil && status.Status().Details.Kind == "namespaces"
}

// countDeletion counts the result of one deletion.
func (r *Report) countDeletion(cluster string, err error) {
	if err != nil {
		r.Failed++
		r.Err = fmt.Errorf("delete the AddOnPlacementScore of cluster %s: %w", cluster, err)
		return
	}
	r.Deleted++
}
