package hubstate

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	clusterv1beta1 "open-cluster-management.io/api/cluster/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// newHub returns a client of a hub with the given objects. Every read fails with err
// if it is not nil.
func newHub(t *testing.T, err error, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.Install, clusterv1alpha1.Install, clusterv1beta1.Install, kueue.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...)
	if err != nil {
		builder = builder.WithInterceptorFuncs(interceptor.Funcs{
			Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return err
			},
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return err },
		})
	}
	return builder.Build()
}

func managedCluster(name, gpu string) *clusterv1.ManagedCluster {
	c := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"gpu": gpu}}}
	c.Spec.HubAcceptsClient = true
	return c
}

func TestManagedClusters(t *testing.T) {
	deleting := managedCluster("deleting", "yes")
	deleting.DeletionTimestamp, deleting.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"example.com/keep"}
	notAccepted := managedCluster("not-accepted", "yes")
	notAccepted.Spec.HubAcceptsClient = false
	hub := newHub(t, nil, managedCluster("b", "yes"), managedCluster("a", "yes"), managedCluster("c", "no"), deleting, notAccepted)
	clusters, err := ManagedClusters(t.Context(), hub)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name     string
		selector *metav1.LabelSelector
		want     []string
	}{
		{"no selector", nil, []string{"a", "b", "c"}},
		{"empty selector", &metav1.LabelSelector{}, []string{"a", "b", "c"}},
		{"by label", &metav1.LabelSelector{MatchLabels: map[string]string{"gpu": "yes"}}, []string{"a", "b"}},
		{"no match", &metav1.LabelSelector{MatchLabels: map[string]string{"gpu": "maybe"}}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := SelectNames(clusters, tc.selector)
			if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
	t.Run("invalid selector", func(t *testing.T) {
		invalid := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "gpu", Operator: "Maybe"}}}
		if _, err := SelectNames(clusters, invalid); err == nil {
			t.Error("accepted an operator that does not exist")
		}
	})
}

func placementDecision(name, placement string, clusters ...string) *clusterv1beta1.PlacementDecision {
	d := &clusterv1beta1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{
		Namespace: "fleet", Name: name, Labels: map[string]string{clusterv1beta1.PlacementLabel: placement},
	}}
	for _, c := range clusters {
		d.Status.Decisions = append(d.Status.Decisions, clusterv1beta1.ClusterDecision{ClusterName: c})
	}
	return d
}

func TestDecidedClusters(t *testing.T) {
	hub := newHub(t, nil,
		placementDecision("gpu-decision-2", "gpu", "b", "a"), placementDecision("gpu-decision-1", "gpu", "c", "", "b"),
		placementDecision("cpu-decision-1", "cpu", "d"))
	for _, tc := range []struct {
		name, placement string
		want            []string
	}{
		{"several decisions", "gpu", []string{"c", "b", "a"}},
		{"one decision", "cpu", []string{"d"}},
		{"no Placement", "none", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := DecidedClusters(t.Context(), hub, client.ObjectKey{Namespace: "fleet", Name: tc.placement})
			if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func placementScore(cluster, name string) *clusterv1alpha1.AddOnPlacementScore {
	return &clusterv1alpha1.AddOnPlacementScore{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}}
}

func TestPlacementScores(t *testing.T) {
	hub := newHub(t, nil, placementScore("a", "headroom"), placementScore("a", "power"), placementScore("b", "headroom"))
	scores, err := PlacementScores(t.Context(), hub)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for cluster, objects := range scores {
		for _, o := range objects {
			got[cluster] = append(got[cluster], o.Name)
		}
		slices.Sort(got[cluster])
	}
	if diff := cmp.Diff(map[string][]string{"a": {"headroom", "power"}, "b": {"headroom"}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if one, err := PlacementScore(t.Context(), hub, "b", "headroom"); err != nil || one == nil || one.Namespace != "b" {
		t.Errorf("headroom of b: %v, %v", one, err)
	}
	if none, err := PlacementScore(t.Context(), hub, "b", "power"); err != nil || none != nil {
		t.Errorf("power of b: %v, %v", none, err)
	}
}

func TestMultiKueue(t *testing.T) {
	hub := newHub(t, nil,
		&kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: "config"}},
		&kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: "b"}})
	if config, err := MultiKueueConfig(t.Context(), hub, "config"); err != nil || config == nil || config.Name != "config" {
		t.Errorf("config: %v, %v", config, err)
	}
	if config, err := MultiKueueConfig(t.Context(), hub, "none"); err != nil || config != nil {
		t.Errorf("no config: %v, %v", config, err)
	}
	if cluster, err := MultiKueueCluster(t.Context(), hub, "a"); err != nil || cluster == nil || cluster.Name != "a" {
		t.Errorf("cluster: %v, %v", cluster, err)
	}
	if cluster, err := MultiKueueCluster(t.Context(), hub, "none"); err != nil || cluster != nil {
		t.Errorf("no cluster: %v, %v", cluster, err)
	}
	clusters, err := MultiKueueClusters(t.Context(), hub)
	if err != nil || len(clusters) != 2 || clusters["a"] == nil || clusters["b"] == nil {
		t.Errorf("clusters: %v, %v", clusters, err)
	}
}

func TestFailuresAreErrors(t *testing.T) {
	scores := schema.GroupResource{Group: "cluster.open-cluster-management.io", Resource: "addonplacementscores"}
	for _, tc := range []struct {
		name string
		err  error
	}{
		{"timeout", errors.New("the API server timed out")},
		{"forbidden", apierrors.NewForbidden(scores, "headroom", errors.New("no RBAC"))},
		{"resource not served", apierrors.NewGenericServerResponse(404, "get", scores, "", "", 0, true)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			hub, ctx := newHub(t, tc.err), t.Context()
			check := func(what string, err error) {
				t.Helper()
				if !errors.Is(err, tc.err) || !strings.Contains(err.Error(), what) {
					t.Errorf("error %v, want %q with the cause", err, what)
				}
			}
			_, err := ManagedClusters(ctx, hub)
			check("list ManagedClusters", err)
			_, err = DecidedClusters(ctx, hub, client.ObjectKey{Namespace: "fleet", Name: "gpu"})
			check("list PlacementDecisions of Placement fleet/gpu", err)
			_, err = PlacementScores(ctx, hub)
			check("list AddOnPlacementScores", err)
			_, err = PlacementScore(ctx, hub, "a", "headroom")
			check("get AddOnPlacementScore a/headroom", err)
			_, err = MultiKueueConfig(ctx, hub, "config")
			check("get MultiKueueConfig config", err)
			_, err = MultiKueueCluster(ctx, hub, "a")
			check("get MultiKueueCluster a", err)
			_, err = MultiKueueClusters(ctx, hub)
			check("list MultiKueueClusters", err)
			_, err = Find(ctx, hub, client.ObjectKey{Name: "a"}, &clusterv1.ManagedCluster{})
			check("get ManagedCluster a", err)
		})
	}
}
