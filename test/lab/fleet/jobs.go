package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
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

// Namespace and LocalQueue of the samples.
const (
	Namespace = "team-a"
	Queue     = "gpu"
)

// Job is a job with devices in the namespace of the samples.
type Job struct {
	Name     string
	Model    GPUModel      // default: any model of GPU
	GPUs     int           // or TPU chips, per pod
	Pods     int           // default 1
	Duration time.Duration // run time of each pod; default 1 hour
	Pull     time.Duration // time for which a pod is on its node and not ready
	Queue    string        // LocalQueue; default Queue
	Priority string        // WorkloadPriorityClass; default none
	Elastic  bool          // the number of pods may change while the job runs
	// PodLabels are the labels of the pod template.
	PodLabels map[string]string
	// Secret is the name of a Secret that the pods read; default none.
	Secret string
	// Resource by which the pods request the devices; default that of whole devices of the model.
	Resource corev1.ResourceName
	// Share is the memory of each GPU, in MiB, that the job requests from HAMi; default none.
	Share int64
	// TPUTopology is the topology of the slice that the job needs, such as 2x4; default none.
	TPUTopology string
	// RequiredTopology is the node label in one domain of which all pods must start; default none.
	RequiredTopology string
}

// Submit creates the job on the hub.
func (f *Fleet) Submit(ctx context.Context, j Job) error {
	return f.Hub.Client.Create(ctx, j.Object())
}

// Object returns the job as Submit creates it.
func (j Job) Object() *batchv1.Job {
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
	if j.Pull > 0 {
		annotations["pod-ready.stage.kwok.x-k8s.io/delay"] = j.Pull.String()
	}
	requests := corev1.ResourceList{
		cmp.Or(j.Resource, j.Model.resource()): *resource.NewQuantity(int64(j.GPUs), resource.DecimalSI),
		corev1.ResourceCPU:                     resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("16Gi"),
	}
	if j.Share > 0 {
		requests[HAMiMemory] = *resource.NewQuantity(j.Share, resource.DecimalSI)
	}
	if j.RequiredTopology != "" {
		annotations[kueue.PodSetRequiredTopologyAnnotation] = j.RequiredTopology
	}
	nodes := map[string]string{}
	if j.Model.Label != "" {
		nodes[j.Model.labelKey()] = j.Model.Label
	}
	if j.TPUTopology != "" {
		nodes[TPUTopologyLabel] = j.TPUTopology
	}
	var env []corev1.EnvFromSource
	if j.Secret != "" {
		env = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: j.Secret}}}}
	}
	completions := ptr.To(int32(j.Pods))
	jobAnnotations := map[string]string{}
	if j.Elastic {
		completions, jobAnnotations["kueue.x-k8s.io/elastic-job"] = nil, "true"
	}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: j.Name, Namespace: Namespace, Labels: labels, Annotations: jobAnnotations},
		Spec: batchv1.JobSpec{
			Parallelism: ptr.To(int32(j.Pods)), Completions: completions, Suspend: ptr.To(true), BackoffLimit: ptr.To(int32(0)),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: j.PodLabels, Annotations: annotations},
				Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever,
					NodeSelector:  nodes,
					Containers: []corev1.Container{{Name: "main", Image: "registry.example/train:1", EnvFrom: env,
						Resources: corev1.ResourceRequirements{Requests: requests, Limits: requests}}},
				},
			},
		},
	}
}

// Workload returns the job's Workload on the hub, or nil if Kueue has not created
// it yet.
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

// gateCheck is the samples' AdmissionCheck that a PlacementGate decides. The names of the checks of
// other gates begin with it.
const gateCheck = "plimsoll"

// JobView is the state of a job across the fleet.
type JobView struct {
	Name         string
	Cluster      string   // worker that admitted the job; "" if none has
	Nominated    []string // workers that may admit the job
	Copies       []string // workers with a copy of its Workload or Job
	Running      []string // workers with running pods of the job
	Admitted     bool
	Evicted      bool
	Finished     bool
	CheckState   string // state of the gate's check; "" without a check
	CheckMessage string // message of the gate's check
}

