package world

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	clusterv1beta1 "open-cluster-management.io/api/cluster/v1beta1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
)

// fixture is a world without an operator. Instead of it, the checks of all workloads with quota are set Ready,
// and those that wait for a nomination are nominated to one cluster.
type fixture struct {
	*testing.T
	*World
	now time.Time
	// nominate are the clusters that workloads are sent to.
	nominate []string
}

// noOperator is an operator that does nothing.
type noOperator struct{}

func (noOperator) Stop()                      {}
func (noOperator) Start()                     {}
func (noOperator) Running() bool              { return true }
func (noOperator) Remaining() string          { return "" }
func (noOperator) Holds() map[string][]string { return nil }
func (noOperator) Doubted() map[string]bool   { return nil }
func (noOperator) CutOff(time.Duration)       {}

// newFixture starts a world whose workers are connected.
func newFixture(t *testing.T, spec Spec) *fixture {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme, kueue.AddToScheme, clusterv1.Install, clusterv1beta1.Install, clusterv1alpha1.Install} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	f := &fixture{T: t, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	spec.Seed = 1
	var err error
	if f.World, err = New(spec, scheme, nil, func() time.Time { return f.now }); err != nil {
		t.Fatal(err)
	}
	f.Operator = noOperator{}
	config := &kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: configName}}
	for _, c := range f.clusters {
		config.Spec.Clusters = append(config.Spec.Clusters, c.spec.Name)
		f.create(&kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: c.spec.Name}})
	}
	f.create(config)
	f.nominate = config.Spec.Clusters[:1]
	f.run(10 * time.Second)
	return f
}

// run advances the world.
func (f *fixture) run(d time.Duration) {
	for end := f.now.Add(d); ; {
		at, ok := f.loop.Next()
		if !ok || at.After(end) {
			f.now = end
			return
		}
		f.now = at
		f.loop.RunNext()
		f.gate()
	}
}

// gate acts as the operator.
func (f *fixture) gate() {
	for _, key := range f.kueue.workloads.keys() {
		f.kueue.workloads.update(key, func(wl *kueue.Workload) bool {
			check := kueuestate.FindCheck(wl, checkName)
			if check == nil || !kueuestate.HoldsQuota(wl) || kueuestate.IsEvicted(wl) {
				return false
			}
			changed := check.State != kueue.CheckStateReady
			check.State = kueue.CheckStateReady
			if len(wl.Status.NominatedClusterNames) == 0 && kueuestate.WantsNomination(wl, multiKueueAC) {
				wl.Status.NominatedClusterNames, changed = slices.Clone(f.nominate), true
			}
			return changed
		})
	}
}

// on is a worker.
func (f *fixture) on(name string) *cluster { return f.clusterOf(name) }

// workload is a Workload of the tenant team-a on the hub or on a worker; nil = does not exist.
func workload(k *kueueControl, name string) *kueue.Workload {
	return k.workloads.get(types.NamespacedName{Namespace: defaultTenant, Name: name})
}

// podsOn are the names of the pods that have a node on a cluster and stay.
func (f *fixture) podsOn(name string) []string {
	var list []string
	for p := range f.on(name).bound.all() {
		if !p.deleting {
			list = append(list, p.name)
		}
	}
	slices.Sort(list)
	return list
}

// expectPods fails the test unless the pods with nodes on a cluster are those.
func (f *fixture) expectPods(cluster string, want ...string) {
	f.Helper()
	if got := f.podsOn(cluster); !slices.Equal(got, want) {
		f.Errorf("pods on %s are %v, want %v\n%s", cluster, got, want, f.Log())
	}
}

// fleet is a number of clusters, each of one node with 8 GPUs.
func fleet(n int) []Cluster {
	var list []Cluster
	for i := range n {
		list = append(list, Cluster{Name: "cluster" + string(rune('1'+i)), Pools: []Pool{{Nodes: 1, Devices: 8}}})
	}
	return list
}
