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
	dispatchLimit = 4 * time.Minute // of one dispatcher: jobs that can't start never end
)

// dispatchers to compare; plain ones serve a queue that no gate stands before.
var dispatchers = []struct {
	name, dispatcher string
	more             []string
	gated            bool
}{
	{"all at once", "kueue.x-k8s.io/multikueue-dispatcher-all-at-once", nil, false},
	{"incremental, step 1", "kueue.x-k8s.io/multikueue-dispatcher-incremental", []string{"  incrementalDispatcherConfig: {stepSize: 1}"}, false},
	{"plimsoll", "plimsoll.dev/dispatcher", nil, true},
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

// TestDispatch prints what becomes of jobs of all sizes, 10 to 30 s long, all there
// at once: the fleet's 44 devices could serve them in five minutes.
func TestDispatch(t *testing.T) {
	lab := boot(t, "")
	fmt.Printf("%d jobs, %s each: %14s  %10s  %8s  %8s  %14s  %s\n", dispatchJobs, dispatchLimit,
		"dispatcher", "admitted/s", "admitted", "finished", "copies per job", "could not start")
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
		// A patch that replaces the list: an apply would add to it.
		if _, err := lab.Hub.Kubectl(t.Context(), "", "patch", "clusterqueue/gpu", "--type=merge", "-p",
			`{"spec":{"admissionChecksStrategy":{"admissionChecks":[`+checks+`]}}}`); err != nil {
			t.Fatal(err)
		}
		if err := lab.SetDispatcher(t.Context(), d.dispatcher, d.more...); err != nil {
			t.Fatal(err)
		}
		r := dispatch(t, lab, fmt.Sprintf("run%d", i))
		fmt.Printf("%35s  %10.2f  %8d  %8d  %14.2f  %15d\n", d.name, r.rate, r.admitted, r.finished, r.copies, r.misfits)
	}
}

// result of one dispatcher.
type result struct {
	rate, copies                float64
	admitted, finished, misfits int
}

// dispatch the same jobs for everybody: the queue is held until all are there.
func dispatch(t *testing.T, lab *fleet.Fleet, prefix string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	seen, err := lab.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	before := seen.Copies()
	random := rand.New(rand.NewPCG(1, 1))
	stop(ctx, t, lab, fleet.Queue, "Hold")
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
			if seen.Is(name, condition) {
				n++
			}
		}
		return n
	}
	began := time.Now()
	stop(ctx, t, lab, fleet.Queue, "None")
	limit := time.After(dispatchLimit)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	admitted, last := 0, began
	for over := false; !over && count(kueue.WorkloadFinished) < dispatchJobs; {
		select {
		case <-limit:
			over = true
		case <-tick.C:
		}
		if n := count(kueue.WorkloadAdmitted); n > admitted {
			admitted, last = n, time.Now()
		}
	}
	r := result{rate: float64(admitted) / last.Sub(began).Seconds(), admitted: admitted, finished: count(kueue.WorkloadFinished), misfits: len(seen.Misfits())}
	if admitted > 0 {
		r.copies = float64(seen.Copies()-before) / float64(admitted)
	}
	for _, name := range names {
		if err := lab.DeleteJob(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	if err := fleet.Await(ctx, "no worker to hold anything of the jobs", func(ctx context.Context) error { return idle(ctx, lab) }); err != nil {
		t.Fatal(err)
	}
	return r
}

// idle says what of the jobs is left on the hub or the workers: copies go one by one,
// and what waits for a node there would count against the next dispatcher.
func idle(ctx context.Context, lab *fleet.Fleet) error {
	for _, c := range append([]*fleet.Cluster{lab.Hub}, lab.Workers...) {
		for _, list := range []client.ObjectList{&kueue.WorkloadList{}, &corev1.PodList{}} {
			if err := c.Client.List(ctx, list, client.InNamespace(fleet.Namespace)); err != nil {
				return err
			}
			if n := meta.LenList(list); n > 0 {
				return fmt.Errorf("%d left of %T on %s", n, list, c.Name)
			}
		}
	}
	return nil
}

// shortDir is a folder with a path short enough for Unix sockets below it.
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