// View returns the state of a job across the fleet.
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
			if check.Name == gateCheck || v.CheckState == "" && strings.HasPrefix(string(check.Name), gateCheck) {
				v.CheckState, v.CheckMessage = string(check.State), check.Message
			}
		}
	}
	for _, w := range f.Workers {
		copied, running, err := w.findCopy(ctx, job, workload)
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

// findCopy returns whether the worker has a copy of the job, and whether the copy
// runs. MultiKueue copies the Workload first. Once the worker admits the Workload,
// it copies the Job.
func (c *Cluster) findCopy(ctx context.Context, job string, workload *kueue.Workload) (copied, running bool, err error) {
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

// NodeOf returns the node of a job's first pod on a worker.
func (f *Fleet) NodeOf(ctx context.Context, job, cluster string) (string, error) {
	return f.Worker(cluster).Kubectl(ctx, "", "get", "pods", "-n", Namespace, "-l", "job-name="+job, "-o", "jsonpath={.items[0].spec.nodeName}")
}

// Await calls done every 200 ms until it returns nil. If ctx ends first, Await
// returns an error that names what and the last error of done.
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
			return fmt.Errorf("gave up waiting for %s: %w", what, errors.Join(last, context.Cause(ctx)))
		case <-tick.C:
		}
	}
}

// DeleteJob deletes a job on the hub. Kueue then deletes its copies. A job that
// does not exist is no error.
func (f *Fleet) DeleteJob(ctx context.Context, name string) error {
	return client.IgnoreNotFound(f.Hub.Client.Delete(ctx,
		&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace}}, client.PropagationPolicy(metav1.DeletePropagationBackground)))
}

func (f *Fleet) workerClient(cluster string) (client.Client, error) {
	w := f.Worker(cluster)
	if w == nil {
		return nil, fmt.Errorf("the lab has no worker %q", cluster)
	}
	return w.Client, nil
}

// SetUnschedulable cordons or uncordons a worker's node.
func (f *Fleet) SetUnschedulable(ctx context.Context, cluster, node string, unschedulable bool) error {
	worker, err := f.workerClient(cluster)
	if err != nil {
		return err
	}
	n := &corev1.Node{}
	if err := worker.Get(ctx, client.ObjectKey{Name: node}, n); err != nil {
		return err
	}
	before := n.DeepCopy()
	n.Spec.Unschedulable = unschedulable
	return worker.Patch(ctx, n, client.MergeFrom(before))
}

// LabelNode sets a label of a worker's node, or removes it if value is empty.
func (f *Fleet) LabelNode(ctx context.Context, cluster, node, key, value string) error {
	label := key + "=" + value
	if value == "" {
		label = key + "-"
	}
	_, err := f.Worker(cluster).Kubectl(ctx, "", "label", "--overwrite", "node", node, label)
	return err
}

// Occupy uses devices of a worker's node with a pod outside of Kueue's queues.
// Vacate deletes the pod.
func (f *Fleet) Occupy(ctx context.Context, cluster, node string, gpus int) error {
	worker, err := f.workerClient(cluster)
	if err != nil {
		return err
	}
	simulated := f.node(node)
	if simulated == nil {
		return fmt.Errorf("the lab has no node %q", node)
	}
	requests := corev1.ResourceList{simulated.resource: *resource.NewQuantity(int64(gpus), resource.DecimalSI)}
	return worker.Create(ctx, occupant(node, "", requests))
}

// OccupyAs requests resources of a worker's node with one of several pods outside of Kueue's queues.
// VacateAs deletes the pod.
func (f *Fleet) OccupyAs(ctx context.Context, cluster, node, name string, requests map[corev1.ResourceName]int64) error {
	worker, err := f.workerClient(cluster)
	if err != nil {
		return err
	}
	list := corev1.ResourceList{}
	for resourceName, n := range requests {
		list[resourceName] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	return worker.Create(ctx, occupant(node, name, list))
}

// VacateAs deletes the pod that OccupyAs created, if there is one.
func (f *Fleet) VacateAs(ctx context.Context, cluster, node, name string) error {
	worker, err := f.workerClient(cluster)
	if err != nil {
		return err
	}
	return client.IgnoreNotFound(worker.Delete(ctx, occupant(node, name, nil), client.GracePeriodSeconds(0)))
}

// Vacate deletes the pod that Occupy created on the node, if there is one.
func (f *Fleet) Vacate(ctx context.Context, cluster, node string) error {
	worker, err := f.workerClient(cluster)
	if err != nil {
		return err
	}
	return client.IgnoreNotFound(worker.Delete(ctx, occupant(node, "", nil), client.GracePeriodSeconds(0)))
}

// occupant returns a pod on the node. suffix distinguishes several.
func occupant(node, suffix string, requests corev1.ResourceList) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: strings.TrimSuffix("occupant-"+node+"-"+suffix, "-"), Namespace: Namespace},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main", Image: "registry.example/other:1",
			Resources: corev1.ResourceRequirements{Requests: requests, Limits: requests}}}}}
}
