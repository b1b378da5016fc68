package world

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/world/hub"
	"plimsoll.dev/plimsoll/operator/internal/world/metrics"
)

// A TrialPolicy tries jobs that agreed before they start. The operator creates copies of such a job on the hub, and
// Kueue makes a Workload for each of them. The copies are jobs of the world like all others.

const (
	// trialCheck is the name of the check for trials, and of its TrialPolicy.
	trialCheck = "trial"
	// trialPriority is that of the copies.
	trialPriority = -1000
	jobUIDLabel   = "kueue.x-k8s.io/job-uid"
	queueLabel    = "kueue.x-k8s.io/queue-name"
	// stepsMetric is the throughput that the pods of a copy report.
	stepsMetric = "train_steps_per_second"
)

// StepsQuery is the query of a TrialPolicy for the throughput of copies.
const StepsQuery = `sum by ($cluster_label) (avg_over_time(` + stepsMetric + `{$cluster_label="$cluster", namespace="$namespace", job_name="$owner_name"}[1m]))`

// stepsPerSecond is the throughput of a pod on a device model.
func stepsPerSecond(model string) float64 { return float64(len(models) - slices.Index(models, model)) }

// createTrialPolicy creates the TrialPolicy of the settings with its check.
func (w *World) createTrialPolicy() {
	if w.settings.Trial == nil {
		return
	}
	spec := *w.settings.Trial.DeepCopy()
	spec.SourceRef, spec.PriorityClassName = v1alpha1.LocalReference{Name: sourceName}, trialCheck
	w.create(&v1alpha1.TrialPolicy{ObjectMeta: metav1.ObjectMeta{Name: trialCheck}, Spec: spec})
	w.create(&kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: trialCheck}, Spec: kueue.AdmissionCheckSpec{ControllerName: v1alpha1.TrialControllerName,
		Parameters: &kueue.AdmissionCheckParametersReference{APIGroup: v1alpha1.GroupVersion.Group, Kind: "TrialPolicy", Name: trialCheck}}})
}

// tries reports whether the jobs of a queue have the check for trials.
func (s *Settings) tries(queue string) bool { return s.Trial != nil && queue != s.Trial.QueueName }

// awaitsOthers reports whether a check of another controller than the gate's is not Ready, such as one that tries the job.
func awaitsOthers(wl *kueue.Workload) bool {
	return slices.ContainsFunc([]string{"other", trialCheck}, func(name string) bool {
		c := kueuestate.FindCheck(wl, name)
		return c != nil && c.State != kueue.CheckStateReady
	})
}

// addTrialLabels marks the pods of jobs that agree to be tried, and those of copies.
func (j *Job) addTrialLabels(set *kueue.PodSet) {
	label, value := v1alpha1.TrialLabel, "true"
	if j.TrialOf != "" {
		label, value = v1alpha1.TrialOfLabel, string(j.TrialOf)
	}
	if !j.Tried && j.TrialOf == "" {
		return
	}
	if set.Template.Labels == nil {
		set.Template.Labels = map[string]string{}
	}
	set.Template.Labels[label] = value
}

// createTried creates the Job that copies are made from.
func (w *World) createTried(wl *kueue.Workload) {
	owner := wl.OwnerReferences[0]
	w.create(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: wl.Namespace, Name: owner.Name, UID: owner.UID},
		Spec: batchv1.JobSpec{Parallelism: &wl.Spec.PodSets[0].Count, Completions: &wl.Spec.PodSets[0].Count, Template: *wl.Spec.PodSets[0].Template.DeepCopy()}})
}

// removeTried deletes the Job of a job that agrees to be tried.
func (w *World) removeTried(r *Run) {
	if r.Tried {
		_ = w.objects.Remove(&batchv1.Job{}, types.NamespacedName{Namespace: r.Namespace, Name: r.Name}, "user")
	}
}

// copyChanged follows the Jobs that the operator creates and deletes.
func (w *World) copyChanged(e hub.Event, job *batchv1.Job) {
	switch of := types.UID(job.Labels[v1alpha1.TrialOfLabel]); {
	case of == "":
	case e.Type == hub.Deleted:
		if r := w.runOfCopy(job); r != nil {
			w.removeJob(r)
		}
	case e.Type == hub.Added:
		w.loop.After(w.dice.between(20*time.Millisecond, 300*time.Millisecond, "trial "+job.Name), func() { w.submitCopy(job, of) })
	}
}

