// Package scenario contains short stories that each show one property of Plimsoll on a
// fleet. `lab scenario` and the end-to-end tests run them.
package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
	"plimsoll.dev/plimsoll/test/story"
)

// Scenario is a story on a fleet with the samples, the operator and all exporters.
type Scenario struct {
	Name string
	// Short is a sentence about what the scenario shows.
	Short string
	// play returns a sentence about the outcome.
	play func(*script) string
}

// limit of a scenario without its cleanup. A scenario takes 20 to 120 s on an idle machine, and
// many times as long on a busy one.
const limit = 6 * time.Minute

// All lists the scenarios: those that also run in virtual time, and those that only real components can
// show.
var All = append(stories(), []Scenario{
	{"nvlink", "a job that needs NVLink goes only where a group of connected GPUs is large enough, or waits", nvlink},
	{"shadow", "a gate in mode Shadow lets 100 jobs pass, and reports those that hang on a cluster without free CPU", shadow},
	{"quota", "the quota of a Cohort follows the GPUs of a node that are lost and come back", quota},
	{"profile", "a job that finished leaves a profile, which kubectl plimsoll profile prints", profile},
	{"shares", "a job for a part of a GPU goes only where one GPU has the memory, or waits", shares},
	{"packing", "a job on shared GPUs goes where devices have headroom, not where the mean of a cluster is low", packing},
	{"topology", "a job whose pods need one block goes only where a block has room for all of them, or waits", topology},
	{"tpu-slice", "a job on TPUs goes only where all chips of a slice are free, or waits", tpuSlice},
	{"trial", "copies of an unknown job run on two models, then the job starts on the faster one", trial},
	{"idle", "a job with idle GPUs returns to its queue while another one waits for them", idle},
	{"rebalance", "a small job moves to another cluster, so that a large one gets the whole node", rebalance},
}...)

func stories() []Scenario {
	var list []Scenario
	for _, s := range story.All {
		list = append(list, fromStory(s))
	}
	return list
}

// Find returns the scenario of that name.
func Find(name string) (Scenario, error) {
	names := make([]string, len(All))
	for i, s := range All {
		if s.Name == name {
			return s, nil
		}
		names[i] = s.Name
	}
	return Scenario{}, fmt.Errorf("no scenario %q; the scenarios are %s", name, strings.Join(names, ", "))
}

// Run runs a scenario and returns a sentence about the outcome. log receives its events.
// At the end the fleet is as it was before, also if the scenario fails.
func (s Scenario) Run(ctx context.Context, f *fleet.Fleet, log func(format string, args ...any)) (string, error) {
	st := &stage{fleet: f, log: log, kubeconfigs: map[string]string{}}
	runCtx, cancel := context.WithTimeout(ctx, limit)
	outcome, err := story.Play(func() string { return s.play(&script{runCtx, st}) })
	cancel()
	return outcome, errors.Join(err, st.restore(ctx))
}

// stage is a fleet with the changes that a scenario made to it.
type stage struct {
	fleet *fleet.Fleet
	log   func(format string, args ...any)
	undo  []func(context.Context) error
	// kubeconfigs of the clusters whose connection was ended.
	kubeconfigs map[string]string
}

// onEnd registers a function that restores a part of the fleet.
func (s *stage) onEnd(undo func(context.Context) error) { s.undo = append(s.undo, undo) }

// restore calls the registered functions, the last one first.
func (s *stage) restore(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
	defer cancel()
	var errs []error
	for i := len(s.undo) - 1; i >= 0; i-- {
		errs = append(errs, s.undo[i](ctx))
	}
	return errors.Join(errs...)
}

// deleteAtEnd deletes objects on the hub at the end.
func (s *stage) deleteAtEnd(objects ...string) {
	s.onEnd(func(ctx context.Context) error {
		_, err := s.fleet.Hub.Kubectl(ctx, "", append([]string{"delete", "--ignore-not-found", "-n", fleet.Namespace}, objects...)...)
		return err
	})
}

