//go:build e2e && long

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// A job of 8 GPUs waits until copies of it ran for 30 s on both models. The operator is killed while
// they run. The profile of the job then knows both models, the job runs on the cluster with the most
// devices of the faster one, and no copy is left.
func TestTrialOfAnUnknownJob(t *testing.T) {
	ctx := testContext(t, 6*time.Minute)
	t.Cleanup(func() {
		deleteObjects(t, "-n="+fleet.Namespace, "jobprofile/tried")
		cleanUp(t, lab.DeleteTrialQueue)
	})
	if err := lab.CreateTrialQueue(ctx); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	submit(ctx, t, fleet.TriedJob("tried"))

	await(ctx, t, "a copy on both models to run", func(ctx context.Context) error {
		running, err := lab.RunningTrials(ctx)
		if err == nil && len(running) != 2 {
			err = fmt.Errorf("running copies: %v; check: %s", running, trialMessage(ctx))
		}
		return err
	})
	t.Logf("the copies run %s after the submission: %s", time.Since(start).Round(time.Second), trialMessage(ctx))
	if v, err := lab.View(ctx, "tried"); err != nil || len(v.Copies) > 0 || len(v.Nominated) > 0 {
		t.Errorf("the job does not wait for its trial: %+v, %v", v, err)
	}
	if err := errors.Join(lab.Programs().End(fleet.Operator, syscall.SIGKILL), lab.Programs().Restart(ctx, fleet.Operator)); err != nil {
		t.Fatal(err)
	}

	cluster := awaitRunning(ctx, t, "tried")
	t.Logf("the job runs on %s %s after its submission: %s", cluster, time.Since(start).Round(time.Second), trialMessage(ctx))
	if cluster != fleet.FastestModelCluster {
		t.Errorf("the job runs on %s, want %s, which has the most devices of its fastest model", cluster, fleet.FastestModelCluster)
	}
	if message := trialMessage(ctx); !strings.HasPrefix(message, "Ready: the trial has ended") {
		t.Errorf("check %s", message)
	}
	await(ctx, t, "the copies to be deleted on all clusters", func(ctx context.Context) error {
		left, err := copiesAnywhere(ctx)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("copies %v", left)
		}
		return err
	})
	text := kubectl(ctx, t, "get", "jobprofile", "tried", "-n", fleet.Namespace, "-o", "json")
	p := v1alpha1.JobProfile{}
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	throughput := map[string]float64{}
	for _, m := range p.Status.Models {
		value, err := strconv.ParseFloat(m.ThroughputP50, 64)
		if err != nil {
			t.Error(err)
		}
		throughput[m.Model] = value
		if m.Trials != 1 || m.Runs != 0 || m.MemoryPeakP90Bytes == nil || *m.MemoryPeakP90Bytes == 0 {
			t.Errorf("model %+v", m)
		}
	}
	t.Logf("throughput by model: %v", throughput)
	if ratio := throughput[fleet.H100.Label] / throughput[fleet.A100.Label]; !(ratio > 3 && ratio < 5) { // also true for NaN
		t.Errorf("throughput %v, want 4 times as much on %s", throughput, fleet.H100.Label)
	}
}

// trialMessage returns state and message of the job's check for trials, or the error.
func trialMessage(ctx context.Context) string {
	message, err := lab.TrialMessage(ctx, "tried")
	if err != nil {
		return err.Error()
	}
	return message
}

// copiesAnywhere returns the copies, and the Workloads of copies, on the hub and all workers.
func copiesAnywhere(ctx context.Context) ([]string, error) {
	var left []string
	for _, c := range append([]*fleet.Cluster{lab.Hub}, lab.Workers...) {
		jobs, err := c.TrialCopies(ctx)
		if err != nil {
			return nil, err
		}
		for i := range jobs {
			left = append(left, c.Name+"/"+jobs[i].Name)
		}
		workloads := &kueue.WorkloadList{}
		if err := c.Client.List(ctx, workloads, client.InNamespace(fleet.Namespace)); err != nil {
			return nil, err
		}
		for i := range workloads.Items {
			if sets := workloads.Items[i].Spec.PodSets; len(sets) == 1 && sets[0].Template.Labels[v1alpha1.TrialOfLabel] != "" {
				left = append(left, c.Name+"/"+workloads.Items[i].Name)
			}
		}
	}
	return left, nil
}
