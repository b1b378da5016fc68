package whatif

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// queueLabel names the LocalQueue of a job.
const queueLabel = "kueue.x-k8s.io/queue-name"

// minParallelism is the annotation with the smallest number of pods that a Job may start with.
const minParallelism = "kueue.x-k8s.io/job-min-parallelism"

// kinds are the kinds of jobs that Kueue manages, with how their pods are read. Fields that a manifest leaves out have
// the defaults of the kind.
var kinds = map[schema.GroupKind]func(manifest []byte) ([]kueue.PodSet, error){
	{Kind: "Pod"}:                                                as(func(o corev1.PodTemplateSpec) []kueue.PodSet { return podSets("main", 1, &o) }),
	{Group: "batch", Kind: "Job"}:                                as(func(o struct{ Spec jobSpec }) []kueue.PodSet { return podSets("main", o.Spec.pods(), o.Spec.Template) }),
	{Group: "apps", Kind: "Deployment"}:                          as(podSetsOfReplicas),
	{Group: "apps", Kind: "StatefulSet"}:                         as(podSetsOfReplicas),
	{Group: "jobset.x-k8s.io", Kind: "JobSet"}:                   as(podSetsOfJobSet),
	{Group: "leaderworkerset.x-k8s.io", Kind: "LeaderWorkerSet"}: as(podSetsOfLeaderWorkerSet),
	{Group: "ray.io", Kind: "RayCluster"}:                        as(func(o struct{ Spec rayCluster }) []kueue.PodSet { return o.Spec.podSets() }),
	{Group: "ray.io", Kind: "RayJob"}: as(func(o struct {
		Spec struct{ RayClusterSpec rayCluster }
	}) []kueue.PodSet {
		return o.Spec.RayClusterSpec.podSets()
	}),
	{Group: "ray.io", Kind: "RayService"}: as(func(o struct {
		Spec struct{ RayClusterConfig rayCluster }
	}) []kueue.PodSet {
		return o.Spec.RayClusterConfig.podSets()
	}),
	{Group: "kubeflow.org", Kind: "PyTorchJob"}: as(func(o struct {
		Spec struct{ PytorchReplicaSpecs roles }
	}) []kueue.PodSet {
		return o.Spec.PytorchReplicaSpecs.podSets()
	}),
	{Group: "kubeflow.org", Kind: "TFJob"}: as(func(o struct {
		Spec struct{ TFReplicaSpecs roles }
	}) []kueue.PodSet {
		return o.Spec.TFReplicaSpecs.podSets()
	}),
	{Group: "kubeflow.org", Kind: "XGBoostJob"}: as(func(o struct {
		Spec struct{ XGBReplicaSpecs roles }
	}) []kueue.PodSet {
		return o.Spec.XGBReplicaSpecs.podSets()
	}),
	{Group: "kubeflow.org", Kind: "PaddleJob"}: as(func(o struct {
		Spec struct{ PaddleReplicaSpecs roles }
	}) []kueue.PodSet {
		return o.Spec.PaddleReplicaSpecs.podSets()
	}),
	{Group: "kubeflow.org", Kind: "JAXJob"}: as(func(o struct {
		Spec struct{ JAXReplicaSpecs roles }
	}) []kueue.PodSet {
		return o.Spec.JAXReplicaSpecs.podSets()
	}),
	{Group: "kubeflow.org", Kind: "MPIJob"}: as(func(o struct {
		Spec struct{ MPIReplicaSpecs roles }
	}) []kueue.PodSet {
		return o.Spec.MPIReplicaSpecs.podSets()
	}),
	{Group: kueue.SchemeGroupVersion.Group, Kind: "Workload"}: as(func(o kueue.Workload) []kueue.PodSet { return o.Spec.PodSets }),
}

func init() { // it reads the other kinds
	kinds[schema.GroupKind{Group: "workload.codeflare.dev", Kind: "AppWrapper"}] = podSetsOfAppWrapper
}

// IsJob reports whether a manifest is of a kind that can be asked about.
func IsJob(manifest *unstructured.Unstructured) bool {
	return kinds[manifest.GroupVersionKind().GroupKind()] != nil
}

