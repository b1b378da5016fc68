package scenario

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/test/lab/fleet"
	"plimsoll.dev/plimsoll/test/story"
)

func trial(s *script) string {
	s.deleteAtEnd("jobprofile/newcomer")
	s.onEnd(s.fleet.DeleteTrialQueue)
	story.Must(s.fleet.CreateTrialQueue(s.ctx))
	s.submits(fleet.TriedJob("newcomer"))
	s.await("a copy of newcomer to run on both models", func(ctx context.Context) error {
		running, err := s.fleet.RunningTrials(ctx)
		if err == nil && len(running) != 2 {
			err = fmt.Errorf("running copies: %v", running)
		}
		if err == nil {
			s.log("newcomer waits; copies of one pod run: %s", strings.Join(running, ", "))
		}
		return err
	})
	v, err := s.fleet.View(s.ctx, "newcomer")
	story.Must(err)
	story.Require(len(v.Copies) == 0 && len(v.Nominated) == 0, "newcomer does not wait for its trial: %+v", v)
	story.Must(errors.Join(s.fleet.Programs().End(fleet.Operator, syscall.SIGKILL), s.fleet.Programs().Restart(s.ctx, fleet.Operator)))
	s.log("the operator is killed, and starts again")
	s.runsOn("newcomer", fleet.FastestModelCluster)
	message, err := s.fleet.TrialMessage(s.ctx, "newcomer")
	story.Must(err)
	story.Require(strings.HasPrefix(message, "Ready: the trial has ended"), "the check of the trial is %s", message)
	s.log("the check of the trial is %s", message)
	s.await("the copies to be deleted on all clusters", s.noTrialCopies)
	s.requireTrialProfile("newcomer")
	s.prints("profile", "-n", fleet.Namespace)
	node, err := s.fleet.NodeOf(s.ctx, "newcomer", fleet.FastestModelCluster)
	story.Must(err)
	model, err := s.fleet.Worker(fleet.FastestModelCluster).Kubectl(s.ctx, "", "get", "node", node, "-o", `jsonpath={.metadata.labels.nvidia\.com/gpu\.product}`)
	story.Must(err)
	story.Require(model == fleet.H100.Label, "newcomer runs on %s, although its trial was faster on %s", model, fleet.H100.Label)
	return "copies ran on two models, then newcomer started on the faster one, " + model
}

// noTrialCopies returns an error if the hub or a worker has a copy of a job for a trial, or the Workload of one.
func (s *script) noTrialCopies(ctx context.Context) error {
	for _, c := range append([]*fleet.Cluster{s.fleet.Hub}, s.fleet.Workers...) {
		jobs, err := c.TrialCopies(ctx)
		workloads := &kueue.WorkloadList{}
		if err = errors.Join(err, c.Client.List(ctx, workloads, client.InNamespace(fleet.Namespace))); err != nil {
			return err
		}
		for i := range workloads.Items {
			if sets := workloads.Items[i].Spec.PodSets; len(sets) == 1 && sets[0].Template.Labels[v1alpha1.TrialOfLabel] != "" {
				return fmt.Errorf("%s has Workload %s", c.Name, workloads.Items[i].Name)
			}
		}
		if len(jobs) > 0 {
			return fmt.Errorf("%s has Job %s", c.Name, jobs[0].Name)
		}
	}
	return nil
}

// requireTrialProfile requires that a profile knows both models by one trial each, of which one is four times as fast.
func (s *script) requireTrialProfile(name string) {
	p := &v1alpha1.JobProfile{}
	story.Must(s.fleet.Hub.Client.Get(s.ctx, client.ObjectKey{Namespace: fleet.Namespace, Name: name}, p))
	throughput := map[string]float64{}
	for _, m := range p.Status.Models {
		value, err := strconv.ParseFloat(m.ThroughputP50, 64)
		story.Must(err)
		story.Require(m.Trials == 1 && m.Runs == 0 && m.MemoryPeakP90Bytes != nil && *m.MemoryPeakP90Bytes > 0, "the profile has the model %+v", m)
		throughput[m.Model] = value
	}
	ratio := throughput[fleet.H100.Label] / throughput[fleet.A100.Label]
	story.Require(ratio > 3 && ratio < 5, "the profile has the throughput %v, want 4 times as much on %s", throughput, fleet.H100.Label)
}
