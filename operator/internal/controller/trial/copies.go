package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/policies/trial"
)

// checkOwner owns the entries of the operator's checks.
const checkOwner = client.FieldOwner("plimsoll-gate")

// reserve counts the copies in the status of the policy, before they are created.
func (r *Reconciler) reserve(ctx context.Context, t *trialRun, models []string) error {
	return r.patchStatus(ctx, t.policy, func(status *v1alpha1.TrialPolicyStatus) {
		trial.Begin(status, v1alpha1.RunningTrial{WorkloadUID: string(t.wl.UID), Namespace: t.wl.Namespace, Workload: t.wl.Name, Profile: t.key.Name, Models: models}, r.now())
	})
}

// patchStatus changes the status of a policy as it was read. It returns a conflict if the policy
// changed since.
func (r *Reconciler) patchStatus(ctx context.Context, p *v1alpha1.TrialPolicy, change func(*v1alpha1.TrialPolicyStatus)) error {
	changed := p.DeepCopy()
	change(&changed.Status)
	return r.client.Status().Patch(ctx, changed, client.MergeFromWithOptions(p, client.MergeFromWithOptimisticLock{}))
}

// create creates the copies for models. A copy that exists already is of an earlier attempt.
func (r *Reconciler) create(ctx context.Context, t *trialRun, models []string) error {
	for _, model := range models {
		i := slices.IndexFunc(t.policy.Spec.Models, func(m v1alpha1.TrialModel) bool { return m.Name == model })
		if i < 0 {
			return fmt.Errorf("TrialPolicy %s does not have the model %s any more", t.policy.Name, model)
		}
		job := trial.NewCopy(t.job, t.wl, t.policy, t.policy.Spec.Models[i])
		if err := r.client.Create(ctx, job); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("the copy for %s could not be created: %w", model, err)
		}
	}
	return nil
}

// end deletes the copies of a Workload that has no check to decide, or does not exist any more, and
// ends its trial in the status of its policy.
func (r *Reconciler) end(ctx context.Context, workload types.NamespacedName) error {
	if err := r.deleteCopies(ctx, workload); err != nil {
		return err
	}
	policies := &v1alpha1.TrialPolicyList{}
	if err := r.client.List(ctx, policies); err != nil {
		return fmt.Errorf("list TrialPolicies: %w", err)
	}
	isEnded := func(t v1alpha1.RunningTrial) bool {
		return t.Namespace == workload.Namespace && t.Workload == workload.Name
	}
	for i := range policies.Items {
		p := &policies.Items[i]
		if !slices.ContainsFunc(p.Status.Trials, isEnded) {
			continue
		}
		if err := r.patchStatus(ctx, p, func(status *v1alpha1.TrialPolicyStatus) { trial.End(status, isEnded) }); err != nil {
			return err
		}
	}
	return nil
}

// deleteCopies deletes the copies that a Workload of this name owns. An operator without --trials may
// not delete them: they end at their deadline, and with the Workload.
func (r *Reconciler) deleteCopies(ctx context.Context, workload types.NamespacedName) error {
	if !r.enabled {
		return nil
	}
	list := &batchv1.JobList{}
	if err := r.client.List(ctx, list, client.InNamespace(workload.Namespace), client.HasLabels{v1alpha1.TrialOfLabel}); err != nil {
		return fmt.Errorf("list copies: %w", err)
	}
	var failed []error
	for i := range list.Items {
		job := &list.Items[i]
		if slices.Contains(workloadOfCopy(ctx, job), reconcile.Request{NamespacedName: workload}) && job.DeletionTimestamp.IsZero() {
			failed = append(failed, r.delete(ctx, job))
		}
	}
	return errors.Join(failed...)
}

// delete deletes a copy and its pods.
func (r *Reconciler) delete(ctx context.Context, job *batchv1.Job) error {
	err := r.client.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: &job.UID})
	if err := client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("delete copy %s/%s: %w", job.Namespace, job.Name, err)
	}
	return nil
}

// patchOperation is an operation of a JSON patch, RFC 6902.
type patchOperation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// writeCheck sets state and message of the entry, at the version of the Workload that was read.
func (r *Reconciler) writeCheck(ctx context.Context, t *trialRun, state kueue.CheckState, message string) error {
	if t.entry.State == state && (t.entry.Message == message || message == "") {
		return nil
	}
	i := slices.IndexFunc(t.wl.Status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool { return c.Name == t.entry.Name })
	path := fmt.Sprintf("/status/admissionChecks/%d/", i)
	patch := []patchOperation{{"replace", "/metadata/resourceVersion", t.wl.ResourceVersion}, {"add", path + "message", message}}
	if t.entry.State != state {
		patch = append(patch, patchOperation{"add", path + "state", state}, patchOperation{"add", path + "lastTransitionTime", metav1.NewTime(r.now())})
	}
	text, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	patched := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: t.wl.Namespace, Name: t.wl.Name}}
	if err := r.client.Status().Patch(ctx, patched, client.RawPatch(types.JSONPatchType, text), checkOwner); err != nil {
		return fmt.Errorf("write check %s: %w", t.entry.Name, err)
	}
	return nil
}