// WorkloadOf returns the Workload that Kueue would create for a job, without quota. namespace is that of a manifest
// without one. The error names the field that is wrong.
func WorkloadOf(manifest *unstructured.Unstructured, namespace string) (*kueue.Workload, error) {
	kind, job := strings.ToLower(manifest.GetKind()), cmp.Or(manifest.GetName(), manifest.GetGenerateName())
	podSets, err := podSetsOf(manifest)
	if err != nil {
		return nil, fmt.Errorf("%s/%s: %w", kind, job, err)
	}
	wl := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: cmp.Or(manifest.GetNamespace(), namespace), Name: kind + "-" + job, Annotations: manifest.GetAnnotations(),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: manifest.GetAPIVersion(), Kind: manifest.GetKind(), Name: job}}},
		Spec: kueue.WorkloadSpec{QueueName: kueue.LocalQueueName(manifest.GetLabels()[queueLabel]), PodSets: podSets, PriorityClassRef: priorityClassOf(manifest, podSets)},
	}
	if least, err := strconv.ParseInt(manifest.GetAnnotations()[minParallelism], 10, 32); err == nil && manifest.GetKind() == "Job" {
		wl.Spec.PodSets[0].MinCount = new(int32(least))
	}
	if manifest.GetKind() == "Workload" {
		queue, _, _ := unstructured.NestedString(manifest.Object, "spec", "queueName")
		wl.Name, wl.OwnerReferences, wl.Spec.QueueName = job, manifest.GetOwnerReferences(), kueue.LocalQueueName(queue)
		if priority, isSet, _ := unstructured.NestedInt64(manifest.Object, "spec", "priority"); isSet {
			wl.Spec.Priority = new(int32(priority)) //nolint:gosec // the API server bounds it
		}
	}
	return wl, nil
}

func podSetsOf(manifest *unstructured.Unstructured) ([]kueue.PodSet, error) {
	read := kinds[manifest.GroupVersionKind().GroupKind()]
	if read == nil {
		var names []string
		for k := range kinds {
			names = append(names, k.Kind)
		}
		slices.Sort(names)
		return nil, fmt.Errorf("the pods of a %s are not known from its manifest: submit it suspended, and ask about its Workload; known are %s", manifest.GetKind(), strings.Join(names, ", "))
	}
	text, err := manifest.MarshalJSON()
	if err != nil {
		return nil, err
	}
	podSets, err := read(text)
	if err != nil {
		return nil, err
	}
	podSets = slices.DeleteFunc(podSets, func(p kueue.PodSet) bool { return p.Count == 0 })
	if len(podSets) == 0 {
		return nil, errors.New("has no pods")
	}
	for i := range podSets {
		switch p := &podSets[i]; {
		case p.Count < 0:
			return nil, fmt.Errorf("the number of pods %s must not be negative, is %d", p.Name, p.Count)
		case len(p.Template.Spec.Containers) == 0:
			return nil, fmt.Errorf("the template of pods %s must have containers", p.Name)
		default:
			setRequests(&p.Template.Spec)
			p.TopologyRequest = cmp.Or(p.TopologyRequest, topologyOf(p.Template.Annotations))
		}
	}
	return podSets, nil
}

// topologyOf reads the annotations of a pod template that Kueue reads; nil = there are none.
func topologyOf(annotations map[string]string) *kueue.PodSetTopologyRequest {
	text := func(name string) *string {
		if value, ok := annotations[name]; ok {
			return &value
		}
		return nil
	}
	r := &kueue.PodSetTopologyRequest{Required: text(kueue.PodSetRequiredTopologyAnnotation), Preferred: text(kueue.PodSetPreferredTopologyAnnotation),
		PodSetSliceRequiredTopology: text(kueue.PodSetSliceRequiredTopologyAnnotation)}
	if size, err := strconv.ParseInt(annotations[kueue.PodSetSliceSizeAnnotation], 10, 32); err == nil {
		r.PodSetSliceSize = new(int32(size))
	}
	if r.Required == nil && r.Preferred == nil && r.PodSetSliceRequiredTopology == nil {
		return nil
	}
	return r
}

// jobSpec is that of a batch/v1 Job.
type jobSpec struct {
	Parallelism, Completions *int32
	Template                 *corev1.PodTemplateSpec
}

// pods are those that run at once.
func (s jobSpec) pods() int32 {
	parallelism := ptr.Deref(s.Parallelism, 1)
	return min(parallelism, ptr.Deref(s.Completions, parallelism))
}

// replicated are pods of one template.
type replicated struct {
	Replicas *int32
	Template *corev1.PodTemplateSpec
}

func podSetsOfReplicas(o struct{ Spec replicated }) []kueue.PodSet {
	return podSets("main", ptr.Deref(o.Spec.Replicas, 1), o.Spec.Template)
}

func podSetsOfJobSet(o struct {
	Spec struct {
		ReplicatedJobs []struct {
			Name     string
			Replicas *int32
			Template struct{ Spec jobSpec }
		}
	}
}) (all []kueue.PodSet) {
	for _, r := range o.Spec.ReplicatedJobs {
		all = append(all, podSets(r.Name, times(ptr.Deref(r.Replicas, 1), r.Template.Spec.pods()), r.Template.Spec.Template)...)
	}
	return all
}

