//go:build labbench

package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

const hubJobs = 200

// The hub's queues: no check, a check that is set Ready at once by a patch, or by
// an apply as Kueue's own controllers of checks do, and ours with a fit that never
// lacks room, so that only its speed counts.
var hubChecks = map[string]string{"none": "", "trivial": "trivial", "applied": "applied", "ours": "plimsoll-bench"}

const hubQueues = `
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: trivial}
spec: {controllerName: bench.plimsoll.dev/trivial}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: applied}
spec: {controllerName: bench.plimsoll.dev/applied}
---
apiVersion: plimsoll.dev/v1alpha1
kind: PlacementGate
metadata: {name: bench}
spec:
  placementRef: {namespace: plimsoll-system, name: gpu}
  sourceRef: {name: thanos}
  policies: [{policy: fleet, score: total, use: Prefer}]
  queries: {fit: 'sum by (cluster) (cluster_model:plimsoll_devices:sum{model="$model"}) * 1000'}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: plimsoll-bench}
spec:
  controllerName: plimsoll.dev/placement
  parameters: {apiGroup: plimsoll.dev, kind: PlacementGate, name: bench}
`

const hubQueue = `
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: %[1]s}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu, cpu, memory]
    flavors: [{name: h100, resources: [{name: nvidia.com/gpu, nominalQuota: 100k}, {name: cpu, nominalQuota: 1M}, {name: memory, nominalQuota: 100Pi}]}]
%[2]s---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: %[1]s, namespace: team-a}
spec: {clusterQueue: %[1]s}
`

// TestAdmissionOnTheHub prints how many workloads a second are admitted, and how
// long one waits for its check at half the trivial check's rate.
func TestAdmissionOnTheHub(t *testing.T) {
	ctx := t.Context()
	lab := boot(t, "")
	times := observe(ctx, t, lab)
	if err := lab.Hub.Apply(ctx, hubQueues); err != nil {
		t.Fatal(err)
	}
	trivial(ctx, t, lab)
	for queue, check := range hubChecks {
		if check != "" {
			check = "  admissionChecksStrategy: {admissionChecks: [{name: " + check + "}]}\n"
		}
		if err := lab.Hub.Apply(ctx, fmt.Sprintf(hubQueue, "bench-"+queue, check)); err != nil {
			t.Fatal(err)
		}
	}
	rates := map[string]float64{}
	for _, queue := range []string{"none", "applied", "trivial", "ours", "ours", "trivial", "applied", "none"} { // the better of two
		rates[queue] = max(rates[queue], rate(ctx, t, lab, times, "bench-"+queue))
		t.Logf("%s: %.1f admitted/s", queue, rates[queue])
	}
	half := sustained(ctx, t, lab, times, "bench-trivial") / 2
	waits := map[string]wait{}
	for _, queue := range []string{"applied", "trivial", "ours"} {
		waits[queue] = latency(ctx, t, lab, times, "bench-"+queue, half)
	}
	fmt.Printf("%-14s  %10s  %10s  at %.1f jobs/s, median and p99: %22s  %22s\n", "check", "admitted/s", "of trivial", half, "quota reserved to Ready", "check asked to Ready")
	fmt.Printf("%-14s  %10.1f  %10.2f\n", "none", rates["none"], rates["none"]/rates["trivial"])
	for _, queue := range []string{"applied", "trivial", "ours"} {
		w := waits[queue]
		fmt.Printf("%-14s  %10.1f  %10.2f  %55v  %22v\n", queue, rates[queue], rates[queue]/rates["trivial"], quantiles(w.reserved), quantiles(w.asked))
	}
}

func quantiles(w []time.Duration) string {
	return fmt.Sprint(w[len(w)/2].Round(time.Millisecond), " ", w[len(w)*99/100].Round(time.Millisecond))
}

// rate of admission of jobs that all wait when their queue is let go.
func rate(ctx context.Context, t *testing.T, lab *fleet.Fleet, times *stamps, queue string) float64 {
	t.Helper()
	stop(ctx, t, lab, queue, "Hold")
	submit(ctx, t, lab, queue)
	times.await(t, "workload", hubJobs)
	began := time.Now()
	stop(ctx, t, lab, queue, "None")
	times.await(t, kueue.WorkloadAdmitted, hubJobs)
	took := time.Since(began)
	clean(ctx, t, lab, times)
	return hubJobs / took.Seconds()
}

