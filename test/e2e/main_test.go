//go:build e2e

// Package e2e asserts what a user sees on a whole fleet of real components.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

var lab *fleet.Fleet

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	log.SetLogger(logr.Discard()) // of the clients that watch
	dir, err := os.MkdirTemp("", "plm")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Minute)
	defer cancel()
	if lab, err = fleet.Up(ctx, fleet.Options{Dir: dir, Audit: true}); err == nil {
		err = errors.Join(lab.Install(ctx), pace(ctx), lab.StartExporters(ctx))
	}
	if err == nil {
		err = lab.StartOperator(ctx)
	}
	if lab != nil {
		defer lab.Stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "the fleet did not come up:", err)
		return 1
	}
	code := m.Run()
	if err := audited(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if code != 0 {
		fmt.Fprintf(os.Stderr, "logs of every component: %s/logs\n", dir)
		return code
	}
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return 0
}

// pace makes rounds short, so that tests don't wait for minutes.
func pace(ctx context.Context) error {
	for object, patch := range map[string]string{
		"scoringpolicy/fleet": `{"spec":{"periodSeconds":2,"validForPeriods":15,"freshness":{"maxAgeSeconds":10}}}`,
		"placementgate/gpu":   `{"spec":{"periodSeconds":2,"freshness":{"maxSampleAgeSeconds":20,"unknownAfterSeconds":40},"widen":{"afterSeconds":20}}}`,
	} {
		if _, err := lab.Hub.Kubectl(ctx, "", "patch", object, "--type=merge", "-p", patch); err != nil {
			return err
		}
	}
	return nil
}

func testContext(t *testing.T, limit time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// submit a job that is deleted, and gone everywhere, when the test ends.
func submit(ctx context.Context, t *testing.T, j fleet.Job) {
	t.Helper()
	if err := lab.Submit(ctx, j); err != nil {
		t.Fatalf("submit %s: %v", j.Name, err)
	}
	t.Cleanup(func() { gone(t, j.Name) })
}

func gone(t *testing.T, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := lab.DeleteJob(ctx, name); err != nil {
		t.Errorf("delete %s: %v", name, err)
	}
	await(ctx, t, name+" to be gone", func(ctx context.Context) error {
		v, err := lab.View(ctx, name)
		if err == nil && len(v.Copies) > 0 {
			err = fmt.Errorf("copies on %v", v.Copies)
		}
		return err
	})
}

func await(ctx context.Context, t *testing.T, what string, done func(context.Context) error) {
	t.Helper()
	if err := fleet.Await(ctx, what, done); err != nil {
		t.Fatal(err)
	}
}

// runs waits until the job runs in exactly one place and no other copy exists.
func runs(ctx context.Context, t *testing.T, name string) string {
	t.Helper()
	var v fleet.JobView
	await(ctx, t, name+" to run", func(ctx context.Context) error {
		var err error
		if v, err = lab.View(ctx, name); err != nil {
			return err
		}
		return runsOnce(v)
	})
	t.Logf("%s runs on %s: %s", name, v.Cluster, v.Message)
	return v.Cluster
}

// shown waits until the hub's own copy of a running job shows its pod.
func shown(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	await(ctx, t, "the hub's job to show its pod", func(ctx context.Context) error {
		out, err := lab.Hub.Kubectl(ctx, "", "get", "job/"+name, "-n", fleet.Namespace, "-o", "jsonpath={.status.active}")
		if err == nil && out != "1" {
			err = fmt.Errorf("active is %q", out)
		}
		return err
	})
}

// lose the copy of a running job: somebody deletes it on its worker.
func lose(ctx context.Context, t *testing.T, name, cluster string) {
	t.Helper()
	shown(ctx, t, name)
	if out, err := lab.Worker(cluster).Kubectl(ctx, "", "delete", "job/"+name, "-n", fleet.Namespace); err != nil {
		t.Fatal(err, out)
	}
	sees(ctx, t, name, "to be evicted", func(v fleet.JobView) bool { return v.Evicted || v.Cluster == "" })
}

func runsOnce(v fleet.JobView) error {
	if len(v.Running) != 1 || len(v.Copies) != 1 || v.Cluster != v.Running[0] {
		return fmt.Errorf("%+v", v)
	}
	return nil
}

// stillRuns fails unless the job is where it was, once.
func stillRuns(ctx context.Context, t *testing.T, name, cluster string) {
	t.Helper()
	v, err := lab.View(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	if err := runsOnce(v); err != nil || v.Cluster != cluster || v.Evicted {
		t.Fatalf("%s ran on %s and is now: %+v", name, cluster, v)
	}
}

// waits until the gate keeps the job back with a message that holds want.
func waits(ctx context.Context, t *testing.T, name, want string) {
	t.Helper()
	await(ctx, t, fmt.Sprintf("%s to wait with %q", name, want), func(ctx context.Context) error {
		v, err := lab.View(ctx, name)
		if err == nil && (v.Gate != "Pending" || !strings.Contains(v.Message, want) || len(v.Copies) > 0) {
			err = fmt.Errorf("%+v", v)
		}
		return err
	})
}

// free waits until a cluster shows so many free devices of a model.
func free(ctx context.Context, t *testing.T, cluster string, model fleet.GPUModel, want float64) {
	t.Helper()
	measures(ctx, t, fmt.Sprintf(`sum(cluster_model:plimsoll_free_devices:sum{cluster=%q,model=%q})`, cluster, model.Label), want)
}

// measures waits until the one answer to a question about the fleet is so.
func measures(ctx context.Context, t *testing.T, expr string, want float64) {
	t.Helper()
	await(ctx, t, fmt.Sprintf("%s to be %g", expr, want), func(ctx context.Context) error {
		samples, err := fleet.Query(ctx, lab.Thanos, expr)
		if err == nil && (len(samples) != 1 || samples[0].Value != want) {
			err = fmt.Errorf("%s answers %v", expr, samples)
		}
		return err
	})
}

// cordon a node until the test ends. It returns once the metrics show it, and so
// does its end: no later test meets a sample from before.
func cordon(ctx context.Context, t *testing.T, cluster, node string) {
	t.Helper()
	setCordon(ctx, t, cluster, node, true)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		setCordon(ctx, t, cluster, node, false)
	})
}

