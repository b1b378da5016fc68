package world

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/world/metrics"
	"plimsoll.dev/plimsoll/test/story"
)

// Replay repeats a record of the lab. Kueue, MultiKueue and the schedulers do in the world what they did in
// the record, at the same times. Only the operator decides by itself: each of its decisions is compared
// with that of the record. The nomination of the record replaces a different one, so that one difference
// does not cause the next ones.
type Replay struct {
	world  *World
	record *story.Record
	start  time.Time
	jobs   map[types.NamespacedName]*replayed
	// Explain describes what the operator would decide for a Workload now; the driver sets it.
	Explain func(types.NamespacedName) string
	// Choices are the first decisions of all attempts, in the order of the record's times.
	Choices []*Choice
}

// RecordedScore is the series with the scores of the record.
const RecordedScore = "recorded_score"

// Choice is the first decision of an attempt for a cluster: in the record and by the operator in the world.
type Choice struct {
	Job     string
	Attempt int
	// Want is the cluster of the record, Got that of the operator; empty = it had not decided before the
	// record's nomination.
	Want, Got string
	// At is the time in the record, and Late by how much later the operator decided.
	At, Late time.Duration
	// Why is what the operator says of a difference.
	Why string
}

const (
	// nominationGrace is how long after a decision of the record the operator explains why it has not decided.
	nominationGrace = 1500 * time.Millisecond
	// earlier than its nomination in the record is when the operator may nominate: it tries every 200 ms.
	earlier = 220 * time.Millisecond
	// scoreLead is how long the world takes from a value to the score.
	scoreLead = 2 * time.Second
	// warmUp is the time for the first scores.
	warmUp = 10 * time.Second
	// storeBack is the time from when Prometheus runs again until Thanos has complete samples of it: 20.4
	// and 22.1 s in testdata/soak.json.
	storeBack = 21 * time.Second
)

// replayed is a Workload of the record.
type replayed struct {
	*story.RecordedWorkload
	key     types.NamespacedName
	choices []*Choice // by attempt; nil = no nomination
	lists   [][]string
	attempt int
	// nominated are the times of the nominations, or of the ends, by attempt. The operator nominates
	// after earlyUntil.
	nominated  []time.Duration
	earlyUntil time.Time
}

