package fleet

import (
	"context"
	"errors"
	"path/filepath"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	plimsoll "plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// trialsYAML is a TrialPolicy with its check, and a flavor that states no model. The copies run in the
// queue gpu, which has a flavor for each model. A step takes four times as long on A100 as on H100, by
// the query.
const trialsYAML = `
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

const anyModelYAML = `
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: any-model}
`

// preferFastestModel orders clusters by the share of their devices that are of the job's fastest model: cluster2 has only
// H100s, also while one of its exporters does not respond. It has the fewest devices of all models, so that a job which may
// use any model does not go there without the query.
const preferFastestModel = `{"profiles": {}, "queries": {"preference":
  "sum by ($cluster_label) (cluster_resource_model:plimsoll_devices:sum{resource=\"$resource\", model=\"$profile_best_model\"}) / on ($cluster_label) cluster_resource:plimsoll_devices:sum{resource=\"$resource\"}"}}`

// FastestModelCluster is the cluster with the largest share of devices of the model that is faster in trials.
const FastestModelCluster = "cluster2"

// TrialCheck is the AdmissionCheck of CreateTrialQueue.
const TrialCheck = "trial"

// CreateTrialQueue restarts the operator with trials, and creates the queue "trials" whose jobs are
// tried on H100 and A100 GPUs and then prefer the faster model. DeleteTrialQueue undoes all.
func (f *Fleet) CreateTrialQueue(ctx context.Context) error {
	if _, err := f.Hub.Kubectl(ctx, "", "apply", "-f", f.trialRole()); err != nil {
		return err
	}
	if err := errors.Join(f.StopOperator(), f.StartOperator(ctx, "--trials")); err != nil {
		return err
	}
	if err := f.CreatePriorities(ctx); err != nil {
		return err
	}
	if err := f.applyEverywhere(ctx, anyModelYAML); err != nil {
		return err
	}
	if err := f.Hub.Apply(ctx, trialsYAML); err != nil {
		return err
	}
	if err := f.PatchGate(ctx, preferFastestModel); err != nil {
		return err
	}
	return f.CreateQueue(ctx, GPUQueue{Name: "trials", Hub: 64, Worker: 256, Checks: []string{"plimsoll", TrialCheck, "multikueue"}, Flavors: []string{"any-model"}})
}

// DeleteTrialQueue deletes the objects of CreateTrialQueue, and restarts the operator without trials.
func (f *Fleet) DeleteTrialQueue(ctx context.Context) error {
	if err := f.DeleteQueue(ctx, "trials"); err != nil {
		return err
	}
	if err := f.deleteEverywhere(ctx, "resourceflavor/any-model"); err != nil {
		return err
	}
	if err := f.PatchGate(ctx, `{"profiles": null, "queries": {"preference": null}}`); err != nil {
		return err
	}
	if _, err := f.Hub.Kubectl(ctx, "", "delete", "--ignore-not-found", "admissioncheck/"+TrialCheck, "trialpolicy/lab"); err != nil {
		return err
	}
	if err := f.DeletePriorities(ctx); err != nil {
		return err
	}
	if err := errors.Join(f.StopOperator(), f.StartOperator(ctx)); err != nil {
		return err
	}
	_, err := f.Hub.Kubectl(ctx, "", "delete", "--ignore-not-found", "-f", f.trialRole())
	return err
}

func (f *Fleet) trialRole() string {
	return filepath.Join(f.opts.Root, "config", "trials", "role.yaml")
}

// TriedJob returns a job of 8 GPUs of any model that is tried before it runs.
func TriedJob(name string) Job {
	return Job{Name: name, GPUs: 4, Pods: 2, Queue: "trials", PodLabels: map[string]string{plimsoll.TrialLabel: "true", plimsoll.ProfileLabel: name, "app": "train"}}
}

// TrialMessage returns state and message of the job's check for trials.
func (f *Fleet) TrialMessage(ctx context.Context, job string) (string, error) {
	wl, err := f.Workload(ctx, job)
	if err != nil || wl == nil {
		return "no Workload", err
	}
	for _, check := range wl.Status.AdmissionChecks {
		if check.Name == TrialCheck {
			return string(check.State) + ": " + check.Message, nil
		}
	}
	return "no check", nil
}

// TrialCopies returns the copies of jobs for trials on a cluster.
func (c *Cluster) TrialCopies(ctx context.Context) ([]batchv1.Job, error) {
	list := &batchv1.JobList{}
	err := c.Client.List(ctx, list, client.InNamespace(Namespace), client.HasLabels{plimsoll.TrialOfLabel})
	return list.Items, err
}

// RunningTrials returns the models and clusters of copies for trials with an active pod.
func (f *Fleet) RunningTrials(ctx context.Context) ([]string, error) {
	var running []string
	for _, w := range f.Workers {
		jobs, err := w.TrialCopies(ctx)
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