// createQueue creates a queue with the samples' checks, which is deleted at the end.
func (s *stage) createQueue(ctx context.Context, q fleet.GPUQueue) error {
	q.Checks = []string{"plimsoll", "multikueue"}
	s.onEnd(func(ctx context.Context) error { return s.fleet.DeleteQueue(ctx, q.Name) })
	return s.fleet.CreateQueue(ctx, q)
}

// submit creates a job, which is deleted at the end.
func (s *stage) submit(ctx context.Context, j fleet.Job) error {
	if err := s.fleet.Submit(ctx, j); err != nil {
		return err
	}
	s.onEnd(func(ctx context.Context) error { return s.deleteJob(ctx, j.Name) })
	return nil
}

// deleteJob deletes a job and waits until all its copies are deleted.
func (s *stage) deleteJob(ctx context.Context, name string) error {
	if err := s.fleet.DeleteJob(ctx, name); err != nil {
		return err
	}
	return s.awaitView(ctx, name, "to be deleted everywhere", func(v fleet.JobView) bool { return len(v.Copies) == 0 })
}

// awaitRunning waits until a job runs on exactly one cluster and has no other copy.
func (s *stage) awaitRunning(ctx context.Context, name string) (string, error) {
	var view fleet.JobView
	err := s.awaitView(ctx, name, "to run on one cluster", func(v fleet.JobView) bool {
		view = v
		return len(v.Running) == 1 && len(v.Copies) == 1 && v.Cluster == v.Running[0]
	})
	if err == nil {
		s.log("%s runs on %s: %s", name, view.Cluster, view.CheckMessage)
	}
	return view.Cluster, err
}

// awaitWaiting waits until a job waits at the gate with a message that contains want.
func (s *stage) awaitWaiting(ctx context.Context, name, want string) error {
	var message string
	err := s.awaitView(ctx, name, fmt.Sprintf("to wait with %q", want), func(v fleet.JobView) bool {
		message = v.CheckMessage
		return v.CheckState == "Pending" && strings.Contains(message, want) && len(v.Copies) == 0
	})
	if err == nil {
		s.log("%s waits: %s", name, message)
	}
	return err
}

func (s *stage) awaitView(ctx context.Context, name, what string, want func(fleet.JobView) bool) error {
	return fleet.Await(ctx, name+" "+what, func(ctx context.Context) error {
		v, err := s.fleet.View(ctx, name)
		if err == nil && !want(v) {
			err = fmt.Errorf("%+v", v)
		}
		return err
	})
}

// awaitTotal waits until the total score of a cluster is as wanted.
func (s *stage) awaitTotal(ctx context.Context, cluster, what string, want func(total int32) bool) error {
	return fleet.Await(ctx, "the score of "+cluster+" to be "+what, func(ctx context.Context) error {
		scores, err := s.fleet.Scores(ctx, "fleet", cluster)
		if total, ok := scores["total"]; err == nil && (!ok || !want(total)) {
			err = fmt.Errorf("its scores are %v", scores)
		}
		return err
	})
}

// awaitFree waits until the metrics show this number of free devices on the clusters that the
// regular expression matches.
func (s *stage) awaitFree(ctx context.Context, clusters string, model fleet.GPUModel, want float64) error {
	return s.awaitValue(ctx, fmt.Sprintf(`sum(cluster_resource_model:plimsoll_free_devices:sum{cluster=~%q,model=%q})`, clusters, model.Label), want)
}

// awaitValue waits until the expression has one series with this value.
func (s *stage) awaitValue(ctx context.Context, expr string, want float64) error {
	return fleet.Await(ctx, fmt.Sprintf("%s to be %g", expr, want), func(ctx context.Context) error {
		samples, err := fleet.Query(ctx, s.fleet.Thanos, expr)
		if err == nil && (len(samples) != 1 || samples[0].Value != want) {
			err = fmt.Errorf("the metrics show %v", samples)
		}
		return err
	})
}