// Replay begins to repeat a record.
func (w *World) Replay(record *story.Record) *Replay {
	p := &Replay{world: w, record: record, start: w.loop.Now().Add(warmUp), jobs: map[types.NamespacedName]*replayed{}}
	w.kueue.paused, w.multiKueue.paused = true, true
	for _, c := range w.clusters {
		c.kueue.paused, c.schedulerDead = true, true
	}
	w.Hub.OnNextWrite(p.impose)
	w.replay = p
	byUID := map[string]*replayed{}
	for _, r := range record.Workloads {
		// The slices of an elastic job are Workloads of one job.
		j := &replayed{RecordedWorkload: r, key: types.NamespacedName{Namespace: defaultTenant, Name: "job-" + r.Job + "-" + r.UID[:5]}}
		byUID[r.UID], p.jobs[j.key] = j, j
		p.plan(j, byUID[r.Replaces])
	}
	for _, pod := range record.Pods {
		p.planPod(pod)
	}
	for _, c := range record.Connections {
		p.at(c.At, func() { w.reportConnection(c.Cluster, c.Active); w.multiKueue.remotes[c.Cluster].connected = c.Active })
	}
	for _, f := range record.Faults {
		p.planFault(f)
	}
	for cluster, list := range record.Scores {
		for i, v := range list {
			lead := scoreLead
			if i == 0 {
				lead = warmUp
			}
			p.at(v.At-lead.Seconds(), func() {
				w.clusterOf(cluster).extra = []metrics.Sample{{Name: RecordedScore, Value: v.Value}}
			})
		}
	}
	slices.SortStableFunc(p.Choices, func(a, b *Choice) int { return int(a.At - b.At) })
	return p
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func (p *Replay) at(t float64, do func()) {
	p.world.loop.After(p.start.Add(seconds(t)).Sub(p.world.loop.Now()), do)
}

// Length is the time of the record's last event.
func (p *Replay) Length() time.Duration {
	last := 0.0
	for _, j := range p.record.Workloads {
		last = max(last, j.States[len(j.States)-1].At)
	}
	return warmUp + seconds(last) + 5*time.Second
}

// plan schedules what happens to a Workload.
func (p *Replay) plan(j, replaces *replayed) {
	last := story.RecordedState{}
	for i, s := range j.States {
		if s.Quota && !last.Quota {
			j.choices, j.lists, j.nominated = append(j.choices, nil), append(j.lists, nil), append(j.nominated, 0)
		}
		n := len(j.choices) - 1
		if n >= 0 && j.choices[n] == nil && s.Decided != "" && last.Decided == "" {
			c := &Choice{Job: j.Job, Attempt: n + 1, Want: s.Decided, At: seconds(s.At)}
			j.choices[n] = c
			// Kueue itself sends a later slice of a job to the cluster of the first one.
			if replaces == nil {
				p.Choices = append(p.Choices, c)
			}
			p.at(s.At+nominationGrace.Seconds(), func() { p.expect(j, n) })
		}
		if n >= 0 && j.nominated[n] == 0 && (len(s.Nominated) > 0 || s.Evicted != "" || !s.Quota) {
			j.nominated[n] = seconds(s.At)
		}
		if n >= 0 && len(s.Nominated) > 0 && len(last.Nominated) == 0 {
			j.lists[n] = s.Nominated
		}
		before := last
		p.at(s.At, func() {
			if i == 0 {
				p.submit(j, replaces)
			}
			p.apply(j, before, s)
		})
		last = s
	}
}

func (p *Replay) submit(j, replaces *replayed) {
	w := p.world
	spec := complete(Spec{Jobs: []Job{{Name: j.Job, Queue: w.Spec.Queues[0].Name, Pods: j.Pods, Devices: j.Devices, Model: defaultModel, Priority: j.Priority,
		Duration: seconds(j.Duration), CPU: 4000, Memory: 16 << 10}}}).Jobs[0]
	wl := workloadOf(&spec, j.key, types.UID(j.UID))
	if j.Elastic {
		wl.Annotations = map[string]string{"kueue.x-k8s.io/elastic-job": "true"}
	}
	if replaces != nil {
		wl.Annotations["kueue.x-k8s.io/workload-slice-replacement-for"] = replaces.key.String()
	}
	for _, name := range w.kueue.checksOf(spec.Queue) {
		wl.Status.AdmissionChecks = append(wl.Status.AdmissionChecks, kueue.AdmissionCheckState{Name: kueue.AdmissionCheckReference(name), State: kueue.CheckStatePending, LastTransitionTime: w.kueue.stamp()})
	}
	w.kueue.condition(wl, kueue.WorkloadPodsReady, false, kueue.WorkloadWaitForStart, "")
	w.create(wl)
}

// apply changes a Workload on the hub as Kueue did.
func (p *Replay) apply(j *replayed, last, next story.RecordedState) {
	w, key := p.world, j.key
	if next.Inactive != last.Inactive {
		w.setActive(key, !next.Inactive)
	}
	if next.Evicted != "" && last.Evicted == "" {
		w.kueue.evict(key, next.Evicted, "", nil)
	}
	if last.Quota && !next.Quota {
		w.kueue.workloads.update(key, func(wl *kueue.Workload) bool {
			return w.kueue.loseQuota(wl, "Pending")
		})
	}
	if next.Quota && !last.Quota {
		j.attempt++
		wl := w.kueue.workloads.get(key)
		w.kueue.reserve(key, string(wl.Spec.QueueName), w.kueue.assign(wl, string(wl.Spec.QueueName), nil))
	}
	if next.PodsReady != last.PodsReady {
		w.kueue.workloads.update(key, func(wl *kueue.Workload) bool {
			return w.kueue.condition(wl, kueue.WorkloadPodsReady, next.PodsReady, kueue.WorkloadStarted, "")
		})
	}
	if len(next.Nominated) > 0 {
		p.nominate(j, next.Nominated)
	}
	if next.Cluster != "" && last.Cluster == "" {
		p.admit(j, next.Cluster)
	}
	if next.Finished && !last.Finished {
		w.kueue.workloads.update(key, func(wl *kueue.Workload) bool {
			return w.kueue.condition(wl, kueue.WorkloadFinished, true, "Succeeded", "")
		})
	}
	if next.Deleted {
		w.kueue.workloads.remove(key)
	}
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
		if wl.Status.ClusterName != nil || wl.Status.Admission == nil || slices.Equal(wl.Status.NominatedClusterNames, clusters) {
			return false
		}
		wl.Status.NominatedClusterNames = clusters
		return true
	})
}

