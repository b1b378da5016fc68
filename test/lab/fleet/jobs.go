package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Namespace and Queue of the samples.
const (
	Namespace = "team-a"
	Queue     = "gpu"
)

// Job is a GPU job of the samples' queue.
type Job struct {
	Name     string
	Model    GPUModel
	GPUs     int           // per pod
	Pods     int           // 1 by default
	Duration time.Duration // that each pod runs; an hour by default
	Queue    string        // Queue by default
	Priority string        // WorkloadPriorityClass; none by default
}

// Submit the job to the hub.
func (f *Fleet) Submit(ctx context.Context, j Job) error {
	return f.Hub.Client.Create(ctx, j.object())
}

func (j Job) object() *batchv1.Job {
	if j.Pods == 0 {
		j.Pods = 1
	}
	if j.Queue == "" {
		j.Queue = Queue
	}
	labels := map[string]string{"kueue.x-k8s.io/queue-name": j.Queue}
	if j.Priority != "" {
		labels["kueue.x-k8s.io/priority-class"] = j.Priority
	}
	annotations := map[string]string{}
	if j.Duration > 0 {
		annotations["pod-complete.stage.kwok.x-k8s.io/delay"] = j.Duration.String()
	}
	asks := corev1.ResourceList{
		GPUResource:        *resource.NewQuantity(int64(j.GPUs), resource.DecimalSI),
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("16Gi"),
	}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: j.Name, Namespace: Namespace, Labels: labels},
		Spec: batchv1.JobSpec{
			Parallelism: ptr.To(int32(j.Pods)), Completions: ptr.To(int32(j.Pods)), Suspend: ptr.To(true), BackoffLimit: ptr.To(int32(0)),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Annotations: annotations},
				Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever,
					NodeSelector:  map[string]string{"nvidia.com/gpu.product": j.Model.Label},
					Containers: []corev1.Container{{Name: "main", Image: "registry.example/train:1",
						Resources: corev1.ResourceRequirements{Requests: asks, Limits: asks}}},
				},
			},
		},
	}
}

// Workload of a job on the hub; nil while Kueue has not made it yet.
func (f *Fleet) Workload(ctx context.Context, job string) (*kueue.Workload, error) {
	list := &kueue.WorkloadList{}
	if err := f.Hub.Client.List(ctx, list, client.InNamespace(Namespace)); err != nil {
		return nil, err
	}
	for i := range list.Items {
		for _, owner := range list.Items[i].OwnerReferences {
			if owner.Kind == "Job" && owner.Name == job {
				return &list.Items[i], nil
			}
		}
	}
	return nil, nil
}

// JobView is where a job is and why.
type JobView struct {
	Name      string
	Cluster   string   // that admitted it; "" = none
	Nominated []string // clusters that may take it
	Copies    []string // workers that hold a copy: its Workload, its Job or both
	Running   []string // workers where pods of it run
	Admitted  bool
	Evicted   bool
	Finished  bool
	Gate      string // state of the gate's check
	Message   string // of the gate's check, in the operator's words
}

// View of a job across the whole fleet.
func (f *Fleet) View(ctx context.Context, job string) (JobView, error) {
	v := JobView{Name: job}
	workload, err := f.Workload(ctx, job)
	if err != nil {
		return v, err
	}
	if workload != nil {
		v.Cluster, v.Nominated = ptr.Deref(workload.Status.ClusterName, ""), workload.Status.NominatedClusterNames
		v.Admitted = meta.IsStatusConditionTrue(workload.Status.Conditions, kueue.WorkloadAdmitted)
		v.Evicted = meta.IsStatusConditionTrue(workload.Status.Conditions, kueue.WorkloadEvicted)
		v.Finished = meta.IsStatusConditionTrue(workload.Status.Conditions, kueue.WorkloadFinished)
		for _, check := range workload.Status.AdmissionChecks {
			if check.Name == "plimsoll" {
				v.Gate, v.Message = string(check.State), check.Message
			}
		}
	}
	for _, w := range f.Workers {
		copied, running, err := w.holds(ctx, job, workload)
		if err != nil {
			return v, fmt.Errorf("job %s on %s: %w", job, w.Name, err)
		}
		if copied {
			v.Copies = append(v.Copies, w.Name)
		}
		if running {
			v.Running = append(v.Running, w.Name)
		}
	}
	return v, nil
}

// holds says whether the worker has a copy of the job, and whether it runs there.
// MultiKueue copies the Workload first and the Job once that is admitted.
func (c *Cluster) holds(ctx context.Context, job string, workload *kueue.Workload) (copied, running bool, err error) {
	remote := &batchv1.Job{}
	switch err := c.Client.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: job}, remote); {
	case err == nil:
		return true, remote.Status.Active > 0 && !ptr.Deref(remote.Spec.Suspend, false), nil
	case !apierrors.IsNotFound(err):
		return false, false, err
	case workload == nil:
		return false, false, nil
	}
	err = c.Client.Get(ctx, client.ObjectKeyFromObject(workload), &kueue.Workload{})
	return err == nil, false, client.IgnoreNotFound(err)
}

// Await polls until what is asked for is so; done's error says what is missing
// and becomes the error once ctx ends.
func Await(ctx context.Context, what string, done func(context.Context) error) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		last := done(ctx)
		if last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited in vain for %s: %w", what, errors.Join(last, context.Cause(ctx)))
		case <-tick.C:
		}
	}
}

// DeleteJob from the hub, and with it its copies.
func (f *Fleet) DeleteJob(ctx context.Context, name string) error {
	return client.IgnoreNotFound(f.Hub.Client.Delete(ctx,
		&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace}}, client.PropagationPolicy(metav1.DeletePropagationBackground)))
}

// Cordon a worker's node, or lift the cordon.
func (f *Fleet) Cordon(ctx context.Context, cluster, node string, cordoned bool) error {
	w := f.Worker(cluster)
	if w == nil {
		return fmt.Errorf("the lab has no worker %q", cluster)
	}
	n := &corev1.Node{}
	if err := w.Client.Get(ctx, client.ObjectKey{Name: node}, n); err != nil {
		return err
	}
	before := n.DeepCopy()
	n.Spec.Unschedulable = cordoned
	return w.Client.Patch(ctx, n, client.MergeFrom(before))
}

// Occupy devices of a worker's node with a pod that no queue knows; it ends with
// Vacate.
func (f *Fleet) Occupy(ctx context.Context, cluster, node string, gpus int) error {
	asks := corev1.ResourceList{GPUResource: *resource.NewQuantity(int64(gpus), resource.DecimalSI)}
	return f.Worker(cluster).Client.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "occupant-" + node, Namespace: Namespace},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main", Image: "registry.example/other:1",
			Resources: corev1.ResourceRequirements{Requests: asks, Limits: asks}}}},
	})
}

// Vacate the node of what Occupy put there.
func (f *Fleet) Vacate(ctx context.Context, cluster, node string) error {
	return client.IgnoreNotFound(f.Worker(cluster).Client.Delete(ctx,
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "occupant-" + node, Namespace: Namespace}}, client.GracePeriodSeconds(0)))
}
