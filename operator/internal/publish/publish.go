package publish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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

var kind = schema.GroupVersionKind{Group: clusterv1alpha1.GroupName, Version: "v1alpha1", Kind: "AddOnPlacementScore"}

// Publisher writes scores.
type Publisher struct {
	// Client reads from a cache with Indices and writes to the API server.
	Client client.Client
	// Concurrency of writes, 16 when 0.
	Concurrency int
}

// Request is what a policy wants to stand in its clusters.
type Request struct {
	Owner Owner
	Name  string // of the AddOnPlacementScores
	Want  []Desired
	Valid time.Duration
	Now   time.Time
}

// Report says what became of a request.
type Report struct {
	Written, Unchanged, Deleted int
	// Reasons counts the writes by what had changed.
	Reasons map[string]int
	// Taken are clusters where an object of that name belongs to somebody else.
	Taken []string
	// NoNamespace are clusters whose namespace does not exist or goes away.
	NoNamespace []string
	// Failed counts writes that the API server refused, Err is one of them.
	Failed int
	Err    error
}

// Publish brings the live scores to what is wanted: it writes what has changed and
// deletes the owner's scores that are not wanted any more.
func (p *Publisher) Publish(ctx context.Context, req Request) *Report {
	report := &Report{Reasons: map[string]int{}}
	var live, owned clusterv1alpha1.AddOnPlacementScoreList
	err := errors.Join(
		p.Client.List(ctx, &live, client.MatchingFields{byName: req.Name}, client.UnsafeDisableDeepCopy),
		p.Client.List(ctx, &owned, client.MatchingFields{byOwner: ownerKey(req.Owner.Kind, req.Owner.Name)}, client.UnsafeDisableDeepCopy),
	)
	if err != nil {
		report.Failed, report.Err = 1, fmt.Errorf("list AddOnPlacementScores: %w", err)
		return report
	}
	byCluster := make(map[string]*clusterv1alpha1.AddOnPlacementScore, len(live.Items))
	for i := range live.Items {
		byCluster[live.Items[i].Namespace] = &live.Items[i]
	}
	writes := plan(req, byCluster, report)
	p.apply(ctx, req, writes, unwanted(req, owned.Items), report)
	slices.Sort(report.Taken)
	slices.Sort(report.NoNamespace)
	return report
}

// write is one object to write, and why.
type write struct {
	want *Desired
	live *clusterv1alpha1.AddOnPlacementScore // nil: there is none yet
	why  string
}

func plan(req Request, live map[string]*clusterv1alpha1.AddOnPlacementScore, report *Report) []write {
	var writes []write
	for i := range req.Want {
		w := write{want: &req.Want[i], live: live[req.Want[i].Cluster]}
		if w.why = why(req, w, report); w.why != "" {
			writes = append(writes, w)
		}
	}
	return writes
}

func (p *Publisher) apply(ctx context.Context, req Request, writes []write, old []*clusterv1alpha1.AddOnPlacementScore, report *Report) {
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
			report.count(w.want.Cluster, w.why, err)
			return nil
		})
	}
	for _, o := range old {
		group.Go(func() error {
			err := client.IgnoreNotFound(p.Client.Delete(ctx, o.DeepCopy(), client.Preconditions{UID: &o.UID}))
			mu.Lock()
			defer mu.Unlock()
			report.countDeleted(err)
			return nil
		})
	}
	_ = group.Wait()
}

// why says why a cluster's object must be written, empty when it must not.
func why(req Request, w write, report *Report) string {
	if w.live == nil {
		if len(w.want.Scores) == 0 {
			report.Unchanged++
			return ""
		}
		return "new"
	}
	owned, current := req.Owner.owns(w.live)
	switch {
	case !owned:
		report.Taken = append(report.Taken, w.want.Cluster)
		return ""
	case !current:
		return "owner"
	}
	what := Changed(&w.live.Status, w.want, req.Now, req.Valid)
	if what == "" {
		report.Unchanged++
	}
	return what
}

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
	return p.Client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(status(req, want, live)), FieldOwner, client.ForceOwnership)
}

