//go:build e2e && long

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// The copies run in the queue gpu, which has a flavor for each model. A step takes four times as long
// on A100 as on H100, by the query.
const trialPolicyYAML = `
apiVersion: plimsoll.dev/v1alpha1
kind: TrialPolicy
metadata: {name: lab}
spec:
  sourceRef: {name: thanos}
  queueName: gpu
  priorityClassName: low
  models:
  - {name: NVIDIA-H100-80GB-HBM3, nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}}
  - {name: NVIDIA-A100-SXM4-80GB, nodeSelector: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}}
  runSeconds: 30
  waitSeconds: 240
  throughputQuery: >-
    max by ($cluster_label) (
      last_over_time(owner_model:plimsoll_utilization:avg{$cluster_label="$cluster", namespace="$namespace", owner_kind="$owner_kind", owner_name="$owner_name", model="NVIDIA-A100-SXM4-80GB"}[1m]) * 0 + 5
      or last_over_time(owner_model:plimsoll_utilization:avg{$cluster_label="$cluster", namespace="$namespace", owner_kind="$owner_kind", owner_name="$owner_name", model="NVIDIA-H100-80GB-HBM3"}[1m]) * 0 + 20)
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: trial}
spec:
  controllerName: plimsoll.dev/trial
  parameters: {apiGroup: plimsoll.dev, kind: TrialPolicy, name: lab}
`

// preferFastestModel orders clusters by the number of devices of the job's fastest model: cluster2
// has the most H100s. It has the fewest devices of all models, so that a job which may use any model
// does not go there without the query.
const preferFastestModel = `{"spec": {"profiles": {}, "queries": {"preference":
  "sum by ($cluster_label) (cluster_resource_model:plimsoll_devices:sum{resource=\"$resource\", model=\"$profile_best_model\"})"}}}`

// A job of 8 GPUs waits until copies of it ran for 30 s on both models. The operator is killed while
// they run. The profile of the job then knows both models, the job runs on the cluster with the most
// devices of the faster one, and no copy is left.
func TestTrialOfAnUnknownJob(t *testing.T) {
	ctx := testContext(t, 6*time.Minute)
	enableTrials(ctx, t)
	createPriorities(ctx, t)
	if err := lab.Hub.Apply(ctx, trialPolicyYAML); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		deleteObjects(t, "-n="+fleet.Namespace, "localqueue/trials", "jobprofile/tried")
		deleteObjects(t, "clusterqueue/trials", "admissioncheck/trial", "trialpolicy/lab")
	})
	kubectl(ctx, t, "patch", "placementgate", "gpu", "--type=merge", "-p", preferFastestModel)
	t.Cleanup(func() {
		cleanUp(t, func(ctx context.Context) error {
			_, err := lab.Hub.Kubectl(ctx, "", "patch", "placementgate", "gpu", "--type=merge", "-p", `{"spec": {"profiles": null, "queries": {"preference": null}}}`)
			return err
		})
	})
	queue{name: "trials", hub: 64, worker: 256, checks: []string{"plimsoll", "trial", "multikueue"}}.create(ctx, t)
	job := fleet.Job{Name: "tried", Model: fleet.H100, GPUs: 4, Pods: 2, Queue: "trials"}.Object()
	job.Spec.Template.Spec.NodeSelector = nil
	job.Spec.Template.Labels = map[string]string{v1alpha1.TrialLabel: "true", v1alpha1.ProfileLabel: "tried", "app": "train"}
	start := time.Now()
	if err := lab.Hub.Client.Create(ctx, job); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteJob(t, "tried") })

	await(ctx, t, "a copy on both models to run", func(ctx context.Context) error {
		running, err := runningCopies(ctx)
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
	if cluster != "cluster2" {
		t.Errorf("the job runs on %s, want cluster2, which has the most devices of its fastest model", cluster)
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

// enableTrials gives the operator the permissions of config/trials and the flag, until the end of
// the test.
func enableTrials(ctx context.Context, t *testing.T) {
	t.Helper()
	role := filepath.Join("..", "..", "config", "trials", "role.yaml")
	kubectl(ctx, t, "apply", "-f", role)
	if err := errors.Join(lab.StopOperator(), lab.StartOperator(ctx, "--trials")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cleanUp(t, func(ctx context.Context) error {
			err := errors.Join(lab.StopOperator(), lab.StartOperator(ctx))
			_, failed := lab.Hub.Kubectl(ctx, "", "delete", "-f", role)
			return errors.Join(err, failed)
		})
	})
}

// trialMessage returns state and message of the job's check for trials.
func trialMessage(ctx context.Context) string {
	wl, err := lab.Workload(ctx, "tried")
	if err != nil || wl == nil {
		return fmt.Sprint("no Workload: ", err)
	}
	for _, check := range wl.Status.AdmissionChecks {
		if check.Name == "trial" {
			return string(check.State) + ": " + check.Message
		}
	}
	return "no check"
}

// copies returns the copies of jobs on a cluster.
func copies(ctx context.Context, c *fleet.Cluster) ([]batchv1.Job, error) {
	list := &batchv1.JobList{}
	err := c.Client.List(ctx, list, client.InNamespace(fleet.Namespace), client.HasLabels{v1alpha1.TrialOfLabel})
	return list.Items, err
}

// runningCopies returns the models and clusters of copies with an active pod.
func runningCopies(ctx context.Context) ([]string, error) {
	var running []string
	for _, w := range lab.Workers {
		jobs, err := copies(ctx, w)
		if err != nil {
			return nil, err
		}
		for i := range jobs {
			if jobs[i].Status.Active > 0 {
				running = append(running, jobs[i].Spec.Template.Spec.NodeSelector["nvidia.com/gpu.product"]+" on "+w.Name)
			}
		}
	}
	return running, nil
}

// copiesAnywhere returns the copies, and the Workloads of copies, on the hub and all workers.
func copiesAnywhere(ctx context.Context) ([]string, error) {
	var left []string
	for _, c := range append([]*fleet.Cluster{lab.Hub}, lab.Workers...) {
		jobs, err := copies(ctx, c)
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
