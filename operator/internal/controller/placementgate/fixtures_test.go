package placementgate

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	clusterv1beta1 "open-cluster-management.io/api/cluster/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/membership"
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func newGate() *v1alpha1.PlacementGate {
	g := &v1alpha1.PlacementGate{ObjectMeta: metav1.ObjectMeta{Name: "gpu", Generation: 3}}
	g.Spec.PlacementRef = v1alpha1.NamespacedReference{Namespace: "plimsoll-system", Name: "gpu"}
	g.Spec.SourceRef.Name = "thanos"
	g.Spec.MultiKueue = &v1alpha1.GateMultiKueue{ConfigName: "plimsoll-gpu"}
	return g
}

// newInput returns the input of a gate without faults that has the given clusters.
func newInput(clusters ...string) *input {
	in := &input{gate: newGate(), placementFound: true, sourceFound: true, nominate: true, mkClusters: map[string]*kueue.MultiKueueCluster{}}
	for _, c := range clusters {
		in.clusters = append(in.clusters, gatestate.Cluster{Name: c})
	}
	return in
}

// ownerLabel returns the labels of an object that a gate created. An empty owner means
// that no gate created the object.
func ownerLabel(owner string) map[string]string {
	if owner == "" {
		return nil
	}
	return map[string]string{v1alpha1.ManagedByLabel: owner}
}

func newConfig(name, owner string, clusters ...string) *kueue.MultiKueueConfig {
	return &kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: ownerLabel(owner)}, Spec: kueue.MultiKueueConfigSpec{Clusters: clusters}}
}

func newForeignCluster(name, owner string) *kueue.MultiKueueCluster {
	return &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: ownerLabel(owner)}, Spec: kueue.MultiKueueClusterSpec{
		ClusterSource: kueue.ClusterSource{KubeConfig: &kueue.KubeConfig{Location: "other", LocationType: kueue.SecretLocationType}},
	}}
}

func newDecision(clusters ...string) *clusterv1beta1.PlacementDecision {
	d := &clusterv1beta1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{
		Namespace: "plimsoll-system", Name: "gpu-decision-1", Labels: map[string]string{clusterv1beta1.PlacementLabel: "gpu"},
	}}
	for _, c := range clusters {
		d.Status.Decisions = append(d.Status.Decisions, clusterv1beta1.ClusterDecision{ClusterName: c})
	}
	return d
}

// newReconciler returns a reconciler of a hub with the objects, with a settable clock. The
// functions intercept the calls of the client.
func newReconciler(t *testing.T, clock *time.Time, calls interceptor.Funcs, objects ...client.Object) (*Reconciler, client.Client) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		v1alpha1.AddToScheme, clusterv1.Install, clusterv1alpha1.Install, clusterv1beta1.Install, kueue.AddToScheme, admissionv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	hub := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.PlacementGate{}).
		WithIndex(&kueue.Workload{}, clusterUseIndex, clusterUses(true)).WithInterceptorFuncs(calls).Build()
	return &Reconciler{
		client: hub, recorder: events.NewFakeRecorder(100), histories: map[string]*membership.History{},
		opts: Options{Registry: gatestate.New(), Ledger: ledger.New(0, 0), Nominate: true, Now: func() time.Time { return *clock }},
	}, hub
}

// healthyHub returns the objects of a gate whose Placement has decided the clusters.
func healthyHub(clusters ...string) []client.Object {
	return []client.Object{
		newGate(), newDecision(clusters...),
		&clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: "plimsoll-system", Name: "gpu"}},
		&v1alpha1.MetricsSource{ObjectMeta: metav1.ObjectMeta{Name: "thanos"}},
	}
}

// logLine is the part of a log line that tests compare.
type logLine struct {
	Level     int      `json:"level"`
	Message   string   `json:"msg"`
	Error     string   `json:"error"`
	Gate      string   `json:"gate"`
	Config    string   `json:"config"`
	Clusters  []string `json:"clusters"`
	Truncated []string `json:"truncated"`
	Cluster   string   `json:"cluster"`
	Type      string   `json:"type"`
	From      string   `json:"from"`
	To        string   `json:"to"`
	Reason    string   `json:"reason"`
	Kept      []string `json:"keptConfigs"`
}

// newLogger returns a logger that appends its lines to the slice, including debug lines.
func newLogger(t *testing.T, lines *[]logLine) logr.Logger {
	return funcr.NewJSON(func(text string) {
		line := logLine{}
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Errorf("%v: %s", err, text)
		}
		*lines = append(*lines, line)
	}, funcr.Options{Verbosity: 1})
}

// failingList returns functions that let every List fail.
func failingList(err error) interceptor.Funcs {
	return interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return err }}
}
