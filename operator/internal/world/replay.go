package world

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/world/hub"
	"plimsoll.dev/plimsoll/test/story"
)

// Replay repeats a record of the lab. Kueue, MultiKueue and the schedulers do in the world what they did in
// the record, at the same times. Only the operator decides by itself, but not earlier than in the record.
// Each of its decisions is compared with that of the record, and becomes that of the record, so that one
// difference does not cause the next ones.
type Replay struct {
	world  *World
	record *story.Record
	start  time.Time
	byUID  map[string]*replayed
	// Choices are the first decisions of all attempts, in the order of the record's times.
	Choices []*Choice
}

// Choice is the first decision of an attempt for a cluster: in the record and by the operator in the world.
type Choice struct {
	Job     string
	Attempt int
	// Want is the cluster of the record, Got that of the operator; empty = it had not decided before the
	// record's nomination.
	Want, Got string
	// At is the time in the record, and Late by how much later the operator decided.
	At, Late time.Duration
	// Early is by how much earlier the operator would have decided, if the replay had let it.
	Early time.Duration
	// ByChance: another seed of the draw between clusters would give the cluster of the record, too.
	ByChance bool
	// Why is what the operator says of a difference.
	Why string
}

const (
	// lead is how long after a decision the record has it, and grace how long the operator may wait for
	// room after that.
	lead, grace = 500 * time.Millisecond, 1500 * time.Millisecond
	// warmUp is the time for the first scores.
	warmUp = 10 * time.Second
	// storeBack is the time from when Prometheus runs again until Thanos has complete samples of it.
	// testdata/soak.json has scores of the cluster again after 19.3 and 20.8 s.
	storeBack = 19 * time.Second
)

// replayed is a Workload of the record.
type replayed struct {
	*story.RecordedWorkload
	key     types.NamespacedName
	choices []*Choice // by attempt; nil = no decision
	attempt int
}

// Replay begins to repeat a record.
func (w *World) Replay(record *story.Record) *Replay {
	p := &Replay{world: w, record: record, start: w.loop.Now().Add(warmUp), byUID: map[string]*replayed{}}
	w.kueue.paused, w.multiKueue.paused = true, true
	for _, c := range w.clusters {
		c.kueue.paused, c.schedulerDead = true, true
	}
	w.replay = p
	for _, r := range record.Workloads {
		// The slices of an elastic job are Workloads of one job.
		j := &replayed{RecordedWorkload: r, key: types.NamespacedName{Namespace: defaultTenant, Name: "job-" + r.Job + "-" + r.UID[:5]}}
		p.byUID[r.UID] = j
		p.plan(j, p.byUID[r.Replaces])
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
		for _, v := range list {
			p.at(v.At, func() { w.setScore(cluster, int32(v.Value)) })
		}
	}
	slices.SortStableFunc(p.Choices, func(a, b *Choice) int { return int(a.At - b.At) })
	return p
}

// setScore writes the score of a cluster, as the operator's controller of ScoringPolicies does.
func (w *World) setScore(cluster string, value int32) {
	key := types.NamespacedName{Namespace: cluster, Name: policyName}
	scores := []clusterv1alpha1.AddOnPlacementScoreItem{{Name: scoreName, Value: value}}
	_, err := hub.Update(w.objects, key, "scores", func(s *clusterv1alpha1.AddOnPlacementScore) bool {
		s.Status.Scores = scores
		return true
	})
	if apierrors.IsNotFound(err) {
		w.create(&clusterv1alpha1.AddOnPlacementScore{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: policyName}, Status: clusterv1alpha1.AddOnPlacementScoreStatus{Scores: scores}})
	}
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
			j.choices = append(j.choices, nil)
		}
		n := len(j.choices) - 1
		if n >= 0 && j.choices[n] == nil && s.Decided != "" && last.Decided == "" {
			c := &Choice{Job: j.Job, Attempt: n + 1, Want: s.Decided, At: seconds(s.At)}
			j.choices[n] = c
			// Kueue itself sends a later slice of a job to the cluster of the first one.
			if replaces == nil {
				p.Choices = append(p.Choices, c)
			}
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
		if !isReady(wl) || wl.Status.ClusterName != nil || wl.Status.Admission == nil || slices.Equal(wl.Status.NominatedClusterNames, clusters) {
			return false
		}
		wl.Status.NominatedClusterNames = clusters
		return true
	})
}

// Decide decides as the operator does. In a replay, it compares the decision with the record's.
//  1. Before the time of the record, the workload waits.
//  2. A decision for another cluster, or for none, becomes that of the record.
func (w *World) Decide(in *gate.Inputs, now time.Time) gate.Decision {
	d := in.Decide(now)
	p := w.replay
	if p == nil {
		return d
	}
	j := p.byUID[in.Facts.UID]
	if j == nil || j.attempt == 0 || j.Replaces != "" {
		return d
	}
	wl := w.kueue.workloads.get(j.key)
	if wl == nil || len(wl.Status.NominatedClusterNames) > 0 || wl.Status.ClusterName != nil {
		return d
	}
	c, since := j.choices[j.attempt-1], now.Sub(p.start)
	switch {
	case c == nil || since < c.At-lead:
		if len(d.Order) == 0 {
			return d
		}
		if c != nil {
			c.Early = max(c.Early, c.At-lead-since)
		}
		return gate.Decision{State: gate.Pending, Reason: gate.ReasonQueued, Message: "the record decides it later", Verdicts: d.Verdicts}
	case len(d.Order) == 0 && since < c.At+grace:
		return d
	case !isReady(wl): // else the nomination is missing
		another := *in
		another.Facts.UID += "'"
		c.Got, c.Late, c.ByChance, c.Why = first(d.Order), since-c.At, first(another.Decide(now).Order) == c.Want, ""
		if c.Got != c.Want {
			c.Why = describe(d, in, now)
		}
	}
	if first(d.Order) != c.Want {
		d = gate.Decision{State: gate.Ready, Reason: gate.ReasonPlaceable, Order: []string{c.Want}, Message: c.Want + " in the record", Verdicts: d.Verdicts}
	}
	return d
}

func first(order []string) string {
	if len(order) == 0 {
		return ""
	}
	return order[0]
}

// describe states what a decision rests on.
func describe(d gate.Decision, in *gate.Inputs, now time.Time) string {
	text := d.Message
	for i, v := range d.Verdicts {
		at := in.Candidates[i].SampledAt
		text += fmt.Sprintf("\n  %s: %s room %v, net %v, score %v, samples %.1f s old", v.Cluster, v.Rejection, v.Room.Value, v.Net, v.Score.Value, now.Sub(at).Seconds())
		for _, e := range in.View.Entries(v.Cluster, at) {
			text += fmt.Sprintf(", %d for %s", e.Devices(), e.Workload)
		}
	}
	return text
}

func isReady(wl *kueue.Workload) bool {
	c := kueuestate.FindCheck(wl, checkName)
	return c != nil && c.State == kueue.CheckStateReady
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
		c.createPod(held)
		c.bind(held, c.nodes[i])
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
