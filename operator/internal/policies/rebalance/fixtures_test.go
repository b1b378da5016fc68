package rebalance

import (
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/policies/reclaim"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

const gpu, h100 = "nvidia.com/gpu", "H100"

// world is a fleet by nodes, of which a gate sees its sums only.
type world struct {
	nodes []node
	// jobs run; big waits.
	jobs []job
	big  job
	// quota that the workers' queues have left.
	quota map[string]float64
	view  *ledger.Ledger
	// change of the inputs of a workload; nil = none.
	change func(uid string, in *gate.Inputs)
	// history of the policy, and otherHistory of another one.
	history, otherHistory []v1alpha1.ReclaimRecord
	mode                  v1alpha1.Mode
	// unplaced are moved workloads that do not run again.
	unplaced  map[string]bool
	remaining int
}

type node struct {
	cluster, name string
	size          int64
}

// job holds devices on some nodes, or waits.
type job struct {
	name          string
	priority      int32
	pods, devices int64
	// on are the nodes of its pods.
	on    []string
	since time.Time
	// change of the candidate; nil = none.
	change func(*reclaim.Candidate)
}

// small is a job of one pod that has run for an hour.
func small(name, on string, devices int64) job {
	return job{name: name, priority: 1, pods: 1, devices: devices, on: []string{on}, since: noon.Add(-time.Hour)}
}

// stuck is a world where big, which needs a node of 8 GPUs, waits for c1, where small holds 2 of them,
// and c2 has 4 GPUs free.
func stuck() *world {
	return &world{
		nodes: []node{{"c1", "n1", 8}, {"c2", "n2", 4}}, jobs: []job{small("small", "n1", 2)},
		big:   job{name: "big", priority: 10, pods: 1, devices: 8, since: noon.Add(-10 * time.Minute)},
		quota: map[string]float64{"c1": 100, "c2": 100}, view: ledger.New(15*time.Second, 10*time.Minute), mode: v1alpha1.ModeEnforce, remaining: 4,
	}
}

func (w *world) clusterOf(nodeName string) string {
	for _, n := range w.nodes {
		if n.name == nodeName {
			return n.cluster
		}
	}
	return ""
}

// free returns the free devices of a node, without a job.
func (w *world) free(n node, without string) int64 {
	free := n.size
	for _, j := range w.jobs {
		for _, on := range j.on {
			if on == n.name && j.name != without {
				free -= j.devices
			}
		}
	}
	return free
}

// fits returns whether a job fits on a cluster, by nodes, if another one were gone.
func (w *world) fits(j job, cluster, without string) bool {
	var pods int64
	for _, n := range w.nodes {
		if n.cluster == cluster {
			pods += w.free(n, without) / j.devices
		}
	}
	return pods >= j.pods
}

func (w *world) candidate(j job) *reclaim.Candidate {
	c := &reclaim.Candidate{Namespace: "team-a", Name: j.name, UID: j.name, Queue: "research", Group: "research", Priority: j.priority,
		Owner:    reclaim.Owner{Cluster: w.clusterOf(j.on[0]), Namespace: "team-a", Kind: "Job", Name: j.name},
		Resource: gpu, Devices: j.pods * j.devices, RunningSince: j.since}
	if j.change != nil {
		j.change(c)
	}
	return c
}

func (w *world) devices() *Devices {
	d := &Devices{Free: map[string]map[Node]int64{gpu: {}}, Allocated: map[reclaim.Owner]map[Node]int64{}}
	for _, n := range w.nodes {
		d.Free[gpu][Node{n.cluster, n.name, h100}] = w.free(n, "")
	}
	for _, j := range w.jobs {
		held := map[Node]int64{}
		for _, on := range j.on {
			held[Node{w.clusterOf(on), on, h100}] += j.devices
		}
		d.Allocated[w.candidate(j).Owner] = held
	}
	return d
}

// inputs are what the gate knows about a job.
func (w *world) inputs(j job) *gate.Inputs {
	p := shape.PodSet{Name: "main", Resource: gpu, Model: h100, DevicesPerPod: j.devices, Pods: j.pods}
	in := &gate.Inputs{Facts: shape.Facts{UID: j.name, Namespace: "team-a", Name: j.name, ClusterQueue: "research", Remote: true, PodSets: []shape.PodSet{p}},
		View: w.view.View(), Source: "thanos"}
	in.Rules = gate.RulesOf(&v1alpha1.PlacementGateSpec{})
	in.Rules.Hold.Gate, in.Rules.Rank = "gpu", ledger.Rank{Priority: j.priority, Since: j.since, Name: j.name}
	seen := map[string]int{}
	for _, n := range w.nodes {
		i, ok := seen[n.cluster]
		if !ok {
			i = len(in.Candidates)
			seen[n.cluster] = i
			in.Candidates = append(in.Candidates, gate.Candidate{Name: n.cluster, SampledAt: noon.Add(-5 * time.Second), Shapes: []gate.ShapeMetrics{{
				Fit: gate.Known(0), EmptyFit: gate.Known(0), Headroom: gate.Known(0), Capacity: gate.Known(0), Quota: gate.Known(w.quota[n.cluster])}}})
		}
		m := &in.Candidates[i].Shapes[0]
		free := w.free(n, "")
		m.Fit.Value += float64(free / j.devices)
		m.EmptyFit.Value += float64(n.size / j.devices)
		m.Headroom.Value += float64(free)
		m.Capacity.Value += float64(n.size)
	}
	if w.change != nil {
		w.change(j.name, in)
	}
	return in
}

// putRunning records the running jobs in the ledger. A hold on a cluster whose queue lacks quota rests
// on what they return.
func (w *world) putRunning() {
	for _, j := range w.jobs {
		w.view.PutRunning(ledger.Running{UID: j.name, Cluster: w.clusterOf(j.on[0]), Queue: ledger.Queue{Cluster: "research"}, Priority: j.priority, Since: j.since,
			PodSets: []shape.PodSet{{Resource: gpu, Model: h100, DevicesPerPod: j.devices, Pods: j.pods}}})
	}
}

// waiting lets the gate hold a cluster for big. It returns nil if the gate holds none.
func (w *world) waiting() *Waiting {
	w.putRunning()
	d := w.inputs(w.big).Decide(noon)
	if d.Hold == nil {
		return nil
	}
	w.view.Commit(w.view.View(), w.big.name, nil, nil, d.Hold)
	return &Waiting{Hold: *d.Hold, Inputs: w.inputs(w.big)}
}

// round runs a round of the policy for big. It returns the zero decision if the gate holds nothing.
func (w *world) round() Decision {
	big := w.waiting()
	if big == nil {
		return Decision{}
	}
	big.Check("thanos", noon)
	bounds := Bounds{Mode: w.mode, MinRun: 30 * time.Minute, Remaining: w.remaining, History: w.history, Unplaced: w.unplaced,
		Moves: MovesOf([]v1alpha1.ReclaimPolicy{{Status: v1alpha1.ReclaimPolicyStatus{History: w.history}}, {Status: v1alpha1.ReclaimPolicyStatus{History: w.otherHistory}}})}
	var candidates []*reclaim.Candidate
	for _, j := range w.jobs {
		candidates = append(candidates, w.candidate(j))
	}
	movable := map[string][]Movable{}
	for _, c := range Shortlist(big, candidates, w.devices(), bounds, noon) {
		for _, j := range w.jobs {
			if j.name == c.Name {
				movable[big.Hold.UID] = append(movable[big.Hold.UID], Movable{Candidate: c, Inputs: w.inputs(j)})
			}
		}
	}
	return Decide(bounds, []*Waiting{big}, movable, noon)[0]
}
