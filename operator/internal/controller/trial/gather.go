package trial

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
	"plimsoll.dev/plimsoll/operator/internal/policies/profile"
	"plimsoll.dev/plimsoll/operator/internal/policies/trial"
)

// trialRun is what one reconciliation knows of a trial.
type trialRun struct {
	// wl is the Workload as the cache has it, without commands.
	wl *kueue.Workload
	// entry is the Pending check to decide; nil if there is none. policyName is that of its policy.
	entry      *kueue.AdmissionCheckState
	policyName string
	// exempt is why this check does not try the job; empty = it may.
	exempt string
	// policy is nil if it does not exist.
	policy *v1alpha1.TrialPolicy
	state  trial.State
	// job is the job of the Workload; nil if the job is not tried.
	job *batchv1.Job
	// key of the job's profile, and the profile; it has no resource version if it does not exist.
	key     profile.Key
	profile *v1alpha1.JobProfile
	// copies by model, and their Workloads.
	copies    map[string]*batchv1.Job
	workloads map[string]*kueue.Workload
}

// next returns the next step.
func (t *trialRun) next() trial.Step {
	if t.exempt != "" {
		return trial.Step{Action: trial.Pass, Message: t.exempt}
	}
	return trial.Next(t.state)
}

// findCheck sets the Pending check to decide. Only the first check for trials of a Workload tries the
// job: the copies of two checks would have the same names. A job that is being evicted is not tried: its
// eviction may have to wait until all checks are Ready.
func (r *Reconciler) findCheck(ctx context.Context, t *trialRun) error {
	find := func(name string) (*kueue.AdmissionCheck, error) { return hubstate.AdmissionCheck(ctx, r.client, name) }
	checks, err := kueuestate.ChecksOf(t.wl, find)
	if err != nil {
		return err
	}
	for _, name := range checks.Trials {
		entry := kueuestate.FindCheck(t.wl, name)
		if entry.State != kueue.CheckStatePending {
			continue
		}
		check, err := find(name)
		if err != nil || check == nil {
			return err
		}
		t.entry, t.policyName, t.exempt = entry, kueuestate.TrialPolicyOf(check), ""
		switch {
		case kueuestate.IsEvicted(t.wl):
			t.exempt = "no trial: the job is being evicted"
		case name != checks.Trials[0]:
			t.exempt = "no trial: check " + checks.Trials[0] + " decides whether the job is tried"
		}
	}
	return nil
}

// gather reads what the next step depends on. After the deadline it reads no more than the policy.
func (r *Reconciler) gather(ctx context.Context, t *trialRun) error {
	t.state = trial.State{Now: r.now(), IsDisabled: !r.enabled, PolicyName: t.policyName, UID: string(t.wl.UID), Namespace: t.wl.Namespace, ReservedAt: reservedAt(t.wl)}
	policy := &v1alpha1.TrialPolicy{}
	found, err := hubstate.Find(ctx, r.client, client.ObjectKey{Name: t.policyName}, policy)
	if err != nil || !found {
		return err
	}
	t.policy, t.state.Policy = policy, policy
	if t.state.Exempt = exemption(t.wl); t.state.Exempt != "" || t.state.IsDisabled || t.state.Remaining() <= 0 {
		return nil
	}
	if t.state.Problem, err = r.problem(ctx, t); err != nil || t.state.Problem != "" && !t.state.IsRunning() {
		return err
	}
	return r.gatherJob(ctx, t)
}

func reservedAt(wl *kueue.Workload) time.Time {
	return apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved).LastTransitionTime.Time
}

// exemption states why a job is not tried; empty = it may be.
func exemption(wl *kueue.Workload) string {
	owner := metav1.GetControllerOf(wl)
	switch {
	case kueuestate.IsAdmitted(wl), wl.Status.ClusterName != nil, kueuestate.ReplacedSlice(wl) != "":
		return "the job runs already"
	case kueuestate.WasAdmitted(wl):
		return "the job ran before"
	case len(wl.Spec.PodSets) == 1 && wl.Spec.PodSets[0].Template.Labels[v1alpha1.TrialOfLabel] != "":
		return "the job is the copy of another one"
	case !hasOptedIn(wl):
		return "the job has no label " + v1alpha1.TrialLabel + ": \"true\""
	case owner == nil || owner.APIVersion != batchv1.SchemeGroupVersion.String() || owner.Kind != "Job" || len(wl.Spec.PodSets) != 1:
		return "only Jobs of batch/v1 are tried"
	}
	return ""
}

func hasOptedIn(wl *kueue.Workload) bool {
	if wl.Labels[v1alpha1.TrialLabel] == "true" {
		return true
	}
	for i := range wl.Spec.PodSets {
		if wl.Spec.PodSets[i].Template.Labels[v1alpha1.TrialLabel] == "true" {
			return true
		}
	}
	return false
}

