package trial

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
	"plimsoll.dev/plimsoll/operator/internal/policies/jobusage"
	"plimsoll.dev/plimsoll/operator/internal/policies/profile"
	"plimsoll.dev/plimsoll/operator/internal/policies/trial"
)

// measureCopies measures the copies that ended, adds the results to the profile, and deletes the
// copies. An error means that a copy could not be measured yet; the others are.
func (r *Reconciler) measureCopies(ctx context.Context, t *trialRun, models []string) error {
	limited, cancel := context.WithTimeout(ctx, min(queryTimeout, t.state.Remaining()))
	defer cancel()
	var measured []string
	var failed error
	for _, model := range models {
		if err := r.measureCopy(ctx, limited, t, model); err != nil {
			failed = errors.Join(failed, fmt.Errorf("measure the copy for %s: %w", model, err))
			continue
		}
		measured = append(measured, model)
	}
	if len(measured) == 0 {
		return failed
	}
	err := r.patchStatus(ctx, t.policy, func(status *v1alpha1.TrialPolicyStatus) {
		trial.EndCopies(status, string(t.wl.UID), measured)
	})
	if err != nil {
		return errors.Join(failed, err)
	}
	for _, model := range measured {
		if job := t.copies[model]; job != nil {
			failed = errors.Join(failed, r.delete(ctx, job))
		}
	}
	return failed
}

// measureCopy adds what the copy for a model used to the profile. The queries have the limited
// context.
func (r *Reconciler) measureCopy(ctx, limited context.Context, t *trialRun, model string) error {
	run, err := r.measure(limited, t, model)
	if err != nil {
		return err
	}
	if len(run.Models) == 0 || profile.IsCounted(&t.profile.Status, run.UID, run.End) {
		return nil
	}
	err = jobusage.Add(ctx, r.client, t.profile, t.key, run, &t.policy.Spec.Profiles)
	if err != nil && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return fmt.Errorf("write JobProfile %s/%s: %w", t.profile.Namespace, t.profile.Name, err)
	}
	return nil
}

// measure returns what the copy for a model used. The run has no models if the copy is gone, did not
// run on a cluster, or failed before its deadline.
func (r *Reconciler) measure(ctx context.Context, t *trialRun, model string) (profile.Run, error) {
	job, wl, progress := t.copies[model], t.workloads[model], t.state.Copies[model]
	if job == nil || wl == nil || progress.Started.IsZero() || wl.Status.ClusterName == nil {
		return profile.Run{}, nil
	}
	if reason := failureOf(job); reason != "" {
		log.FromContext(ctx).Info("A copy failed and is not measured", "model", model, "copy", job.Name, "reason", reason)
		return profile.Run{}, nil
	}
	end := progress.End(t.policy)
	querier, info, unusable, err := hubstate.Source(ctx, r.client, r.sources, t.policy.Spec.SourceRef.Name)
	if err != nil || unusable != nil {
		return profile.Run{}, errors.Join(err, unusable)
	}
	members, err := hubstate.ManagedClusters(ctx, r.client)
	if err != nil {
		return profile.Run{}, err
	}
	duration := end.Sub(progress.Started)
	results, err := jobusage.Measure(ctx, jobusage.Source{Querier: querier, Info: info, Members: members}, jobusage.Job{
		Namespace: job.Namespace, OwnerKind: "Job", OwnerName: job.Name, Cluster: *wl.Status.ClusterName, End: end, Duration: duration,
	}, profile.TrialQueries(duration, t.policy.Spec.ThroughputQuery, model))
	if err != nil {
		return profile.Run{}, err
	}
	run := profile.NewTrial(string(job.UID), end, results)
	if v, ok := run.Models[model][v1alpha1.QuantityThroughput]; ok && !profile.IsOnScale(v1alpha1.QuantityThroughput, v) {
		log.FromContext(ctx).Info("The throughput of a copy is 0 or out of range and is not added; check throughputQuery of the policy", "model", model, "copy", job.Name, "throughput", v, "policy", t.policy.Name)
	}
	if _, ok := run.Models[model]; !ok {
		log.FromContext(ctx).Info("A copy has no samples of its model", "model", model, "copy", job.Name, "cluster", *wl.Status.ClusterName, "models", slices.Sorted(maps.Keys(run.Models)))
	}
	return run, nil
}

// failureOf returns the reason why a copy failed; empty if it ran until its end or its deadline. A
// copy that fails says little about the job: it may have ended in its first second.
func failureOf(job *batchv1.Job) string {
	for _, c := range job.Status.Conditions {
		if c.Type == batchv1.JobFailed && c.Status == corev1.ConditionTrue && c.Reason != batchv1.JobReasonDeadlineExceeded {
			return c.Reason
		}
	}
	return ""
}
