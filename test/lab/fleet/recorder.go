package fleet

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	plimsoll "plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/test/story"
)

// Recorder records what happens to the jobs of a fleet.
type Recorder struct {
	// logs of the operator's replicas.
	logs []string

	mu        sync.Mutex
	record    story.Record
	workloads map[types.UID]*story.RecordedWorkload
	uids      map[string]types.UID // by key
	// versions are the resourceVersions of the recorded states.
	versions map[types.UID][]int64
	// looks are the operator's looks at Workloads, by key.
	looks map[string][]look
}

// look is when the operator saw a version of a Workload.
type look struct {
	at      float64
	version int64
}

// Record records what happens to the jobs of the fleet until ctx ends. quota is that of their queue. The
// replicas of the operator log in JSON at debug level.
func (f *Fleet) Record(ctx context.Context, quota int, replicas ...string) (*Recorder, error) {
	r := &Recorder{record: story.Record{Began: time.Now().Truncate(time.Second).Add(-time.Second), Quota: int64(quota)},
		workloads: map[types.UID]*story.RecordedWorkload{}, uids: map[string]types.UID{}, versions: map[types.UID][]int64{}, looks: map[string][]look{}}
	gate := &plimsoll.PlacementGate{}
	if err := f.Hub.Client.Get(ctx, client.ObjectKey{Name: "gpu"}, gate); err != nil {
		return nil, fmt.Errorf("the samples' PlacementGate: %w", err)
	}
	var err error
	if r.record.Gate, err = json.Marshal(gate.Spec); err != nil {
		return nil, err
	}
	for _, name := range replicas {
		r.logs = append(r.logs, f.procs.LogFile(name))
	}
	for _, w := range []struct {
		kind    client.Object
		options cache.Options
		record  func(client.Object, bool)
	}{
		{&kueue.Workload{}, cache.Options{DefaultNamespaces: map[string]cache.Config{Namespace: {}}}, r.addWorkload},
		{&kueue.MultiKueueCluster{}, cache.Options{}, r.addConnection},
		{&coordinationv1.Lease{}, cache.Options{DefaultNamespaces: map[string]cache.Config{operatorNamespace: {}}}, r.addLeader},
	} {
		if _, err := f.Hub.startCache(ctx, w.options, w.kind, w.record); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// since is a time in the record, in microseconds.
func (r *Recorder) since(t time.Time) float64 {
	return math.Round(t.Sub(r.record.Began).Seconds()*1e6) / 1e6
}

func (r *Recorder) now() float64 { return r.since(time.Now()) }

// Write writes the record.
func (r *Recorder) Write(path string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, log := range r.logs {
		if err := r.readLog(log); err != nil {
			return err
		}
	}
	for _, wl := range r.record.Workloads {
		slices.SortFunc(wl.Decisions, func(a, b story.RecordedDecision) int { return cmp.Compare(a.At, b.At) })
		r.moveStates(wl)
	}
	return r.record.Write(path)
}

// moveStates moves the states of a Workload to the times at which the operator saw them, unless another replica led by
// then: that one sees all states as soon as it leads.
func (r *Recorder) moveStates(wl *story.RecordedWorkload) {
	looks := r.looks[Namespace+"/"+wl.Name]
	slices.SortFunc(looks, func(a, b look) int { return cmp.Compare(a.at, b.at) })
	last := 0.0
	for i := range wl.States {
		s, version := &wl.States[i], r.versions[types.UID(wl.UID)][i]
		seen := slices.IndexFunc(looks, func(l look) bool { return l.version >= version })
		if seen >= 0 && !slices.ContainsFunc(r.record.Leaders, func(l story.RecordedLeader) bool { return s.At < l.At && l.At < looks[seen].at }) {
			s.At = looks[seen].at
		}
		s.At = max(s.At, last)
		last = s.At
	}
}

// readLog adds the decisions and looks that a replica of the operator logged.
func (r *Recorder) readLog(log string) error {
	file, err := os.Open(log)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := struct {
			Workload        string    `json:"workload"`
			ResourceVersion int64     `json:"resourceVersion,string"`
			IsGone          bool      `json:"isGone"`
			ObservedAt      time.Time `json:"observedAt"`
			UID             types.UID `json:"uid"`
			DecidedAt       time.Time `json:"decidedAt"`
			story.RecordedDecision
		}{}
		if json.Unmarshal(lines.Bytes(), &line) != nil || line.ResourceVersion == 0 && !line.IsGone { // a panic is no JSON
			continue
		}
		if line.IsGone {
			line.ResourceVersion = math.MaxInt64
		}
		r.looks[line.Workload] = append(r.looks[line.Workload], look{r.since(line.ObservedAt), line.ResourceVersion})
		if wl := r.workloads[line.UID]; wl != nil && line.Decision != nil {
			line.At = r.since(line.DecidedAt)
			wl.Decisions = append(wl.Decisions, line.RecordedDecision)
		}
	}
	return lines.Err()
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
		kept = &story.RecordedWorkload{Name: wl.Name, UID: string(wl.UID), Job: wl.OwnerReferences[0].Name, Pods: int64(set.Count), Devices: devicesOf(&set.Template.Spec),
			Priority: ptr.Deref(wl.Spec.Priority, 0), Elastic: wl.Annotations["kueue.x-k8s.io/elastic-job"] == "true", Replaces: string(r.uids[wl.Annotations[replacementFor]])}
		r.workloads[wl.UID], r.uids[client.ObjectKeyFromObject(wl).String()] = kept, wl.UID
		r.record.Workloads = append(r.record.Workloads, kept)
	}
	s := story.RecordedState{Inactive: !ptr.Deref(wl.Spec.Active, true), Nominated: wl.Status.NominatedClusterNames, Cluster: ptr.Deref(wl.Status.ClusterName, ""),
		Finished: meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadFinished), PodsReady: r.conditionSince(wl, kueue.WorkloadPodsReady), Deleted: deleted}
	if wl.Status.Admission != nil {
		s.Reserved = r.conditionSince(wl, kueue.WorkloadQuotaReserved)
	}
	for _, c := range wl.Status.AdmissionChecks {
		if s.Cluster != "" && c.Name != gateCheck && c.State == kueue.CheckStateReady {
			s.Admitted = r.since(c.LastTransitionTime.Time)
		}
	}
	if c := meta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted); c != nil && c.Status == "True" {
		s.Evicted, s.EvictedAt = c.Reason, r.since(c.LastTransitionTime.Time)
	}
	if n := len(kept.States); n > 0 {
		s.At = kept.States[n-1].At
		if reflect.DeepEqual(s, kept.States[n-1]) {
			return
		}
	}
	s.At = r.now()
	version, _ := strconv.ParseInt(wl.ResourceVersion, 10, 64) // etcd's
	kept.States, r.versions[wl.UID] = append(kept.States, s), append(r.versions[wl.UID], version)
}

// conditionSince is since when a condition is true; 0 = it is not.
func (r *Recorder) conditionSince(wl *kueue.Workload, kind string) float64 {
	if c := meta.FindStatusCondition(wl.Status.Conditions, kind); c != nil && c.Status == metav1.ConditionTrue {
		return r.since(c.LastTransitionTime.Time)
	}
	return 0
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
	name = name[strings.LastIndex(name, "_")+1:] // without the name of the machine
	if n := len(r.record.Leaders); n > 0 && r.record.Leaders[n-1].Name == name {
		return
	}
	r.record.Leaders = append(r.record.Leaders, story.RecordedLeader{Name: name, At: r.now()})
}
