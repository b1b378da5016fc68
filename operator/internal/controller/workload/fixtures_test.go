package workload

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/engine"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
	"plimsoll.dev/plimsoll/operator/internal/admission/querycache"
	"plimsoll.dev/plimsoll/operator/internal/admission/waitqueue"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// clock is a clock that tests advance.
type clock struct {
	mu   sync.Mutex
	time time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.time
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.time = c.time.Add(d)
}

// fakeSource reports how many of the workload's pods fit on each cluster, and how many would if
// the cluster were empty; by default, as many. Its samples are 5 seconds old unless age says
// otherwise.
type fakeSource struct {
	clock *clock
	mu    sync.Mutex
	fit   map[string]float64
	empty map[string]float64
	// quota is the unreserved quota of the workload's queue on each cluster, in devices. Without it,
	// no worker exports quotas.
	quota map[string]float64
	age   time.Duration
	// holders are the series of pods that hold devices.
	holders    []query.Sample
	holdersErr error
	// requirements are the values of the requirement maintenance_free.
	requirements map[string]float64
}

func (s *fakeSource) Query(_ context.Context, expr string, _ time.Time) (query.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var result query.Result
	if strings.Contains(expr, "plimsoll_pod_owner_info{") {
		result.Samples = s.holders
		return result, s.holdersErr
	}
	for _, cluster := range []string{"cluster1", "cluster2", "cluster3"} {
		fit, isMeasured := s.fit[cluster]
		switch isOfEmpty := strings.Contains(expr, "plimsoll_devices:placeable"); {
		case isOfEmpty && s.empty != nil:
			fit, isMeasured = s.empty[cluster]
		case isOfEmpty:
			fit = max(fit, 9)
		}
		labels := map[string]string{"cluster": cluster}
		switch {
		case strings.Contains(expr, "maintenance_free"):
			result.Samples = append(result.Samples, query.Sample{Labels: labels, Value: s.requirements[cluster]})
		case strings.Contains(expr, "sample_timestamp"):
			result.Samples = append(result.Samples, query.Sample{Labels: labels, Value: float64(s.clock.now().Add(-cmp.Or(s.age, 5*time.Second)).Unix())})
		case strings.Contains(expr, "kueue_unreserved_quota"):
			if quota, isExported := s.quota[cluster]; isExported {
				labels["cluster_queue"] = "gpu"
				result.Samples = append(result.Samples, query.Sample{Labels: labels, Value: quota})
			}
		case strings.Contains(expr, "floor(") && isMeasured:
			result.Samples = append(result.Samples, query.Sample{Labels: labels, Value: fit})
		}
	}
	return result, nil
}

// bench is a Reconciler with a fake clock, a fake Prometheus and a fake API server. The
// API server has the checks plimsoll and second (gate gpu), multikueue and budget (another
// controller), and the MultiKueueConfig gpu of cluster1 and cluster2, both connected an
// hour ago and both with room for nine pods of the workload.
type bench struct {
	*Reconciler
	t        *testing.T
	clock    *clock
	source   *fakeSource
	sources  query.Sources
	gate     gatestate.Gate
	hub      client.WithWatch
	recorder *events.FakeRecorder
	key      types.NamespacedName
	// refreshed are the keys of the refreshes that the wait queue requested; refreshes counts them.
	refreshed []gatestate.QueryKey
	refreshes int
	// woken are the workloads that the wait queue woke.
	woken []types.NamespacedName
}

