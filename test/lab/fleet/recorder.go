package fleet

import (
	"context"
	"math"
	"reflect"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/test/story"
)

// Recorder records what happens to the jobs of a fleet.
type Recorder struct {
	began time.Time

	mu        sync.Mutex
	record    story.Record
	workloads map[types.UID]*story.RecordedWorkload
	uids      map[string]types.UID // by key
	pods      map[types.UID]*story.RecordedPod
	clusters  map[string]bool
}

// Record records what happens to the jobs of the fleet until ctx ends. quota is that of their queue.
func (f *Fleet) Record(ctx context.Context, quota int) (*Recorder, error) {
	r := &Recorder{began: time.Now(), record: story.Record{Quota: int64(quota), Scores: map[string][]story.Recorded{}},
		workloads: map[types.UID]*story.RecordedWorkload{}, uids: map[string]types.UID{}, pods: map[types.UID]*story.RecordedPod{}, clusters: map[string]bool{}}
	for _, w := range f.Workers {
		r.clusters[w.Name] = true
	}
	jobs := cache.Options{DefaultNamespaces: map[string]cache.Config{Namespace: {}}}
	for _, w := range []struct {
		cluster *Cluster
		kind    client.Object
		options cache.Options
		record  func(client.Object, bool)
	}{
		{f.Hub, &kueue.Workload{}, jobs, r.addWorkload},
		{f.Hub, &kueue.MultiKueueCluster{}, cache.Options{}, r.addConnection},
		{f.Hub, &clusterv1alpha1.AddOnPlacementScore{}, cache.Options{}, r.addScore},
		{f.Hub, &coordinationv1.Lease{}, cache.Options{DefaultNamespaces: map[string]cache.Config{"plimsoll-system": {}}}, r.addLeader},
	} {
		if _, err := w.cluster.startCache(ctx, w.options, w.kind, w.record); err != nil {
			return nil, err
		}
	}
	for _, w := range f.Workers {
		if _, err := w.startCache(ctx, jobs, &corev1.Pod{}, func(o client.Object, deleted bool) { r.addPod(w.Name, o.(*corev1.Pod), deleted) }); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// now is the time in the record, in milliseconds.
func (r *Recorder) now() float64 { return math.Round(time.Since(r.began).Seconds()*1000) / 1000 }

// Fault adds a program that was down since a time until now.
func (r *Recorder) Fault(program string, since time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	down := math.Round(time.Since(since).Seconds()*1000) / 1000
	r.record.Faults = append(r.record.Faults, story.RecordedFault{Program: program, From: math.Round((now-down)*1000) / 1000, To: now})
}

// Loss adds a copy that was deleted behind Kueue's back.
func (r *Recorder) Loss(job, cluster string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record.Losses = append(r.record.Losses, story.RecordedLoss{Job: job, Cluster: cluster, At: r.now()})
}

// Write writes the record.
func (r *Recorder) Write(path string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.record.Write(path)
}

func (r *Recorder) addWorkload(o client.Object, deleted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	wl := o.(*kueue.Workload)
	if len(wl.OwnerReferences) == 0 {
		return
	}
	kept := r.workloads[wl.UID]
	if kept == nil {
		set := wl.Spec.PodSets[0]
		duration, _ := time.ParseDuration(set.Template.Annotations["pod-complete.stage.kwok.x-k8s.io/delay"])
		kept = &story.RecordedWorkload{Job: wl.OwnerReferences[0].Name, UID: string(wl.UID), Pods: int64(set.Count), Devices: devicesOf(&set.Template.Spec),
			Duration: duration.Seconds(), Priority: ptr.Deref(wl.Spec.Priority, 0), Elastic: wl.Annotations["kueue.x-k8s.io/elastic-job"] == "true", Replaces: string(r.uids[wl.Annotations[replacementFor]])}
		r.workloads[wl.UID], r.uids[client.ObjectKeyFromObject(wl).String()] = kept, wl.UID
		r.record.Workloads = append(r.record.Workloads, kept)
	}
	s := story.RecordedState{Inactive: !ptr.Deref(wl.Spec.Active, true), Quota: wl.Status.Admission != nil, Nominated: wl.Status.NominatedClusterNames,
		Cluster: ptr.Deref(wl.Status.ClusterName, ""), Finished: meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadFinished), Deleted: deleted}
	s.PodsReady = meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadPodsReady)
	for _, c := range wl.Status.AdmissionChecks {
		if cluster, _, _ := strings.Cut(c.Message, " "); c.Name == gateCheck && c.State == kueue.CheckStateReady && r.clusters[cluster] {
			s.Decided = cluster
		}
	}
	if c := meta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted); c != nil && c.Status == "True" {
		s.Evicted = c.Reason
	}
	if n := len(kept.States); n > 0 {
		s.At = kept.States[n-1].At
		if reflect.DeepEqual(s, kept.States[n-1]) {
			return
		}
	}
	s.At = r.now()
	kept.States = append(kept.States, s)
}

func (r *Recorder) addPod(cluster string, pod *corev1.Pod, deleted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	job := pod.Labels["batch.kubernetes.io/job-name"]
	if job == "" || pod.Spec.NodeName == "" {
		return
	}
	kept := r.pods[pod.UID]
	if kept == nil {
		kept = &story.RecordedPod{Job: job, Cluster: cluster, Node: strings.TrimPrefix(pod.Spec.NodeName, cluster+"-"), Devices: devicesOf(&pod.Spec), Bound: r.now()}
		r.pods[pod.UID] = kept
		r.record.Pods = append(r.record.Pods, kept)
	}
	if kept.Ready == 0 && pod.Status.Phase == corev1.PodRunning {
		kept.Ready = r.now()
	}
	if kept.Ended == 0 && (deleted || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed) {
		kept.Ended = r.now()
	}
}

func devicesOf(pod *corev1.PodSpec) int64 {
	n := pod.Containers[0].Resources.Requests[GPUResource]
	return n.Value()
}

func (r *Recorder) addConnection(o client.Object, _ bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := story.RecordedConnection{Cluster: o.GetName(), At: r.now(), Active: meta.IsStatusConditionTrue(o.(*kueue.MultiKueueCluster).Status.Conditions, kueue.MultiKueueClusterActive)}
	for i := len(r.record.Connections) - 1; i >= 0; i-- {
		if last := r.record.Connections[i]; last.Cluster == c.Cluster {
			if last.Active == c.Active {
				return
			}
			break
		}
	}
	r.record.Connections = append(r.record.Connections, c)
}

func (r *Recorder) addLeader(o client.Object, _ bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o.GetName() != "plimsoll-operator" {
		return
	}
	name := ptr.Deref(o.(*coordinationv1.Lease).Spec.HolderIdentity, "")
	if n := len(r.record.Leaders); n > 0 && r.record.Leaders[n-1].Name == name {
		return
	}
	r.record.Leaders = append(r.record.Leaders, story.RecordedLeader{Name: name, At: r.now()})
}

func (r *Recorder) addScore(o client.Object, _ bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range o.(*clusterv1alpha1.AddOnPlacementScore).Status.Scores {
		list := r.record.Scores[o.GetNamespace()]
		if s.Name != "total" || o.GetName() != "fleet" || len(list) > 0 && list[len(list)-1].Value == float64(s.Value) {
			continue
		}
		r.record.Scores[o.GetNamespace()] = append(list, story.Recorded{At: r.now(), Value: float64(s.Value)})
	}
}