// errTaken is returned when somebody else's object stands in the way.
var errTaken = errors.New("the name is taken")

// create makes the object, never taking over one that came in between: an apply
// would.
func (p *Publisher) create(ctx context.Context, req Request, want *Desired) (*clusterv1alpha1.AddOnPlacementScore, error) {
	obj := &clusterv1alpha1.AddOnPlacementScore{ObjectMeta: metav1.ObjectMeta{
		Name: req.Name, Namespace: want.Cluster, OwnerReferences: []metav1.OwnerReference{req.Owner.reference()},
	}}
	err := p.Client.Create(ctx, obj, FieldOwner)
	if !apierrors.IsAlreadyExists(err) {
		return obj, err
	}
	// The cache may be behind our own write: the API server does not refuse an apply
	// that sets what already stands, so only ownership must be looked at.
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(kind)
	if err := p.Client.Get(ctx, client.ObjectKeyFromObject(obj), live); err != nil {
		return nil, err
	}
	if owned, current := req.Owner.owns(live); !owned || !current {
		return nil, errTaken
	}
	return obj, nil
}

// adopt puts the owner in the place of the one of the same name that is gone: an
// apply would add it beside that, and an object has one controller.
func (p *Publisher) adopt(ctx context.Context, req Request, live *clusterv1alpha1.AddOnPlacementScore) error {
	obj := live.DeepCopy()
	obj.OwnerReferences = slices.DeleteFunc(obj.OwnerReferences, req.Owner.named)
	obj.OwnerReferences = append(obj.OwnerReferences, req.Owner.reference())
	return p.Client.Patch(ctx, obj, client.MergeFromWithOptions(live, client.MergeFromWithOptimisticLock{}), FieldOwner)
}

func object(req Request, want *Desired) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(kind)
	obj.SetNamespace(want.Cluster)
	obj.SetName(req.Name)
	return obj
}

func status(req Request, want *Desired, live *clusterv1alpha1.AddOnPlacementScore) *unstructured.Unstructured {
	scores := make([]any, len(want.Scores))
	for i, s := range want.Scores {
		scores[i] = map[string]any{"name": s.Name, "value": int64(s.Value)}
	}
	obj := object(req, want)
	obj.Object["status"] = map[string]any{
		"scores":     scores,
		"validUntil": stamp(want.ValidUntil),
		"conditions": []any{map[string]any{
			"type": DataFresh, "status": string(want.Status), "reason": want.Reason, "message": want.Message,
			"lastTransitionTime": stamp(transition(&live.Status, want, req.Now).Time),
		}},
	}
	return obj
}

// unwanted are the owner's objects under another name or in clusters that the
// policy does not score any more.
func unwanted(req Request, owned []clusterv1alpha1.AddOnPlacementScore) []*clusterv1alpha1.AddOnPlacementScore {
	wanted := make(map[string]bool, len(req.Want))
	for i := range req.Want {
		wanted[req.Want[i].Cluster] = true
	}
	var out []*clusterv1alpha1.AddOnPlacementScore
	for i := range owned {
		o := &owned[i]
		if ok, _ := req.Owner.owns(o); !ok || o.DeletionTimestamp != nil || o.Name == req.Name && wanted[o.Namespace] {
			continue
		}
		out = append(out, o)
	}
	return out
}

func (r *Report) count(cluster, what string, err error) {
	switch {
	case err == nil:
		r.Written++
		r.Reasons[what]++
	case errors.Is(err, errTaken):
		r.Taken = append(r.Taken, cluster)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), noNamespace(err):
		r.NoNamespace = append(r.NoNamespace, cluster)
	default:
		r.Failed++
		r.Err = fmt.Errorf("write the score of %s: %w", cluster, err)
	}
}

func (r *Report) countDeleted(err error) {
	if err != nil {
		r.Failed++
		r.Err = fmt.Errorf("delete a score: %w", err)
		return
	}
	r.Deleted++
}

func noNamespace(err error) bool {
	return apierrors.IsNotFound(err) && strings.Contains(err.Error(), "namespaces ")
}
