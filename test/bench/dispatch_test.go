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

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

const dispatchJobs = 200

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

const dispatchQueue = `
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
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: gpu}
spec:
  admissionChecksStrategy: {admissionChecks: [%s]}
`

// TestDispatch prints what becomes of jobs of all sizes that come a little faster
// than the fleet's 44 devices can serve.
func TestDispatch(t *testing.T) {
	lab := boot(t, "")
	fmt.Printf("%-20s  %10s  %12s  %14s  %14s\n", "dispatcher", "admitted/s", "all done in", "copies per job", "could not start")
	for i, d := range dispatchers {
		if err := lab.Programs().End(fleet.Operator, syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		checks := "{name: bench}"
		if d.gated {
			checks = "{name: plimsoll}, {name: multikueue}"
			if err := lab.Programs().Restart(t.Context(), fleet.Operator); err != nil {
				t.Fatal(err)
			}
		}
		if err := lab.Hub.Apply(t.Context(), fmt.Sprintf(dispatchQueue, checks)); err != nil {
			t.Fatal(err)
		}
		if err := lab.SetDispatcher(t.Context(), d.dispatcher, d.more...); err != nil {
			t.Fatal(err)
		}
		r := dispatch(t, lab, fmt.Sprintf("run%d", i))
		fmt.Printf("%-20s  %10.2f  %12v  %14.2f  %14d\n", d.name, r.rate, r.took.Round(time.Second), r.copies, r.misfits)
	}
}

// result of one dispatcher.
type result struct {
	rate, copies float64
	took         time.Duration
	misfits      int
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
		j := fleet.Job{Name: names[i], Model: fleet.H100, GPUs: []int{1, 1, 2, 4, 8}[random.IntN(5)], Duration: time.Duration(2+random.IntN(6)) * time.Second}
		if err := lab.Submit(ctx, j); err != nil {
			t.Fatal(err)
		}
	}
	all := func(condition string) func() bool {
		return func() bool {
			for _, name := range names {
				if !seen.Is(name, condition) {
					return false
				}
			}
			return true
		}
	}
	began := time.Now()
	stop(ctx, t, lab, fleet.Queue, "None")
	poll(t, "every job to be admitted", all(kueue.WorkloadAdmitted))
	admitted := time.Since(began)
	poll(t, "every job to finish", all(kueue.WorkloadFinished))
	r := result{rate: dispatchJobs / admitted.Seconds(), took: time.Since(began),
		copies: float64(seen.Copies()-before) / dispatchJobs, misfits: len(seen.Misfits())}
	for _, name := range names {
		if err := lab.DeleteJob(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	return r
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
