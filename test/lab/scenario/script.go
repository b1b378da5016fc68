package scenario

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/test/lab/fleet"
	"plimsoll.dev/plimsoll/test/story"
)

// script is a stage for scenarios that only the lab can play: a method that fails ends the scenario.
type script struct {
	ctx context.Context
	*stage
}

// starts submits a job and returns the cluster that it runs on.
func (s *script) starts(j fleet.Job) string {
	s.submits(j)
	return s.runs(j.Name)
}

// startsOn submits a job that must run on a cluster.
func (s *script) startsOn(j fleet.Job, cluster string) {
	s.submits(j)
	s.runsOn(j.Name, cluster)
}

func (s *script) submits(j fleet.Job) { story.Must(s.submit(s.ctx, j)) }

func (s *script) deletes(job string) { story.Must(s.deleteJob(s.ctx, job)) }

// runs waits until a job runs on one cluster.
func (s *script) runs(job string) string {
	cluster, err := s.awaitRunning(s.ctx, job)
	story.Must(err)
	return cluster
}

// runsOn waits until a job runs, which must be on a cluster.
func (s *script) runsOn(job, want string) {
	cluster := s.runs(job)
	story.Require(cluster == want, "%s runs on %s, not on %s", job, cluster, want)
}

// staysOn requires that a job runs on a cluster, and there only.
func (s *script) staysOn(job, cluster string) {
	v, err := s.fleet.View(s.ctx, job)
	story.Must(err)
	story.Require(len(v.Running) == 1 && v.Running[0] == cluster && len(v.Copies) == 1, "%s ran on %s and is now %+v", job, cluster, v)
}

// waits waits until a job waits at the gate with a message that contains want.
func (s *script) waits(job, want string) { story.Must(s.awaitWaiting(s.ctx, job, want)) }

// sees waits until a job is as wanted.
func (s *script) sees(job, what string, want func(fleet.JobView) bool) {
	story.Must(s.awaitView(s.ctx, job, what, want))
}

// shows waits until the expression has one series with this value.
func (s *script) shows(expr string, want float64) { story.Must(s.awaitValue(s.ctx, expr, want)) }

// hasFree waits until the metrics show this number of free devices on the clusters that the regular expression matches.
func (s *script) hasFree(clusters string, model fleet.GPUModel, want float64) {
	story.Must(s.awaitFree(s.ctx, clusters, model, want))
}

func (s *script) await(what string, done func(context.Context) error) {
	story.Must(fleet.Await(s.ctx, what, done))
}

func (s *script) applies(yaml string) { story.Must(s.fleet.Hub.Apply(s.ctx, yaml)) }

// patchesGate changes the sample gate until the end.
func (s *script) patchesGate(patch, undo string) {
	s.onEnd(func(ctx context.Context) error { return s.fleet.PatchGate(ctx, undo) })
	story.Must(s.fleet.PatchGate(s.ctx, patch))
}

// createsQueue creates a queue with the samples' checks, until the end.
func (s *script) createsQueue(q fleet.GPUQueue) { story.Must(s.createQueue(s.ctx, q)) }

// createsGatedQueue creates a queue with a sample gate, until the end.
func (s *script) createsGatedQueue(q fleet.GatedQueue) {
	s.onEnd(func(ctx context.Context) error { return s.fleet.DeleteGatedQueue(ctx, q) })
	story.Must(s.fleet.CreateGatedQueue(s.ctx, q))
}

// addsNode adds a node to a worker, until the end.
func (s *script) addsNode(cluster string, n fleet.Node) {
	s.onEnd(func(ctx context.Context) error { return s.fleet.RemoveNode(ctx, cluster, n.Name) })
	story.Must(s.fleet.AddNode(s.ctx, cluster, n))
}

// occupies uses devices of a node with a pod outside of Kueue's queues, until the end.
func (s *script) occupies(cluster, node string, devices int) {
	s.onEnd(func(ctx context.Context) error { return s.fleet.Vacate(ctx, cluster, node) })
	story.Must(s.fleet.Occupy(s.ctx, cluster, node, devices))
}

// requireEvent requires an event of a job with a text.
func (s *script) requireEvent(text string) {
	events, err := s.fleet.Hub.Kubectl(s.ctx, "", "get", "events", "-n", fleet.Namespace, "-o", `jsonpath={range .items[*]}{.reason} {.message}{"\n"}{end}`)
	story.Must(err)
	story.Require(strings.Contains(events, text), "no event has %q: %s", text, events)
}

// requireRecord requires a text in the gate's record of a job.
func (s *script) requireRecord(job, text string) {
	wl, err := s.fleet.Workload(s.ctx, job)
	story.Must(err)
	story.Require(wl != nil && strings.Contains(wl.Annotations[v1alpha1.DispatchAnnotation], text), "the record of %s lacks %s", job, text)
}

// prints logs the output of kubectl plimsoll.
func (s *script) prints(args ...string) {
	command := "kubectl plimsoll " + strings.Join(args, " ")
	cmd := exec.CommandContext(s.ctx, s.fleet.Program("kubectl-plimsoll"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.fleet.Hub.Kubeconfig)
	out, err := cmd.CombinedOutput()
	if err != nil {
		story.Must(fmt.Errorf("%s: %w: %s", command, err, out))
	}
	s.log("$ %s", command)
	for line := range strings.Lines(string(out)) {
		s.log("%s", strings.TrimRight(line, "\n"))
	}
}
