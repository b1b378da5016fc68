package world

import (
	"cmp"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/test/story"
)

// Replay repeats a record of the lab. Kueue, MultiKueue and the schedulers do in the world what they did in
// the record, at the same times. The operator decides at the times of the record by the metrics that the
// record has for each decision; all else that it decides by is its own. Each of its decisions is compared with
// that of the record, and becomes that of the record, so that one difference does not cause the next ones.
type Replay struct {
	world  *World
	record *story.Record
	start  time.Time
	byUID  map[string]*replayed
	// decisions by the devices of a pod, in the order of their times.
	decisions map[int64][]*decision
	// Choices are the decisions that sent a job, in the order of the record's times.
	Choices []*Choice
	// Waits are the decisions that let a job wait.
	Waits int
	// Early are those of the waits in which the operator would have sent the job, OtherHolds those in which it holds
	// another cluster, or none.
	Early, OtherHolds int
}

// replayed is a Workload of the record.
type replayed struct {
	*story.RecordedWorkload
	key       types.NamespacedName
	decisions []*decision
	// next is the first of the decisions that the operator has not made, and last what it decided before that;
	// nil = nothing since the Workload has quota.
	next int
	last *gate.Decision
}

// NewReplay prepares a record. Replay.Decide decides in place of the gates.
func (w *World) NewReplay(record *story.Record) *Replay {
	p := &Replay{world: w, record: record, byUID: map[string]*replayed{}, decisions: map[int64][]*decision{}}
	for _, r := range record.Workloads {
		p.byUID[r.UID] = &replayed{RecordedWorkload: r, key: types.NamespacedName{Namespace: defaultTenant, Name: r.Name}}
	}
	return p
}