// newBench starts a gate with a spec. The ledger counts as rebuilt.
func newBench(t *testing.T, spec v1alpha1.PlacementGateSpec) *bench {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kueue.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := &clock{time: fixture.Noon}
	b := &bench{clock: c, t: t, source: &fakeSource{clock: c, fit: map[string]float64{"cluster1": 9, "cluster2": 9}},
		recorder: events.NewFakeRecorder(1000), key: types.NamespacedName{Namespace: "team-a", Name: "job"}}
	b.hub = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&kueue.Workload{}, &kueue.MultiKueueCluster{}).
		WithIndex(&kueue.Workload{}, jobIndex, jobOf).WithIndex(&kueue.Workload{}, unplacedIndex, unplacedChecks).WithObjects(
		admissionCheck("plimsoll", v1alpha1.ControllerName, v1alpha1.GroupVersion.Group, "PlacementGate"),
		admissionCheck("second", v1alpha1.ControllerName, v1alpha1.GroupVersion.Group, "PlacementGate"),
		admissionCheck("multikueue", kueue.MultiKueueControllerName, kueue.SchemeGroupVersion.Group, "MultiKueueConfig"),
		admissionCheck("budget", "example.com/budget", "example.com", "Budget"),
		admissionCheck("trial", v1alpha1.TrialControllerName, v1alpha1.GroupVersion.Group, "TrialPolicy"),
		&kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: kueue.MultiKueueConfigSpec{Clusters: []string{"cluster1", "cluster2"}}},
	).WithInterceptorFuncs(interceptor.Funcs{SubResourceApply: applyLikeServer}).Build()
	b.sources.Set(query.SourceInfo{Name: "thanos", ClusterLabel: "cluster"}, b.source)
	spec.SourceRef.Name = "thanos"
	b.gate = gatestate.Gate{Name: "gpu", Spec: spec, Clusters: []gatestate.Cluster{{Name: "cluster1"}, {Name: "cluster2"}}}
	gates, reservations := gatestate.New(), ledger.New(time.Second, time.Hour)
	gates.Put(b.gate)
	b.Reconciler = &Reconciler{client: b.hub, live: b.hub, recorder: b.recorder, now: c.now,
		metrics: newMetrics(nil, reservations, gates, nil, c.now), rebuilt: true}
	b.startEngine(gates, reservations)
	b.cache = b.newCache()
	gates.OnChange(func(name string) { b.engine.Waiting.MarkDirty(name) })
	for _, name := range []string{"cluster1", "cluster2"} {
		b.connect(name, fixture.Noon.Add(-time.Hour))
	}
	return b
}

// startEngine gives the process an engine that remembers nothing but the ledger.
func (b *bench) startEngine(gates *gatestate.Registry, reservations *ledger.Ledger) {
	b.engine = engine.New(engine.Options{Edge: b.Reconciler, Registry: gates, Ledger: reservations, Nominates: true, Now: b.now,
		Waiting: waitqueue.New(gates, b.now, func(key gatestate.QueryKey, _ time.Time) {
			b.refreshes++
			b.refreshed = append(b.refreshed, key)
		})})
	b.engine.Waiting.SetEnqueuer(func(key types.NamespacedName) { b.woken = append(b.woken, key) })
}

// account and apply are the first and the last part of a step.
func (b *bench) account(s *lifecycle.Situation) *lifecycle.Situation {
	return b.engine.Account(s).Situation
}

func (b *bench) apply(s *lifecycle.Situation, next lifecycle.Step) error {
	return b.engine.Apply(b.t.Context(), &engine.Outcome{Situation: s, Step: next})
}

// lead makes this process the leader.
func (b *bench) lead() {
	elected := make(chan struct{})
	close(elected)
	b.elected = elected
}

// newCache returns a cache without results.
func (b *bench) newCache() *querycache.Cache {
	return querycache.New(&b.sources, b.engine.Ledger, nil, b.clock.now)
}

func admissionCheck(name, controller, group, kind string) *kueue.AdmissionCheck {
	return &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.AdmissionCheckSpec{ControllerName: controller,
		Parameters: &kueue.AdmissionCheckParametersReference{APIGroup: group, Kind: kind, Name: "gpu"}}}
}

// applyLikeServer applies an object and returns its new resourceVersion, as the API server
// does.
func applyLikeServer(ctx context.Context, c client.Client, subresource string, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
	if err := c.SubResource(subresource).Apply(ctx, obj, opts...); err != nil {
		return err
	}
	applied, written := obj.(client.Object), &kueue.Workload{}
	err := c.Get(ctx, client.ObjectKeyFromObject(applied), written)
	applied.SetResourceVersion(written.ResourceVersion)
	return err
}

func (b *bench) now() time.Time { return b.clock.now() }

// putGate changes the gate in the registry.
func (b *bench) putGate(change func(*gatestate.Gate)) {
	change(&b.gate)
	b.engine.Registry.Put(b.gate)
}

// room replaces the number of pods that fit on each cluster. A cluster that is left out has
// none of the devices.
func (b *bench) room(fit map[string]float64) {
	b.source.mu.Lock()
	defer b.source.mu.Unlock()
	b.source.fit = fit
}

// connect makes Kueue connected to a cluster since a time.
func (b *bench) connect(name string, since time.Time) { b.setActive(name, metav1.ConditionTrue, since) }

// disconnect ends Kueue's connection to a cluster.
func (b *bench) disconnect(name string) { b.setActive(name, metav1.ConditionFalse, b.now()) }