// runOfCopy is the last run of a copy; nil = none.
func (w *World) runOfCopy(job *batchv1.Job) *Run {
	for _, r := range slices.Backward(w.order) {
		if r.Name == job.Name {
			return r
		}
	}
	return nil
}

// submitCopy creates the Workload of a copy that still exists.
func (w *World) submitCopy(job *batchv1.Job, of types.UID) {
	live := hub.Get[*batchv1.Job](w.objects, types.NamespacedName{Namespace: job.Namespace, Name: job.Name})
	i := slices.IndexFunc(w.order, func(r *Run) bool { return r.UID == of })
	if live == nil || live.UID != job.UID || i < 0 || w.Spec.queue(job.Labels[queueLabel]) == nil {
		return
	}
	j := *w.order[i].Job
	j.Name, j.Queue, j.Priority, j.Model = job.Name, job.Labels[queueLabel], trialPriority, job.Spec.Template.Spec.NodeSelector[modelLabel]
	j.Pods, j.MinPods, j.Limit, j.Topology, j.Reclaimable = 1, 0, false, "", false
	j.Tried, j.TrialOf = false, of
	if limit := time.Duration(*job.Spec.ActiveDeadlineSeconds) * time.Second; j.Duration >= limit {
		j.Duration, j.Behavior, j.Overdue = limit, cmp.Or(j.Behavior, Fails), true
	}
	r := w.newRun(&j)
	w.workloads++
	wl := workloadOf(&j, r.Key, r.UID)
	wl.Labels, wl.OwnerReferences[0].UID = map[string]string{jobUIDLabel: string(job.UID)}, job.UID
	w.create(wl)
}

func (s *Spec) queue(name string) *Queue {
	for i := range s.Queues {
		if s.Queues[i].Name == name {
			return &s.Queues[i]
		}
	}
	return nil
}

// endCopy writes the end of a copy to its Job.
func (w *World) endCopy(r *Run) {
	if r.TrialOf == "" {
		return
	}
	end := batchv1.JobCondition{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: w.kueue.stamp()}
	if r.Behavior == Fails {
		end.Type, end.Reason = batchv1.JobFailed, batchv1.JobReasonBackoffLimitExceeded
	}
	if r.Overdue {
		end.Reason = batchv1.JobReasonDeadlineExceeded
	}
	_, _ = hub.Update(w.objects, types.NamespacedName{Namespace: r.Namespace, Name: r.Name}, "job-controller", func(job *batchv1.Job) bool {
		job.Status.Conditions = append(job.Status.Conditions, end)
		return true
	})
}

// steps are the throughputs that the pods of copies report.
func (c *cluster) steps() (samples []metrics.Sample) {
	if c.world.settings.Trial == nil {
		return nil
	}
	for p := range c.bound.all() {
		if j := p.job.spec; p.ready && j.TrialOf != "" {
			samples = append(samples, metrics.Sample{Name: stepsMetric, Value: stepsPerSecond(p.node.pool.Model), Labels: map[string]string{"namespace": j.Namespace, "job_name": j.Name, "pod": p.name}})
		}
	}
	return samples
}

// makeTrials adds a TrialPolicy to some worlds, a queue for its copies, and jobs that agree to be tried.
func makeTrials(s *Spec) {
	g := generator{rand.New(rand.NewPCG(s.Seed, 0x74726961))} // of its own, so that the rest of a seed's world stays the same
	if !g.chance(.08) {
		return
	}
	t := &v1alpha1.TrialPolicySpec{QueueName: "trials", MinDevices: 2, RunSeconds: 60, WaitSeconds: oneOf[int32](g, 120, 300), ThroughputQuery: StepsQuery}
	quota := map[string]int64{}
	for _, model := range modelsOf(s.Clusters) {
		quota[model] = 8
		t.Models = append(t.Models, v1alpha1.TrialModel{Name: model, NodeSelector: map[string]string{modelLabel: model}})
	}
	s.Settings.Trial = t
	s.Queues = append(s.Queues, Queue{Name: t.QueueName, Nominal: quota})
	for i := range s.Jobs {
		if j := &s.Jobs[i]; (j.Kind == KindJob || j.Kind == "") && !j.Elastic {
			j.Tried = g.chance(.5)
		}
	}
}