// Begin begins to repeat the record, at a full second as the record did.
func (p *Replay) Begin() {
	w := p.world
	p.start = w.loop.Now().Truncate(time.Second).Add(time.Second)
	w.kueue.paused, w.multiKueue.paused = true, true
	for _, c := range w.clusters {
		c.kueue.paused = true
		// Metrics are those of the record.
		w.begin(&Fault{Kind: StoreLost, Cluster: c.spec.Name, Amount: 1})
	}
	for _, r := range p.record.Workloads {
		p.planDecisions(p.byUID[r.UID])
		p.plan(p.byUID[r.UID])
	}
	for _, c := range p.record.Connections {
		p.at(seconds(c.At), func() { w.reportConnection(c.Cluster, c.Active); w.multiKueue.remotes[c.Cluster].connected = c.Active })
	}
	for i, l := range p.record.Leaders {
		if i > 0 && l.Name != "" {
			p.at(seconds(l.At), func() { w.Operator.Stop(); w.Operator.Start() })
		}
	}
	for _, list := range p.decisions {
		slices.SortStableFunc(list, func(a, b *decision) int { return cmp.Compare(a.at, b.at) })
	}
	slices.SortStableFunc(p.Choices, func(a, b *Choice) int { return cmp.Compare(a.At, b.At) })
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func (p *Replay) at(t time.Duration, do func()) {
	p.world.loop.After(p.start.Add(t).Sub(p.world.loop.Now()), do)
}

// Length is the time of the record's last event.
func (p *Replay) Length() time.Duration {
	last := 0.0
	for _, j := range p.record.Workloads {
		last = max(last, j.States[len(j.States)-1].At)
	}
	return seconds(last) + 5*time.Second
}

// plan schedules what happens to a Workload.
func (p *Replay) plan(j *replayed) {
	last, lastAt := story.RecordedState{}, time.Duration(0)
	for i, s := range j.States {
		before, at := last, seconds(s.At)
		if s.Reserved > 0 && s.Reserved != before.Reserved {
			at = max(lastAt, j.knownBy(at, seconds(max(before.At, s.Reserved))))
		}
		p.at(at, func() {
			if i == 0 {
				p.submit(j)
			}
			p.apply(j, before, s, at)
		})
		last, lastAt = s, at
	}
}

// knownBy is when the operator knew that a Workload had quota, which the record has at a time: before its first
// decision since the quota was reserved.
func (j *replayed) knownBy(recorded, since time.Duration) time.Duration {
	for _, d := range j.decisions {
		if d.at > since {
			return min(recorded, d.at-10*time.Millisecond)
		}
	}
	return recorded
}

// lookAt makes the operator look at a Workload, as Kueue does with a change of no meaning.
func (p *Replay) lookAt(j *replayed) {
	p.world.kueue.workloads.update(j.key, func(wl *kueue.Workload) bool {
		wl.Annotations = maps.Clone(wl.Annotations)
		metav1.SetMetaDataAnnotation(&wl.ObjectMeta, "example.com/seen", p.world.loop.Now().Format(time.RFC3339Nano))
		return true
	})
}

func (p *Replay) submit(j *replayed) {
	w := p.world
	spec := complete(Spec{Jobs: []Job{{Name: j.Job, Queue: w.Spec.Queues[0].Name, Pods: j.Pods, Devices: j.Devices, Model: defaultModel, Priority: j.Priority,
		CPU: 4000, Memory: 16 << 10}}}).Jobs[0]
	wl := workloadOf(&spec, j.key, types.UID(j.UID))
	if j.Elastic {
		wl.Annotations = map[string]string{"kueue.x-k8s.io/elastic-job": "true"}
	}
	if replaces := p.byUID[j.Replaces]; replaces != nil {
		wl.Annotations["kueue.x-k8s.io/workload-slice-replacement-for"] = replaces.key.String()
	}
	for _, name := range w.kueue.checksOf(spec.Queue) {
		wl.Status.AdmissionChecks = append(wl.Status.AdmissionChecks, kueue.AdmissionCheckState{Name: kueue.AdmissionCheckReference(name), State: kueue.CheckStatePending, LastTransitionTime: w.kueue.stamp()})
	}
	w.kueue.condition(wl, kueue.WorkloadPodsReady, false, kueue.WorkloadWaitForStart, "")
	w.create(wl)
}

// apply changes a Workload on the hub as Kueue did.
func (p *Replay) apply(j *replayed, last, next story.RecordedState, at time.Duration) {
	w, key := p.world, j.key
	if next.Inactive != last.Inactive {
		w.setActive(key, !next.Inactive)
	}
	if next.Evicted != "" && last.Evicted == "" {
		p.stating(next.EvictedAt, func() { w.kueue.evict(key, next.Evicted, "", nil) })
	}
	if last.Reserved > 0 && next.Reserved != last.Reserved {
		w.kueue.workloads.update(key, func(wl *kueue.Workload) bool { return w.kueue.loseQuota(wl, "Pending") })
	}
	if next.Reserved > 0 && next.Reserved != last.Reserved {
		j.last = nil
		for j.next < len(j.decisions) && j.decisions[j.next].at < at {
			j.next++
		}
		p.stating(next.Reserved, func() {
			wl := w.kueue.workloads.get(key)
			w.kueue.reserve(key, string(wl.Spec.QueueName), w.kueue.assign(wl, string(wl.Spec.QueueName), nil))
		})
	}
	if next.PodsReady != last.PodsReady {
		p.stating(next.PodsReady, func() {
			w.kueue.workloads.update(key, func(wl *kueue.Workload) bool {
				return w.kueue.condition(wl, kueue.WorkloadPodsReady, next.PodsReady > 0, kueue.WorkloadStarted, "")
			})
		})
	}
	if len(next.Nominated) > 0 {
		p.nominate(j, next.Nominated)
	}
	if next.Cluster != "" && last.Cluster == "" {
		p.stating(next.Admitted, func() { p.admit(j, next.Cluster) })
	}
	if next.Finished != last.Finished { // Kueue may lose the condition to a write of its own
		w.kueue.workloads.update(key, func(wl *kueue.Workload) bool {
			return w.kueue.condition(wl, kueue.WorkloadFinished, next.Finished, "Succeeded", "")
		})
	}
	if next.Deleted {
		w.kueue.workloads.remove(key)
	}
}

// stating makes changes that state a time of the record; 0 = the present.
func (p *Replay) stating(at float64, do func()) {
	if at > 0 {
		p.world.kueue.stampAs = p.start.Add(seconds(at))
	}
	do()
	p.world.kueue.stampAs = time.Time{}
}

// admit writes that a cluster admitted a Workload.
func (p *Replay) admit(j *replayed, cluster string) {
	k := p.world.kueue
	k.workloads.update(j.key, func(wl *kueue.Workload) bool {
		for i := range wl.Status.AdmissionChecks {
			c := &wl.Status.AdmissionChecks[i]
			if c.State != kueue.CheckStateReady {
				c.State, c.LastTransitionTime = kueue.CheckStateReady, k.stamp()
			}
		}
		wl.Status.ClusterName, wl.Status.NominatedClusterNames = &cluster, nil
		return k.condition(wl, kueue.WorkloadAdmitted, true, "Admitted", "")
	})
}

func (p *Replay) nominate(j *replayed, clusters []string) {
	p.world.kueue.workloads.update(j.key, func(wl *kueue.Workload) bool {
		if !isReady(wl) || wl.Status.ClusterName != nil || wl.Status.Admission == nil || slices.Equal(wl.Status.NominatedClusterNames, clusters) {
			return false
		}
		wl.Status.NominatedClusterNames = clusters
		return true
	})
}

func isReady(wl *kueue.Workload) bool {
	c := kueuestate.FindCheck(wl, checkName)
	return c != nil && c.State == kueue.CheckStateReady
}