// sustained rate of admission of jobs that are admitted while more are created.
func sustained(ctx context.Context, t *testing.T, lab *fleet.Fleet, times *stamps, queue string) float64 {
	t.Helper()
	began := time.Now()
	submit(ctx, t, lab, queue)
	times.await(t, kueue.WorkloadAdmitted, hubJobs)
	took := time.Since(began)
	clean(ctx, t, lab, times)
	return hubJobs / took.Seconds()
}

// submit the jobs as fast as eight clients can.
func submit(ctx context.Context, t *testing.T, lab *fleet.Fleet, queue string) {
	t.Helper()
	var group errgroup.Group
	group.SetLimit(8)
	for i := range hubJobs {
		group.Go(func() error { return lab.Submit(ctx, job(queue, i)) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// wait until a check is Ready, sorted: since the quota was reserved, and since the
// check could be answered, for Kueue enters it into the workload at its own pace.
type wait struct{ reserved, asked []time.Duration }

// latency of jobs that come at a rate.
func latency(ctx context.Context, t *testing.T, lab *fleet.Fleet, times *stamps, queue string, perSecond float64) wait {
	t.Helper()
	ticker := time.NewTicker(time.Duration(float64(time.Second) / perSecond))
	defer ticker.Stop()
	for i := range hubJobs {
		<-ticker.C
		if err := lab.Submit(ctx, job(queue, i)); err != nil {
			t.Fatal(err)
		}
	}
	times.await(t, "Ready", hubJobs)
	waits := wait{times.between(kueue.WorkloadQuotaReserved, "Ready"), times.between("asked", "Ready")}
	t.Logf("%s: reserved to Ready %s, asked to Ready %s", queue, quantiles(waits.reserved), quantiles(waits.asked))
	clean(ctx, t, lab, times)
	return waits
}

func job(queue string, i int) fleet.Job {
	return fleet.Job{Name: fmt.Sprintf("%s-%d", queue, i), Model: fleet.H100, GPUs: 1, Queue: queue}
}

func stop(ctx context.Context, t *testing.T, lab *fleet.Fleet, queue, policy string) {
	t.Helper()
	if _, err := lab.Hub.Kubectl(ctx, "", "patch", "clusterqueue/"+queue, "--type=merge", "-p", `{"spec":{"stopPolicy":"`+policy+`"}}`); err != nil {
		t.Fatal(err)
	}
}

// clean every job away.
func clean(ctx context.Context, t *testing.T, lab *fleet.Fleet, times *stamps) {
	t.Helper()
	if err := lab.Hub.Client.DeleteAllOf(ctx, &batchv1.Job{}, client.InNamespace(fleet.Namespace), client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	times.empty(t)
}

// trivial runs the simplest controllers of a check there can be: Pending with
// quota becomes Ready, by one write of the status, of one workload at a time.
func trivial(ctx context.Context, t *testing.T, lab *fleet.Fleet) {
	t.Helper()
	config := *lab.Hub.Config
	config.QPS = -1
	mgr, err := ctrl.NewManager(&config, ctrl.Options{Scheme: fleet.Scheme, Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	c := mgr.GetClient()
	for name, write := range map[string]func(ctx context.Context, before, wl *kueue.Workload) error{
		"trivial": func(ctx context.Context, before, wl *kueue.Workload) error {
			return c.Status().Patch(ctx, wl, client.MergeFrom(before))
		},
		"applied": func(ctx context.Context, _, wl *kueue.Workload) error {
			applied := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": kueue.SchemeGroupVersion.String(), "kind": "Workload",
				"metadata": map[string]any{"name": wl.Name, "namespace": wl.Namespace, "resourceVersion": wl.ResourceVersion},
			}}
			status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&kueue.WorkloadStatus{AdmissionChecks: wl.Status.AdmissionChecks})
			if err != nil {
				return err
			}
			applied.Object["status"] = status
			return c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner("applied"), client.ForceOwnership)
		},
	} {
		err := ctrl.NewControllerManagedBy(mgr).For(&kueue.Workload{}).Named(name).Complete(reconcile.Func(
			func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
				wl := &kueue.Workload{}
				if err := c.Get(ctx, req.NamespacedName, wl); err != nil {
					return reconcile.Result{}, client.IgnoreNotFound(err)
				}
				before := wl.DeepCopy()
				for i := range wl.Status.AdmissionChecks {
					if check := &wl.Status.AdmissionChecks[i]; check.Name == kueue.AdmissionCheckReference(name) && check.State == kueue.CheckStatePending &&
						meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadQuotaReserved) {
						check.State, check.Message, check.LastTransitionTime = kueue.CheckStateReady, "yes", metav1.Now()
						return reconcile.Result{}, client.IgnoreNotFound(write(ctx, before, wl))
					}
				}
				return reconcile.Result{}, nil
			}))
		if err != nil {
			t.Fatal(err)
		}
		check := &kueue.AdmissionCheck{}
		if err := lab.Hub.Client.Get(ctx, client.ObjectKey{Name: name}, check); err != nil {
			t.Fatal(err)
		}
		meta.SetStatusCondition(&check.Status.Conditions, metav1.Condition{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue, Reason: "Active", Message: "set by the benchmark"})
		if err := lab.Hub.Client.Status().Update(ctx, check); err != nil {
			t.Fatal(err)
		}
	}
	go func() { _ = mgr.Start(ctx) }()
}

// stamps are when each workload was first seen in a state, by a watch.
type stamps struct {
	mu    sync.Mutex
	at    map[string]map[string]time.Time // state -> workload -> time
	alive map[string]bool
}

func observe(ctx context.Context, t *testing.T, lab *fleet.Fleet) *stamps {
	t.Helper()
	s := &stamps{at: map[string]map[string]time.Time{}, alive: map[string]bool{}}
	objects, err := cache.New(lab.Hub.Config, cache.Options{Scheme: fleet.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	informer, err := objects.GetInformer(ctx, &kueue.Workload{}, cache.BlockUntilSynced(false))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { s.see(o.(*kueue.Workload)) },
		UpdateFunc: func(_, o any) { s.see(o.(*kueue.Workload)) },
		DeleteFunc: func(o any) { s.gone(o) },
	}); err != nil {
		t.Fatal(err)
	}
	go func() { _ = objects.Start(ctx) }()
	if !objects.WaitForCacheSync(ctx) {
		t.Fatal("the hub's workloads can't be watched")
	}
	return s
}

func (s *stamps) see(wl *kueue.Workload) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alive[wl.Name] = true
	s.mark("workload", wl.Name)
	for _, c := range wl.Status.Conditions {
		if c.Status == metav1.ConditionTrue {
			s.mark(c.Type, wl.Name)
		}
	}
	for _, c := range wl.Status.AdmissionChecks {
		if meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadQuotaReserved) {
			s.mark("asked", wl.Name)
		}
		if c.State == kueue.CheckStateReady {
			s.mark("Ready", wl.Name)
		}
	}
}