// podSetsOfLeaderWorkerSet are the pods of all groups. Without a template of their own, leaders are as workers.
func podSetsOfLeaderWorkerSet(o struct {
	Spec struct {
		Replicas             *int32
		LeaderWorkerTemplate struct {
			Size                           *int32
			LeaderTemplate, WorkerTemplate *corev1.PodTemplateSpec
		}
	}
}) []kueue.PodSet {
	t, groups := o.Spec.LeaderWorkerTemplate, ptr.Deref(o.Spec.Replicas, 1)
	workers := times(groups, ptr.Deref(t.Size, 1))
	if t.LeaderTemplate == nil {
		return podSets("worker", workers, t.WorkerTemplate)
	}
	leaders := podSets("leader", groups, t.LeaderTemplate)
	if workers == groups {
		return leaders
	}
	return append(leaders, podSets("worker", workers-groups, t.WorkerTemplate)...)
}

type rayCluster struct {
	HeadGroupSpec    struct{ Template *corev1.PodTemplateSpec }
	WorkerGroupSpecs []struct {
		replicated
		GroupName  string
		NumOfHosts *int32
	}
}

func (c rayCluster) podSets() []kueue.PodSet {
	all := podSets("head", 1, c.HeadGroupSpec.Template)
	for _, g := range c.WorkerGroupSpecs {
		all = append(all, podSets(g.GroupName, times(ptr.Deref(g.Replicas, 1), ptr.Deref(g.NumOfHosts, 1)), g.Template)...)
	}
	return all
}

// roles are the pods of Kubeflow's jobs.
type roles map[string]replicated

func (r roles) podSets() (all []kueue.PodSet) {
	for _, role := range slices.Sorted(maps.Keys(r)) {
		all = append(all, podSets(role, ptr.Deref(r[role].Replicas, 1), r[role].Template)...)
	}
	return all
}

// podSetsOfAppWrapper are those of the wrapped objects. An object of another kind, such as a Service, has none, unless the
// AppWrapper says which.
func podSetsOfAppWrapper(manifest []byte) (all []kueue.PodSet, err error) {
	var o struct {
		Spec struct {
			Components []struct {
				Template map[string]any
				PodSets  []any
			}
		}
	}
	if err := unmarshal(manifest, &o); err != nil {
		return nil, err
	}
	for i, component := range o.Spec.Components {
		wrapped := &unstructured.Unstructured{Object: component.Template}
		if !IsJob(wrapped) && len(component.PodSets) == 0 {
			continue
		}
		podSets, err := podSetsOf(wrapped)
		if err != nil {
			return nil, fmt.Errorf("spec.components[%d].template: %w", i, err)
		}
		for _, p := range podSets {
			p.Name = kueue.NewPodSetReference(fmt.Sprintf("%s-%d", p.Name, i))
			all = append(all, p)
		}
	}
	return all, nil
}

// as reads manifests of one type.
func as[T any](read func(o T) []kueue.PodSet) func(manifest []byte) ([]kueue.PodSet, error) {
	return func(manifest []byte) ([]kueue.PodSet, error) {
		var o T
		if err := unmarshal(manifest, &o); err != nil {
			return nil, err
		}
		return read(o), nil
	}
}

func unmarshal(manifest []byte, into any) error {
	err := json.Unmarshal(manifest, into)
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err
	}
	fields := strings.Split(wrong.Field, ".")
	for i, f := range fields {
		fields[i] = strings.ToLower(f[:min(1, len(f))]) + f[min(1, len(f)):]
	}
	return fmt.Errorf("%s: must be of type %s, not %s", strings.Join(fields, "."), wrong.Type, wrong.Value)
}

// times multiplies numbers of pods. A negative factor gives a negative number, and too many are the largest number.
func times(a, b int32) int32 {
	if a < 0 || b < 0 {
		return -1
	}
	return int32(min(int64(a)*int64(b), math.MaxInt32)) //nolint:gosec // bounded
}

// podSets is a list of one pod set.
func podSets(name string, count int32, template *corev1.PodTemplateSpec) []kueue.PodSet {
	return []kueue.PodSet{{Name: kueue.NewPodSetReference(cmp.Or(strings.ToLower(name), string(kueue.DefaultPodSetName))), Count: count, Template: ptr.Deref(template, corev1.PodTemplateSpec{})}}
}

// setRequests sets requests that only limits state, as an API server does.
func setRequests(spec *corev1.PodSpec) {
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			r := &containers[i].Resources
			requests := corev1.ResourceList{}
			maps.Copy(requests, r.Limits)
			maps.Copy(requests, r.Requests)
			r.Requests = requests
		}
	}
}