func (b *bench) setActive(name string, status metav1.ConditionStatus, since time.Time) {
	b.t.Helper()
	cluster := &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := client.IgnoreAlreadyExists(b.hub.Create(b.t.Context(), cluster)); err != nil {
		b.t.Fatal(err)
	}
	if err := b.hub.Get(b.t.Context(), client.ObjectKey{Name: name}, cluster); err != nil {
		b.t.Fatal(err)
	}
	cluster.Status.Conditions = []metav1.Condition{{Type: kueue.MultiKueueClusterActive, Status: status, LastTransitionTime: metav1.NewTime(since), Message: "connection refused"}}
	if err := b.hub.Status().Update(b.t.Context(), cluster); err != nil {
		b.t.Fatal(err)
	}
}

// configure sets the clusters of the MultiKueueConfig.
func (b *bench) configure(clusters ...string) {
	b.t.Helper()
	config := &kueue.MultiKueueConfig{}
	if err := b.hub.Get(b.t.Context(), client.ObjectKey{Name: "gpu"}, config); err != nil {
		b.t.Fatal(err)
	}
	config.Spec.Clusters = clusters
	if err := b.hub.Update(b.t.Context(), config); err != nil {
		b.t.Fatal(err)
	}
}

// create stores a workload with its status.
func (b *bench) create(wl *kueue.Workload) {
	b.t.Helper()
	b.key = client.ObjectKeyFromObject(wl)
	status := wl.DeepCopy()
	if err := b.hub.Create(b.t.Context(), wl.DeepCopy()); err != nil {
		b.t.Fatal(err)
	}
	b.update(func(live *kueue.Workload) { live.Status = status.Status })
}

// update changes the workload as another client would.
func (b *bench) update(change func(*kueue.Workload)) {
	b.t.Helper()
	wl := b.workload()
	change(wl)
	changed := wl.DeepCopy()
	if err := b.hub.Update(b.t.Context(), wl); err != nil {
		b.t.Fatal(err)
	}
	changed.ResourceVersion = wl.ResourceVersion
	if err := b.hub.Status().Update(b.t.Context(), changed); err != nil {
		b.t.Fatal(err)
	}
}

// delete removes the workload.
func (b *bench) delete() {
	b.t.Helper()
	if err := b.hub.Delete(b.t.Context(), b.workload()); err != nil {
		b.t.Fatal(err)
	}
}

// workload is the workload as the API server has it.
func (b *bench) workload() *kueue.Workload {
	b.t.Helper()
	wl := &kueue.Workload{}
	if err := b.hub.Get(b.t.Context(), b.key, wl); err != nil {
		b.t.Fatal(err)
	}
	return wl
}

// check is the gate's entry of the workload as the API server has it.
func (b *bench) check() kueue.AdmissionCheckState {
	b.t.Helper()
	return b.workload().Status.AdmissionChecks[0]
}

// dispatchRecord is the annotation of the workload as the API server has it.
func (b *bench) dispatchRecord() dispatch.Record {
	b.t.Helper()
	record, err := dispatch.Decode(b.workload().Annotations)
	if err != nil {
		b.t.Fatal(err)
	}
	return record
}

// reconcile runs one reconciliation.
func (b *bench) reconcile() reconcile.Result {
	b.t.Helper()
	result, err := b.Reconcile(b.t.Context(), reconcile.Request{NamespacedName: b.key})
	if err != nil {
		b.t.Fatal(err)
	}
	return result
}

// look observes and measures the workload as a reconciliation does.
func (b *bench) look() *lifecycle.Situation {
	b.t.Helper()
	s, err := b.observe(b.t.Context(), b.engine.Begin(b.key))
	if err != nil {
		b.t.Fatal(err)
	}
	s, err = b.Measure(b.t.Context(), s)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// events drains the recorded events.
func (b *bench) events() []string {
	var list []string
	for len(b.recorder.Events) > 0 {
		list = append(list, <-b.recorder.Events)
	}
	return list
}

// checkTexts are state and message of the workload's checks.
func checkTexts(wl *kueue.Workload) map[string]string {
	texts := map[string]string{}
	for _, c := range wl.Status.AdmissionChecks {
		texts[string(c.Name)] = string(c.State) + " " + c.Message
	}
	return texts
}

// countReads is a client that counts Get and List.
func countReads(hub client.WithWatch, n *int) client.Client {
	return interceptor.NewClient(hub, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			*n++
			return c.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			*n++
			return c.List(ctx, list, opts...)
		},
	})
}

// newStaleClient is a client whose cache still has an earlier version of the workload.
func newStaleClient(hub client.WithWatch, stale *kueue.Workload) client.Client {
	return interceptor.NewClient(hub, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
		if wl, isWorkload := obj.(*kueue.Workload); isWorkload {
			stale.DeepCopyInto(wl)
			return nil
		}
		return c.Get(ctx, key, obj, opts...)
	}})
}