// impose compares a decision of the operator with the record's, and replaces the nomination that follows.
func (p *Replay) impose(key types.NamespacedName, before, next client.Object, manager string) {
	wl, isWorkload := next.(*kueue.Workload)
	j := p.jobs[key]
	if !isWorkload || manager == kueueManager || j == nil || j.attempt == 0 {
		return
	}
	old := before.(*kueue.Workload)
	if isReady(wl) && !isReady(old) {
		j.earlyUntil = p.start.Add(j.nominated[j.attempt-1] - earlier)
	}
	if c := j.choices[j.attempt-1]; c != nil && c.Got == "" && isReady(wl) && !isReady(old) && len(old.Status.NominatedClusterNames) == 0 {
		c.Got, c.Late = clusterIn(kueuestate.FindCheck(wl, checkName).Message), p.world.loop.Now().Sub(p.start)-c.At
		if c.Got != c.Want {
			wl.Status.NominatedClusterNames = j.lists[j.attempt-1]
			p.world.loop.After(0, func() {
				if p.Explain != nil {
					c.Why = p.Explain(key)
				}
				p.world.note("the operator sends %s to %s, and to %s in the record: %s", j.Job, c.Got, c.Want, c.Why)
			})
		}
	}
	if list := j.lists[j.attempt-1]; list != nil && len(wl.Status.NominatedClusterNames) > 0 && len(old.Status.NominatedClusterNames) == 0 {
		wl.Status.NominatedClusterNames = list
	}
}

// isEarly reports whether the operator may not nominate for a Workload yet. On the busy machine of the lab it
// nominates up to seconds after its check is Ready.
func (p *Replay) isEarly(key types.NamespacedName) bool {
	j := p.jobs[key]
	return j != nil && p.world.loop.Now().Before(j.earlyUntil)
}

func isReady(wl *kueue.Workload) bool {
	c := kueuestate.FindCheck(wl, checkName)
	return c != nil && c.State == kueue.CheckStateReady
}

// clusterIn is the cluster with which the message of a Ready check begins.
func clusterIn(message string) string {
	cluster, _, _ := strings.Cut(message, " ")
	return cluster
}

// expect notes the reasons of an operator that has not decided by now.
func (p *Replay) expect(j *replayed, n int) {
	if c := j.choices[n]; c.Got == "" && p.Explain != nil {
		c.Why = p.Explain(j.key)
		p.world.note("the operator does not send %s to %s as in the record: %s", j.Job, c.Want, c.Why)
	}
}

// planPod schedules what a pod of the record holds.
func (p *Replay) planPod(r *story.RecordedPod) {
	c := p.world.clusterOf(r.Cluster)
	i, err := strconv.Atoi(strings.TrimPrefix(r.Node, "gpu"))
	if c == nil || err != nil || i >= len(c.nodes) {
		panic(fmt.Sprintf("the record has a pod on the unknown node %s of %s", r.Node, r.Cluster))
	}
	key := types.NamespacedName{Namespace: defaultTenant, Name: r.Job}
	held := &pod{name: r.Job + "-" + strconv.FormatFloat(r.Bound, 'f', 3, 64), devices: r.Devices, cpu: 4000, memory: 16 << 10,
		job: &remoteJob{batchJob: batchJob{spec: &Job{Name: r.Job, Namespace: key.Namespace}, key: key}}}
	p.at(r.Bound, func() {
		held.node = c.nodes[i]
		held.node.pods, c.pods = append(held.node.pods, held), append(c.pods, held)
	})
	if r.Ended > 0 {
		p.at(r.Ended, func() { c.removePod(held) })
	}
}

// planFault schedules the faults that the operator sees. Those of Kueue and of the workers show in what the
// record has of Workloads, pods and connections.
func (p *Replay) planFault(f story.RecordedFault) {
	fault := Fault{Lasts: seconds(f.To - f.From)}
	switch {
	case f.Program == "thanos-query":
		fault.Kind = PrometheusDown
	case strings.HasSuffix(f.Program, "-prometheus"):
		fault.Kind, fault.Cluster = StoreLost, strings.TrimSuffix(f.Program, "-prometheus")
		fault.Lasts += storeBack
		for _, other := range p.record.Faults { // that begins before this one is over
			if other.Program == f.Program && other.From > f.From && seconds(other.From-f.From) < fault.Lasts {
				fault.Lasts = seconds(other.To-f.From) + storeBack
			}
			if other.Program == f.Program && other.From < f.From && other.To+storeBack.Seconds() > f.From {
				return
			}
		}
	case strings.HasPrefix(f.Program, "operator-"):
		// Another replica leads some time after the leader has ended.
		for _, l := range p.record.Leaders {
			if l.Name != "" && l.At > f.From && !p.ledSince(f.From, l.At) && l.At < f.From+25 {
				fault.Kind, fault.Lasts = OperatorDown, seconds(l.At-f.From)
			}
		}
		if fault.Kind == "" {
			return
		}
	default:
		return
	}
	p.at(f.From, func() { p.world.begin(&fault) })
}

// ledSince reports whether another fault of the operator came between a fault and a new leader.
func (p *Replay) ledSince(from, leader float64) bool {
	return slices.ContainsFunc(p.record.Faults, func(f story.RecordedFault) bool {
		return strings.HasPrefix(f.Program, "operator-") && f.From > from && f.From < leader
	})
}