func setCordon(ctx context.Context, t *testing.T, cluster, node string, cordoned bool) {
	t.Helper()
	if err := lab.Cordon(ctx, cluster, node, cordoned); err != nil {
		t.Fatal(err)
	}
	want := 1.0
	if cordoned {
		want = 0
	}
	expr := fmt.Sprintf(`node:plimsoll_placeable:bool{cluster=%q,node=%q}`, cluster, node)
	await(ctx, t, fmt.Sprintf("the metrics to show %s, cordoned: %t", node, cordoned), func(ctx context.Context) error {
		samples, err := fleet.Query(ctx, lab.Thanos, expr)
		if err == nil && (len(samples) != 1 || samples[0].Value != want) {
			err = fmt.Errorf("%s answers %v", expr, samples)
		}
		return err
	})
}

// occupy devices of a node for the rest of the test with what no queue knows.
func occupy(ctx context.Context, t *testing.T, cluster, node string, gpus int) {
	t.Helper()
	if err := lab.Occupy(ctx, cluster, node, gpus); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { after(t, func(ctx context.Context) error { return lab.Vacate(ctx, cluster, node) }) })
}

// after a test: what must be undone whatever became of its context.
func after(t *testing.T, undo func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := undo(ctx); err != nil {
		t.Error(err)
	}
}

// gateSpec patches the gate for the rest of the test; undo is the patch back.
func gateSpec(ctx context.Context, t *testing.T, spec, undo string) {
	t.Helper()
	patch(ctx, t, "placementgate/gpu", "merge", `{"spec":`+spec+`}`)
	t.Cleanup(func() {
		after(t, func(ctx context.Context) error {
			_, err := lab.Hub.Kubectl(ctx, "", "patch", "placementgate/gpu", "--type=merge", "-p", `{"spec":`+undo+`}`)
			return err
		})
	})
}

// hold the queues of workers: what is copied there is not admitted until the
// returned release, or the test's end.
func hold(ctx context.Context, t *testing.T, queue string, clusters ...string) (release func(cluster string)) {
	t.Helper()
	policy := func(ctx context.Context, cluster, policy string) error {
		_, err := lab.Worker(cluster).Kubectl(ctx, "", "patch", "clusterqueue/"+queue, "--type=merge", "-p", `{"spec":{"stopPolicy":"`+policy+`"}}`)
		return err
	}
	for _, c := range clusters {
		if err := policy(ctx, c, "Hold"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { after(t, func(ctx context.Context) error { return policy(ctx, c, "None") }) })
	}
	return func(cluster string) {
		t.Helper()
		if err := policy(ctx, cluster, "None"); err != nil {
			t.Fatal(err)
		}
	}
}

// sees waits until the view of a job is as want says.
func sees(ctx context.Context, t *testing.T, name, what string, want func(fleet.JobView) bool) fleet.JobView {
	t.Helper()
	var v fleet.JobView
	await(ctx, t, name+" "+what, func(ctx context.Context) error {
		var err error
		if v, err = lab.View(ctx, name); err == nil && !want(v) {
			err = fmt.Errorf("%+v", v)
		}
		return err
	})
	return v
}

// finishes waits until the job is done on the hub and no copy of it is left.
func finishes(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	sees(ctx, t, name, "to finish", func(v fleet.JobView) bool { return v.Finished && len(v.Copies) == 0 })
}

// workload of a job, by the name that kubectl takes.
func workload(ctx context.Context, t *testing.T, job string) string {
	t.Helper()
	wl, err := lab.Workload(ctx, job)
	if err != nil || wl == nil {
		t.Fatalf("workload of %s: %v, %v", job, wl, err)
	}
	return wl.Name
}
