package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/engine"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
	"plimsoll.dev/plimsoll/operator/internal/admission/querycache"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/admission/waitqueue"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// scaleClusters is the number of clusters of each hub.
const scaleClusters = 20

// hubSize is the size of a hub in the benchmarks.
type hubSize struct {
	gates, workloads int
	// shapes per gate.
	shapes int
}

// indexClient reads from memory as the manager's cache does: Get copies, and a List with
// UnsafeDisableDeepCopy does not. It counts writes, and carries out those of check messages.
type indexClient struct {
	client.Client
	mu        sync.Mutex
	objects   map[string]client.Object
	workloads []*kueue.Workload
	queues    []kueue.ClusterQueue
	writes    atomic.Int64
}

func objectKey(obj client.Object, key client.ObjectKey) string { return fmt.Sprintf("%T %s", obj, key) }

func (c *indexClient) add(obj client.Object) {
	c.objects[objectKey(obj, client.ObjectKeyFromObject(obj))] = obj
	if wl, ok := obj.(*kueue.Workload); ok {
		c.workloads = append(c.workloads, wl)
	}
}

func (c *indexClient) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.objects[objectKey(obj, key)]
	switch into := obj.(type) {
	case *kueue.Workload:
		if wl, ok := found.(*kueue.Workload); ok {
			wl.DeepCopyInto(into)
			return nil
		}
	case *kueue.AdmissionCheck:
		if check, ok := found.(*kueue.AdmissionCheck); ok {
			check.DeepCopyInto(into)
			return nil
		}
	case *kueue.MultiKueueConfig:
		if config, ok := found.(*kueue.MultiKueueConfig); ok {
			config.DeepCopyInto(into)
			return nil
		}
	case *kueue.MultiKueueCluster:
		if cluster, ok := found.(*kueue.MultiKueueCluster); ok {
			cluster.DeepCopyInto(into)
			return nil
		}
	case *kueue.ClusterQueue:
		if queue, ok := found.(*kueue.ClusterQueue); ok {
			queue.DeepCopyInto(into)
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (c *indexClient) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch l := list.(type) {
	case *kueue.WorkloadList:
		for _, wl := range c.workloads {
			l.Items = append(l.Items, *wl)
		}
	case *kueue.ClusterQueueList:
		l.Items = c.queues
	case *kueue.MultiKueueConfigList:
		for _, obj := range c.objects {
			if config, ok := obj.(*kueue.MultiKueueConfig); ok {
				l.Items = append(l.Items, *config)
			}
		}
	case *kueue.AdmissionCheckList:
		for _, obj := range c.objects {
			if check, ok := obj.(*kueue.AdmissionCheck); ok && check.Name == "multikueue" {
				l.Items = append(l.Items, *check)
			}
		}
	}
	return nil
}

func (c *indexClient) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	c.writes.Add(1)
	return nil
}

func (c *indexClient) Status() client.SubResourceWriter { return countingWriter{c} }

type countingWriter struct{ c *indexClient }

func (w countingWriter) Create(context.Context, client.Object, client.Object, ...client.SubResourceCreateOption) error {
	return nil
}
func (w countingWriter) Update(context.Context, client.Object, ...client.SubResourceUpdateOption) error {
	return nil
}
func (w countingWriter) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	w.c.writes.Add(1)
	data, err := patch.Data(obj)
	if err != nil {
		return err
	}
	var operations []struct {
		Path  string
		Value any
	}
	if err := json.Unmarshal(data, &operations); err != nil {
		return err
	}
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	wl := w.c.objects[objectKey(&kueue.Workload{}, client.ObjectKeyFromObject(obj))].(*kueue.Workload)
	for _, o := range operations {
		if strings.HasSuffix(o.Path, "/message") {
			wl.Status.AdmissionChecks[0].Message = fmt.Sprint(o.Value)
		}
	}
	return nil
}
func (w countingWriter) Apply(context.Context, k8sruntime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
	w.c.writes.Add(1)
	return nil
}

// scaleSource returns a value for every cluster: none has room.
type scaleSource struct {
	now     func() time.Time
	queries atomic.Int64
}

func (s *scaleSource) Query(_ context.Context, expr string, _ time.Time) (query.Result, error) {
	s.queries.Add(1)
	value := 0.0
	if strings.Contains(expr, "sample_timestamp") {
		value = float64(s.now().Add(-5 * time.Second).Unix())
	}
	result := query.Result{}
	for i := range scaleClusters {
		result.Samples = append(result.Samples, query.Sample{Labels: map[string]string{"cluster": fmt.Sprint("cluster-", i)}, Value: value})
	}
	return result, nil
}

// scaleHub is a Reconciler with everything that waits in it.
type scaleHub struct {
	*Reconciler
	size      hubSize
	clock     *clock
	hub       *indexClient
	source    *scaleSource
	woken     chan types.NamespacedName
	decisions atomic.Int64
}

