package publish

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// indexAdder adds field indexes to a fake client.
type indexAdder struct{ builder *fake.ClientBuilder }

func (a indexAdder) IndexField(_ context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	a.builder.WithIndex(obj, field, extract)
	return nil
}

// TestAdoptRemovesForeignScores: after the adoption, the object has our scores only, and is
// not written again. A write that fails in between does not change this.
func TestAdoptRemovesForeignScores(t *testing.T) {
	for _, failing := range []string{"", "status", "owner", "scores"} {
		t.Run("without "+failing, func(t *testing.T) { testAdopt(t, failing) })
	}
}

// failOnce returns a client whose first write of one kind fails: of the status without scores, of
// the owner, or of the scores.
func failOnce(c client.WithWatch, failing string) client.Client {
	write := func(kind string, do func() error) error {
		if kind == failing {
			failing = ""
			return errors.New("the connection was lost")
		}
		return do()
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			return write("status", func() error { return c.SubResource(sub).Patch(ctx, obj, patch, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return write("owner", func() error { return c.Patch(ctx, obj, patch, opts...) })
		},
		SubResourceApply: func(ctx context.Context, c client.Client, sub string, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
			return write("scores", func() error { return c.SubResource(sub).Apply(ctx, obj, opts...) })
		},
	})
}

func testAdopt(t *testing.T, failing string) {
	ctx, scheme := t.Context(), runtime.NewScheme()
	if err := clusterv1alpha1.Install(scheme); err != nil {
		t.Fatal(err)
	}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&clusterv1alpha1.AddOnPlacementScore{}).WithReturnManagedFields()
	if err := AddIndexes(ctx, indexAdder{builder}); err != nil {
		t.Fatal(err)
	}
	hub := builder.Build()
	old := &clusterv1alpha1.AddOnPlacementScore{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "x"}}
	if err := hub.Create(ctx, old); err != nil {
		t.Fatal(err)
	}
	old.Status.Scores = []clusterv1alpha1.AddOnPlacementScoreItem{{Name: "a", Value: 99}, {Name: "cpuAvailable", Value: 50}}
	if err := hub.Status().Update(ctx, old, client.FieldOwner("usage-collect")); err != nil {
		t.Fatal(err)
	}
	req := Request{
		Owner: Owner{APIVersion: "plimsoll.dev/v1alpha1", Kind: "ScoringPolicy", Name: "p", UID: "1"},
		Name:  "x", Adopt: true, Want: []Desired{*want(5)}, Valid: valid, Now: now,
	}
	req.Want[0].Series = map[string]int64{"q": 8}
	p := &Publisher{Client: failOnce(hub, failing)}
	if failing != "" {
		if r := p.Publish(ctx, req); r.Failed != 1 {
			t.Fatalf("%+v", r)
		}
		half := &clusterv1alpha1.AddOnPlacementScore{}
		if err := hub.Get(ctx, client.ObjectKeyFromObject(old), half); err != nil {
			t.Fatal(err)
		}
		if owned, _ := req.Owner.owns(half); owned && len(half.Status.Scores) > 0 {
			t.Errorf("the policy owns the object with the scores %v of the other component, and will not remove them", half.Status.Scores)
		}
	}
	if r := p.Publish(ctx, req); r.Err != nil || r.Written != 1 || failing == "" && r.Reasons[reasonAdopted] != 1 {
		t.Fatalf("%+v", r)
	}
	adopted := &clusterv1alpha1.AddOnPlacementScore{}
	if err := hub.Get(ctx, client.ObjectKeyFromObject(old), adopted); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want(5).Scores, adopted.Status.Scores); d != "" {
		t.Error(d)
	}
	if owned, current := req.Owner.owns(adopted); !owned || !current {
		t.Errorf("owners %v", adopted.OwnerReferences)
	}
	if r := p.Publish(ctx, req); r.Written != 0 {
		t.Errorf("written again: %+v", r)
	}
	seeds, err := p.Seeds(ctx, req.Owner, "x")
	if err != nil || len(seeds) != 1 || seeds[0].Series["q"] != 8 {
		t.Errorf("seeds %+v, %v", seeds, err)
	}
}

// TestObjectThatTheCacheLacks: the operator may list scores, but not get them. If an object exists that its
// cache does not contain yet, the write fails, and the next round decides on the object in the cache.
func TestObjectThatTheCacheLacks(t *testing.T) {
	owner := Owner{APIVersion: "plimsoll.dev/v1alpha1", Kind: "ScoringPolicy", Name: "p", UID: "1"}
	predecessor, other := owner, owner
	predecessor.UID, other.Name = "0", "other"
	for name, tc := range map[string]struct {
		owner Owner
		taken bool
	}{
		"of the policy":                {owner, false},
		"of an earlier policy":         {predecessor, false},
		"of another policy, same name": {other, true},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := clusterv1alpha1.Install(scheme); err != nil {
				t.Fatal(err)
			}
			builder := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&clusterv1alpha1.AddOnPlacementScore{}).
				WithObjects(&clusterv1alpha1.AddOnPlacementScore{ObjectMeta: metav1.ObjectMeta{
					Namespace: "c1", Name: "x", OwnerReferences: []metav1.OwnerReference{tc.owner.reference()},
				}})
			if err := AddIndexes(t.Context(), indexAdder{builder}); err != nil {
				t.Fatal(err)
			}
			isStale := true
			hub := builder.WithInterceptorFuncs(interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					if isStale {
						return nil
					}
					return c.List(ctx, list, opts...)
				},
				Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
					return apierrors.NewForbidden(clusterv1alpha1.Resource("addonplacementscores"), key.Name, errors.New("no permission to get"))
				},
			}).Build()
			p := &Publisher{Client: hub}
			req := Request{Owner: owner, Name: "x", Want: []Desired{*want(5)}, Valid: valid, Now: now}
			if r := p.Publish(t.Context(), req); r.Failed != 1 || !apierrors.IsAlreadyExists(r.Err) || len(r.Taken) > 0 {
				t.Errorf("with a stale cache: %+v", r)
			}
			isStale = false
			r := p.Publish(t.Context(), req)
			if r.Failed > 0 || (len(r.Taken) > 0) != tc.taken || (r.Written == 1) == tc.taken {
				t.Errorf("with a current cache: %+v", r)
			}
		})
	}
}
