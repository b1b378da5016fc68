//go:build labbench

package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

const (
	dispatchJobs  = 200
	dispatchLimit = 4 * time.Minute // per dispatcher: misplaced jobs may never finish
)

// dispatchers lists the dispatchers to compare. Only with gated the queue has a
// PlacementGate.
var dispatchers = []struct {
	name, dispatcher string
	extraConfig      []string
	gated            bool
}{
	{"all at once", "kueue.x-k8s.io/multikueue-dispatcher-all-at-once", nil, false},
	{"incremental, step 1", "kueue.x-k8s.io/multikueue-dispatcher-incremental", []string{"  incrementalDispatcherConfig: {stepSize: 1}"}, false},
	{"plimsoll", fleet.OperatorDispatcher, nil, true},
}

const dispatchChecks = `
apiVersion: kueue.x-k8s.io/v1beta2
kind: MultiKueueConfig
metadata: {name: bench}
spec: {clusters: [cluster1, cluster2, cluster3]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: bench}
spec:
  controllerName: kueue.x-k8s.io/multikueue
  parameters: {apiGroup: kueue.x-k8s.io, kind: MultiKueueConfig, name: bench}
`

// TestDispatch prints the results of each dispatcher for the same jobs, which all wait
// at the start: 1 to 8 GPUs, 10 to 30 s. The 44 H100 GPUs of the fleet can run all jobs
// in five minutes. Kueue 0.19 sends 5 requests per second and kind to a worker, later versions
// can send more.
func TestDispatch(t *testing.T) {
	t.Run("clients with 5 requests per second", func(t *testing.T) { compareDispatchers(t, startFleet(t, fleet.Options{})) })
	t.Run("clients with 300 requests per second", func(t *testing.T) {
		compareDispatchers(t, startFleet(t, fleet.Options{WorkerClientQPS: 300}))
	})
}

func compareDispatchers(t *testing.T, lab *fleet.Fleet) {
	fmt.Println(t.Name())
	fmt.Printf("%d jobs, %s each: %14s  %10s  %8s  %8s  %14s  %s\n", dispatchJobs, dispatchLimit,
		"dispatcher", "admitted/s", "admitted", "finished", "copies per job", "unschedulable")
	for i, d := range dispatchers {
		if err := lab.Programs().End(fleet.Operator, syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		checks := `{"name":"bench"}`
		if d.gated {
			checks = `{"name":"plimsoll"},{"name":"multikueue"}`
			if err := lab.Programs().Restart(t.Context(), fleet.Operator); err != nil {
				t.Fatal(err)
			}
		}
		if err := lab.Hub.Apply(t.Context(), dispatchChecks); err != nil {
			t.Fatal(err)
		}
		// A merge patch replaces the list. An apply would add to the list.
		if _, err := lab.Hub.Kubectl(t.Context(), "", "patch", "clusterqueue/gpu", "--type=merge", "-p",
			`{"spec":{"admissionChecksStrategy":{"admissionChecks":[`+checks+`]}}}`); err != nil {
			t.Fatal(err)
		}
		if err := lab.SetDispatcher(t.Context(), d.dispatcher, d.extraConfig...); err != nil {
			t.Fatal(err)
		}
		r := runDispatcher(t, lab, fmt.Sprintf("run%d", i))
		fmt.Printf("%35s  %10.2f  %8d  %8d  %14.2f  %13d\n", d.name, r.rate, r.admitted, r.finished, r.copies, r.misplaced)
	}
}

// dispatchResult is the result of a dispatcher.
type dispatchResult struct {
	rate, copies                  float64 // admissions per second, copies per admitted job
	admitted, finished, misplaced int
}

// runDispatcher submits the jobs to a stopped queue, starts the queue and waits until
// all jobs have finished or dispatchLimit has passed.
func runDispatcher(t *testing.T, lab *fleet.Fleet, prefix string) dispatchResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	watcher, err := lab.WatchJobs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	before := watcher.CopyCount()
	random := rand.New(rand.NewPCG(1, 1))
	setStopPolicy(ctx, t, lab, fleet.Queue, "Hold")
	names := make([]string, dispatchJobs)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", prefix, i)
		j := fleet.Job{Name: names[i], Model: fleet.H100, GPUs: []int{1, 1, 2, 4, 8}[random.IntN(5)], Duration: time.Duration(10+random.IntN(21)) * time.Second}
		if err := lab.Submit(ctx, j); err != nil {
			t.Fatal(err)
		}
	}
	count := func(condition string) (n int) {
		for _, name := range names {
			if watcher.HasCondition(name, condition) {
				n++
			}
		}
		return n
	}
	start := time.Now()
	setStopPolicy(ctx, t, lab, fleet.Queue, "None")
	limit := time.After(dispatchLimit)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	admitted, last := 0, start
	for timedOut := false; !timedOut && count(kueue.WorkloadFinished) < dispatchJobs; {
		select {
		case <-limit:
			timedOut = true
		case <-tick.C:
		}
		if n := count(kueue.WorkloadAdmitted); n > admitted {
			admitted, last = n, time.Now()
		}
	}
	r := dispatchResult{rate: float64(admitted) / last.Sub(start).Seconds(), admitted: admitted, finished: count(kueue.WorkloadFinished), misplaced: len(watcher.Misplaced())}
	if admitted > 0 {
		r.copies = float64(watcher.CopyCount()-before) / float64(admitted)
	}
	for _, name := range names {
		if err := lab.DeleteJob(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	if err := fleet.Await(ctx, "the deletion of all workloads and pods", func(ctx context.Context) error { return checkNoJobs(ctx, lab) }); err != nil {
		t.Fatal(err)
	}
	return r
}

// checkNoJobs returns an error while workloads or pods exist on the hub or a worker.
// Remaining pods would affect the results of the next dispatcher.
func checkNoJobs(ctx context.Context, lab *fleet.Fleet) error {
	for _, c := range append([]*fleet.Cluster{lab.Hub}, lab.Workers...) {
		for _, list := range []client.ObjectList{&kueue.WorkloadList{}, &corev1.PodList{}} {
			if err := c.Client.List(ctx, list, client.InNamespace(fleet.Namespace)); err != nil {
				return err
			}
			if n := meta.LenList(list); n > 0 {
				return fmt.Errorf("%s has %d items of %T", c.Name, n, list)
			}
		}
	}
	return nil
}

// shortDir creates a folder whose path is short enough for Unix sockets. It is removed
// if the test passes.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "plm")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			_ = os.RemoveAll(dir)
		}
	})
	return dir
}