func newScaleHub(b *testing.B, size hubSize) *scaleHub {
	h := &scaleHub{size: size, clock: &clock{time: fixture.Noon}, hub: &indexClient{objects: map[string]client.Object{}}, woken: make(chan types.NamespacedName, 4*size.workloads)}
	h.source = &scaleSource{now: h.clock.now}
	sources, gates, reservations := &query.Sources{}, gatestate.New(), ledger.New(time.Second, time.Hour)
	sources.Set(query.SourceInfo{Name: "thanos", ClusterLabel: "cluster"}, h.source)
	cache := querycache.New(sources, reservations, nil, h.clock.now)
	waiting := waitqueue.New(gates, h.clock.now, cache.Refresh)
	cache.OnRefreshed(waiting.Refreshed)
	h.Reconciler = &Reconciler{client: h.hub, live: h.hub, recorder: discardingRecorder{}, nominateAs: NominateAsKueue,
		now: h.clock.now, cache: cache, metrics: newMetrics(nil, reservations, gates, nil, h.clock.now), rebuilt: true}
	h.engine = engine.New(engine.Options{Edge: h.Reconciler, Registry: gates, Ledger: reservations, Waiting: waiting, Nominates: true, Now: h.clock.now})
	var clusters []string
	var decided []gatestate.Cluster
	for i := range scaleClusters {
		name := fmt.Sprint("cluster-", i)
		clusters, decided = append(clusters, name), append(decided, gatestate.Cluster{Name: name})
		h.hub.add(&kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: kueue.MultiKueueClusterStatus{
			Conditions: []metav1.Condition{{Type: kueue.MultiKueueClusterActive, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(fixture.Noon.Add(-time.Hour))}}}})
	}
	h.hub.add(&kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: kueue.MultiKueueConfigSpec{Clusters: clusters}})
	h.hub.add(admissionCheck("multikueue", kueue.MultiKueueControllerName, kueue.SchemeGroupVersion.Group, "MultiKueueConfig"))
	for i := range size.gates {
		name := fmt.Sprint("gate-", i)
		check := admissionCheck(name, v1alpha1.ControllerName, v1alpha1.GroupVersion.Group, "PlacementGate")
		check.Spec.Parameters.Name = name
		h.hub.add(check)
		spec := v1alpha1.PlacementGateSpec{}
		spec.SourceRef.Name = "thanos"
		gates.Put(gatestate.Gate{Name: name, Spec: spec, Clusters: decided})
	}
	waiting.SetEnqueuer(func(key types.NamespacedName) { h.woken <- key })
	ctx, cancel := context.WithCancel(b.Context())
	var workers sync.WaitGroup
	workers.Go(func() { _ = cache.Start(ctx) })
	for range 8 {
		workers.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case key := <-h.woken:
					h.reconcile(key)
				}
			}
		})
	}
	b.Cleanup(func() { cancel(); workers.Wait() })
	return h
}

type discardingRecorder struct{ events.EventRecorder }

func (discardingRecorder) Eventf(k8sruntime.Object, k8sruntime.Object, string, string, string, string, ...any) {
}

func (h *scaleHub) reconcile(key types.NamespacedName) {
	if _, err := h.Reconcile(context.Background(), reconcile.Request{NamespacedName: key}); err != nil {
		panic(err)
	}
	h.decisions.Add(1)
}

// fill adds the waiting workloads, realistic ones as the trimmed cache holds them.
func (h *scaleHub) fill() {
	for i := range h.size.workloads {
		gate, shape := i%h.size.gates, i/h.size.gates%h.size.shapes
		wl := fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon.Add(-time.Duration(i) * time.Second)))
		wl.Namespace, wl.Name, wl.UID = fmt.Sprint("team-", gate), fmt.Sprint("job-", i), types.UID(fmt.Sprint("uid-", i))
		wl.Spec.QueueName, wl.Status.Admission.ClusterQueue = "gpu", kueue.ClusterQueueReference(fmt.Sprint("gpu-", gate))
		wl.Status.AdmissionChecks[0].Name = kueue.AdmissionCheckReference(fmt.Sprint("gate-", gate))
		wl.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: wl.Name, UID: wl.UID}}
		devices := corev1.ResourceList{"nvidia.com/gpu": resource.MustParse(fmt.Sprint(1 << (shape % 4)))}
		wl.Spec.PodSets[0].Count = int32(1 + shape/4)
		c := &wl.Spec.PodSets[0].Template.Spec.Containers[0]
		c.Resources = corev1.ResourceRequirements{Limits: devices, Requests: devices}
		for j := range 30 {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprint("VARIABLE_", j), Value: strings.Repeat("v", 40)})
		}
		kueuestate.Trim(wl)
		h.hub.add(wl)
	}
}