// problem states why the policy can't try the job; empty = it can.
func (r *Reconciler) problem(ctx context.Context, t *trialRun) (string, error) {
	if _, problem, err := r.policyProblem(ctx, t.policy); err != nil || problem != "" {
		return problem, err
	}
	queue := &kueue.LocalQueue{}
	found, err := hubstate.Find(ctx, r.client, client.ObjectKey{Namespace: t.wl.Namespace, Name: t.policy.Spec.QueueName}, queue)
	switch {
	case err != nil:
		return "", err
	case !found:
		return fmt.Sprintf("LocalQueue %s does not exist in namespace %s", t.policy.Spec.QueueName, t.wl.Namespace), nil
	case apimeta.IsStatusConditionFalse(queue.Status.Conditions, kueue.LocalQueueActive):
		return fmt.Sprintf("LocalQueue %s in namespace %s is not active", t.policy.Spec.QueueName, t.wl.Namespace), nil
	}
	return "", nil
}

// gatherJob reads the job, its profile and its copies.
func (r *Reconciler) gatherJob(ctx context.Context, t *trialRun) error {
	owner, job := metav1.GetControllerOf(t.wl), &batchv1.Job{}
	found, err := hubstate.Find(ctx, r.live, client.ObjectKey{Namespace: t.wl.Namespace, Name: owner.Name}, job)
	if err != nil {
		return err
	}
	if !found || job.UID != owner.UID {
		t.state.Exempt = "Job " + owner.Name + " does not exist"
		return nil
	}
	// Users may be able to create Workloads that refer to the jobs of others.
	if job.Labels[v1alpha1.TrialLabel] != "true" && job.Spec.Template.Labels[v1alpha1.TrialLabel] != "true" {
		t.state.Exempt = "Job " + owner.Name + " has no label " + v1alpha1.TrialLabel + ": \"true\""
		return nil
	}
	if t.state.Exempt = trial.SharedState(&job.Spec.Template.Spec); t.state.Exempt != "" {
		return nil
	}
	whole := &kueue.Workload{}
	if found, err = hubstate.Find(ctx, r.live, client.ObjectKeyFromObject(t.wl), whole); err != nil {
		return err
	}
	if !found || whole.UID != t.wl.UID {
		t.state.Exempt = "the Workload does not exist"
		return nil
	}
	t.job, t.key = job, profile.KeyOf(whole)
	t.state.Profile = t.key.Name
	for _, set := range shape.FactsOf(t.wl, shape.Options{AllDevices: true}).PodSets {
		t.state.Devices += set.Devices()
	}
	for _, model := range t.policy.Spec.Models {
		if trial.Fits(&job.Spec.Template.Spec, model) {
			t.state.Fitting = append(t.state.Fitting, model.Name)
		}
	}
	t.profile = &v1alpha1.JobProfile{ObjectMeta: metav1.ObjectMeta{Namespace: t.wl.Namespace, Name: t.key.Name}}
	if _, err := hubstate.Find(ctx, r.client, client.ObjectKeyFromObject(t.profile), t.profile); err != nil {
		return err
	}
	t.state.Known = map[string]string{}
	for i := range t.profile.Status.Models {
		// The duration of runs can't be compared with the throughput of trials.
		if m := &t.profile.Status.Models[i]; m.Trials > 0 || t.policy.Spec.ThroughputQuery == "" {
			t.state.Known[m.Model] = m.ThroughputP50
		}
	}
	return r.gatherCopies(ctx, t)
}

// gatherCopies reads the copies and how far they are.
func (r *Reconciler) gatherCopies(ctx context.Context, t *trialRun) error {
	t.copies, t.workloads, t.state.Copies = map[string]*batchv1.Job{}, map[string]*kueue.Workload{}, map[string]trial.Copy{}
	copies, err := r.listCopies(ctx, t.wl.Namespace, string(t.wl.UID))
	if err != nil {
		return err
	}
	for i := range copies {
		job := &copies[i]
		if !job.DeletionTimestamp.IsZero() {
			continue
		}
		model := trial.ModelOf(job)
		t.copies[model] = job
		list := &kueue.WorkloadList{}
		if err := r.client.List(ctx, list, client.InNamespace(job.Namespace), client.MatchingLabels{jobUIDLabel: string(job.UID)}); err != nil {
			return err
		}
		c := trial.Copy{}
		if len(list.Items) > 0 {
			t.workloads[model] = &list.Items[0]
			c = progressOf(&list.Items[0])
		}
		t.state.Copies[model] = c
	}
	return nil
}

// jobUIDLabel is Kueue's label on a Workload with the UID of its job.
const jobUIDLabel = "kueue.x-k8s.io/job-uid"

// progressOf returns when the Workload of a copy was admitted and when it finished.
func progressOf(wl *kueue.Workload) trial.Copy {
	c := trial.Copy{IsQueued: true}
	if admitted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadAdmitted); admitted != nil && admitted.Status == metav1.ConditionTrue {
		c.Started = admitted.LastTransitionTime.Time
	}
	if finished := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadFinished); finished != nil && finished.Status == metav1.ConditionTrue {
		c.Ended = finished.LastTransitionTime.Time
	}
	return c
}

// listCopies returns the copies of a Workload.
func (r *Reconciler) listCopies(ctx context.Context, namespace, uid string) ([]batchv1.Job, error) {
	list := &batchv1.JobList{}
	if err := r.client.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.TrialOfLabel: uid}); err != nil {
		return nil, fmt.Errorf("list the copies of workload %s: %w", uid, err)
	}
	return list.Items, nil
}