func (s *stamps) mark(state, name string) {
	if s.at[state] == nil {
		s.at[state] = map[string]time.Time{}
	}
	if _, ok := s.at[state][name]; !ok {
		s.at[state][name] = time.Now()
	}
}

func (s *stamps) gone(o any) {
	if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = last.Obj
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.alive, o.(*kueue.Workload).Name)
}

func (s *stamps) count(state string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.at[state])
}

// await n workloads in a state.
func (s *stamps) await(t *testing.T, state string, n int) {
	t.Helper()
	poll(t, fmt.Sprintf("%d workloads %s", n, state), func() bool { return s.count(state) >= n })
}

// empty waits until no workload is left and forgets them all.
func (s *stamps) empty(t *testing.T) {
	t.Helper()
	poll(t, "no workload to be left", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.alive) == 0
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = map[string]map[string]time.Time{}
}

// between two states, sorted.
func (s *stamps) between(from, to string) []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []time.Duration
	for name, at := range s.at[to] {
		all = append(all, at.Sub(s.at[from][name]))
	}
	slices.Sort(all)
	return all
}

func poll(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			t.Fatal("waited in vain for ", what)
		case <-tick.C:
		}
	}
}

// boot a fleet with the operator, whose Kueue on the hub dispatches as named.
func boot(t *testing.T, dispatcher string) *fleet.Fleet {
	t.Helper()
	log.SetLogger(logr.Discard()) // of the clients that watch
	lab, err := fleet.Up(t.Context(), fleet.Options{Dir: shortDir(t), Dispatcher: dispatcher})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(lab.Stop)
	for _, step := range []func(context.Context) error{lab.Install, func(ctx context.Context) error { return lab.StartExporters(ctx) },
		func(ctx context.Context) error { return lab.StartOperator(ctx) }} {
		if err := step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ready := func(ctx context.Context) error {
		out, err := lab.Hub.Kubectl(ctx, "", "get", "clusterqueue", "gpu", "-o", `jsonpath={.status.conditions[?(@.type=="Active")].status}`)
		if err == nil && !strings.Contains(out, "True") {
			err = fmt.Errorf("Active is %q", out)
		}
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := fleet.Await(ctx, "the samples' queue to be active", ready); err != nil {
		t.Fatal(err)
	}
	return lab
}