// endJob frees devices of a resource on one cluster.
func (h *scaleHub) endJob(resource string) {
	h.clock.add(timing.MinWakeUpGap)
	h.engine.Waiting.MarkFreed([]shape.PodSet{{Resource: resource, DevicesPerPod: 8, Pods: 1}}, h.engine.Registry.GatesOf("cluster-0")...)
	h.engine.Waiting.StartWakeUps()
}

// idle waits until no workload is woken any more. Another program may have the processor for a
// moment, so it waits for long.
func (h *scaleHub) idle() {
	for last := int64(-1); ; {
		n := h.decisions.Load() + h.source.queries.Load()
		if n == last && len(h.woken) == 0 {
			return
		}
		last = n
		time.Sleep(500 * time.Millisecond)
	}
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

func heapMiB() float64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc) / (1 << 20)
}

// BenchmarkScale measures a hub with 10,000 workloads that wait at 100 gates for 20 clusters:
// the CPU time, woken workloads, queries and writes of each event.
func BenchmarkScale(b *testing.B) {
	log.SetLogger(logr.Discard())
	before := heapMiB()
	h := newScaleHub(b, hubSize{gates: 100, workloads: 10000, shapes: 4})
	h.fill()
	queued := h.hub.workloads[0].DeepCopy()
	queued.Status = kueue.WorkloadStatus{}
	for _, tc := range []struct {
		name  string
		event func()
	}{
		{"arrival of all", func() {
			for _, wl := range h.hub.workloads {
				h.woken <- client.ObjectKeyFromObject(wl)
			}
		}},
		{"wake-up", func() {
			h.clock.add(timing.DefaultPeriod)
			h.engine.Waiting.StartWakeUps()
		}},
		{"job ends", func() { h.endJob("nvidia.com/gpu") }},
		{"job with other devices ends", func() { h.endJob("google.com/tpu") }},
		{"10,000 updates of workloads without quota", func() {
			for range h.size.workloads {
				if concernsGate.Update(event.UpdateEvent{ObjectOld: queued, ObjectNew: queued}) {
					b.Fatal("the update is reconciled")
				}
			}
		}},
		{"MultiKueueCluster changes", func() {
			cluster := &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster-0"}}
			for _, request := range h.unplacedWorkloads(context.Background(), cluster) {
				h.woken <- request.NamespacedName
			}
			h.clock.add(timing.MinWakeUpGap)
			h.engine.Waiting.StartWakeUps()
		}},
	} {
		b.Run(tc.name, func(b *testing.B) { h.measure(b, before, tc.event) })
	}
	runtime.KeepAlive(h)
}

// measure reports the cost of an event. heapBefore is the heap without the hub.
func (h *scaleHub) measure(b *testing.B, heapBefore float64, event func()) {
	h.idle()
	decisions, queries, writes, cpu := h.decisions.Load(), h.source.queries.Load(), h.hub.writes.Load(), cpuSeconds()
	n := 0
	for b.Loop() {
		event()
		h.idle()
		n++
	}
	per := func(now, before int64) float64 { return float64(now-before) / float64(n) }
	b.ReportMetric((cpuSeconds()-cpu)/float64(n), "cpu-s/event")
	b.ReportMetric(per(h.decisions.Load(), decisions), "woken/event")
	b.ReportMetric(per(h.source.queries.Load(), queries), "queries/event")
	b.ReportMetric(per(h.hub.writes.Load(), writes), "writes/event")
	b.ReportMetric(heapMiB()-heapBefore, "heap-MiB")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkGates measures the arrival of all workloads and a wake-up of every gate, for hubs of
// different sizes.
func BenchmarkGates(b *testing.B) {
	log.SetLogger(logr.Discard())
	for _, size := range []hubSize{
		{gates: 1, workloads: 100, shapes: 1}, {gates: 1, workloads: 1000, shapes: 50}, {gates: 1, workloads: 8000, shapes: 500},
		{gates: 10, workloads: 1000, shapes: 1}, {gates: 10, workloads: 8000, shapes: 50}, {gates: 10, workloads: 8000, shapes: 500},
		{gates: 50, workloads: 1000, shapes: 1}, {gates: 50, workloads: 8000, shapes: 50}, {gates: 50, workloads: 8000, shapes: 500},
	} {
		b.Run(fmt.Sprintf("gates=%d/waiting=%d/shapes=%d", size.gates, size.workloads, min(size.shapes, size.workloads/size.gates)), func(b *testing.B) {
			before := heapMiB()
			h := newScaleHub(b, size)
			h.fill()
			b.Run("arrival", func(b *testing.B) {
				h.measure(b, before, func() {
					for _, wl := range h.hub.workloads {
						h.woken <- client.ObjectKeyFromObject(wl)
					}
				})
			})
			b.Run("wake-up", func(b *testing.B) {
				h.measure(b, before, func() {
					h.clock.add(timing.DefaultPeriod)
					h.engine.Waiting.StartWakeUps()
				})
			})
			runtime.KeepAlive(h)
		})
	}
}
