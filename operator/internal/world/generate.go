package world

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// Random returns the random world of a seed: fleet, queues, settings, jobs and faults.
func Random(seed uint64) Spec {
	g := generator{rand.New(rand.NewPCG(seed, 0x706c696d))}
	s := Spec{Seed: seed}
	s.Clusters = g.clusters()
	s.Settings = g.settings()
	s.Queues = g.queues(s.Clusters)
	for _, j := range g.jobs(&s) {
		if fit(&s, &j) {
			s.Jobs = append(s.Jobs, j)
		}
	}
	if g.chance(.75) && len(s.Jobs) > 0 {
		s.Faults = g.faultsOf(&s)
	}
	for _, j := range s.Jobs {
		if j.Behavior == Crashes || j.Behavior == NeverReady { // its user gives up
			s.Faults = append(s.Faults, Fault{Kind: Deleted, Job: j.Name, At: j.At + g.seconds(300, 1500)})
		}
	}
	kinds := generator{rand.New(rand.NewPCG(seed, 0x6b696e64))} // of their own, so that the rest of a seed's world stays the same
	kinds.makeElastic(&s)
	kinds.makeSets(&s)
	g.standby(&s)
	makeReclaims(&s)
	makeSidecars(&s)
	makeTopology(&s)
	makeTrials(&s)
	makeProfiles(&s)
	makeCapacity(&s)
	makeLocalQueues(&s)
	makeCPUQuotas(&s)
	makeNever(&s)
	makeShadow(&s)
	makeImages(&s)
	makePlacement(&s)
	return s
}

// standby adds a second process of the operator, and cuts off the one that leads.
func (g generator) standby(s *Spec) {
	if !g.chance(.15) {
		return
	}
	s.Settings.Standbys = 1
	end := int(s.LastPlanned() / time.Second)
	for range 1 + g.IntN(2) {
		s.Faults = append(s.Faults, Fault{Kind: LeaderCut, At: g.seconds(20, max(60, end)), Lasts: g.seconds(1, 90)})
	}
}

// fit makes a job smaller, or changes its device model, until it fits on an empty cluster and into the quota of
// an empty hub. It reports whether there is such a job. One that fits nowhere keeps its quota on the hub for
// ever, or the first place of its queue; a named world has one.
func fit(s *Spec, j *Job) bool {
	for !s.fitsEmpty(j) {
		switch {
		case j.CPU > 0 || j.Memory > 0:
			j.CPU, j.Memory, j.InitCPU, j.SidecarCPU = 0, 0, 0, 0
		case j.Pods > 1:
			j.Pods, j.MinPods = j.Pods-1, 0
		case j.Devices > 1:
			j.Devices, j.SidecarDevices = j.Devices/2, 0
		default:
			for _, j.Model = range modelsOf(s.Clusters) {
				if s.fitsEmpty(j) {
					return true
				}
			}
			return false
		}
	}
	return true
}

// fitsEmpty reports whether an empty fleet takes a job.
func (s *Spec) fitsEmpty(j *Job) bool {
	full := complete(Spec{Clusters: s.Clusters, Queues: s.Queues, Jobs: []Job{*j}})
	job, flavors := &full.Jobs[0], full.flavors()
	if !newQuota(full.Queues, flavors).takes(job, job.Devices*job.allPods()) {
		return false
	}
	for i := range full.Clusters {
		if emptyCluster(&full.Clusters[i]).placeable(job, job.allPods()) >= job.allPods() {
			return true
		}
	}
	return false
}

// emptyCluster has all nodes that the cluster can have, and no pods.
func emptyCluster(spec *Cluster) *cluster {
	c := &cluster{spec: spec, added: map[*Pool]int{}}
	for i := range spec.Pools {
		for range spec.Pools[i].Nodes {
			c.addNode(&spec.Pools[i])
		}
	}
	return c
}

type generator struct{ *rand.Rand }

func (g generator) chance(p float64) bool { return g.Float64() < p }

// oneOf draws a value; a value that occurs more often is more likely.
func oneOf[T any](g generator, values ...T) T { return values[g.IntN(len(values))] }

func (g generator) seconds(low, high int) time.Duration {
	return time.Duration(low+g.IntN(high-low+1)) * time.Second
}

// Device models of random worlds.
var models = []string{"NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-80GB", "NVIDIA-L4"}

func (g generator) clusters() []Cluster {
	var list []Cluster
	hasModels := 1 + g.IntN(2)
	for i := range 2 + g.IntN(4) {
		c := Cluster{Name: fmt.Sprintf("cluster%d", i+1), Spread: g.chance(.4)}
		for m := range hasModels {
			if m > 0 && g.chance(.4) {
				continue
			}
			p := Pool{Nodes: 1 + g.IntN(4), Resource: defaultResource, Model: models[m], Devices: oneOf[int64](g, 8, 8, 4, 2)}
			if g.chance(.5) {
				p.CPU, p.Memory = p.Devices*oneOf[int64](g, 8000, 12000, 16000), p.Devices*oneOf[int64](g, 64, 128)*1024
			}
			if g.chance(.1) {
				p.Taint = []string{"example.com/reserved", DedicatedTaint}[i%2]
			}
			if g.chance(.1) {
				p.Max, p.StartTime = p.Nodes+1+g.IntN(3), g.seconds(30, 300)
			}
			c.Pools = append(c.Pools, p)
		}
		if g.chance(.2) {
			c.PodsReadyTimeout = g.seconds(120, 900)
		}
		list = append(list, c)
	}
	return list
}

func (g generator) settings() Settings {
	gate := v1alpha1.PlacementGateSpec{}
	gate.Hold.AfterSeconds, gate.Hold.AgingSeconds = oneOf[int32](g, 60, 120, 300), oneOf[int32](g, 1200, 3600)
	if g.chance(.1) {
		gate.Hold.Mode = oneOf(g, v1alpha1.HoldShadow, v1alpha1.HoldOff)
	}
	if g.chance(.35) {
		gate.WhenUnplaceable.Mode, gate.WhenUnplaceable.YieldAfterSeconds = v1alpha1.UnplaceableYield, oneOf[int32](g, 30, 60, 300)
	}
	gate.PeriodSeconds = oneOf[int32](g, 15, 15, 5, 30)
	s := Settings{Gate: gate, WatchDelay: oneOf(g, 200*time.Millisecond, 400*time.Millisecond, 2*time.Second),
		WorkerQPS: oneOf[float64](g, 5, 5, 50), QueryTime: oneOf(g, 20*time.Millisecond, 100*time.Millisecond, 400*time.Millisecond),
		ScrapeInterval: oneOf(g, 15*time.Second, 15*time.Second, 30*time.Second)}
	if g.chance(.3) {
		s.Score = `sum by ($cluster_label) (cluster_resource_model:plimsoll_free_devices:sum)`
	}
	return s
}

func (g generator) queues(clusters []Cluster) []Queue {
	total := map[string]int64{}
	for _, c := range clusters {
		for _, p := range c.Pools {
			total[p.Model] += p.Devices * int64(p.Nodes)
		}
	}
	share := func(f float64) map[string]int64 {
		nominal := map[string]int64{}
		for model, n := range total {
			nominal[model] = max(8, int64(math.Ceil(float64(n)*f)))
		}
		return nominal
	}
	size := oneOf(g, .9, 1, 1.2, 2, 4)
	q := Queue{Name: gateName, Nominal: share(size), StrictFIFO: g.chance(.1), OtherCheck: g.chance(.1)}
	if g.chance(.3) {
		q.WithinQueue = "LowerPriority"
	}
	if !g.chance(.3) {
		return []Queue{q}
	}
	q.Cohort, q.Nominal = "all", share(size*.6)
	second := Queue{Name: "second", Cohort: "all", Nominal: share(size * .4), WithinQueue: q.WithinQueue, ReclaimCohort: oneOf(g, "", "Any", "LowerPriority")}
	q.ReclaimCohort = second.ReclaimCohort
	return []Queue{q, second}
}

func (g generator) jobs(s *Spec) []Job {
	devices := int64(0)
	for _, c := range s.Clusters {
		for _, p := range c.Pools {
			devices += p.Devices * int64(p.Nodes)
		}
	}
	load := oneOf(g, .6, .8, .95, 1.2)
	mean := g.seconds(60, 400)
	priorities := oneOf[int32](g, 1, 1, 3)
	isWhole := g.chance(.3) // pods request CPU and memory, too
	var list []Job
	at := 10 * time.Second
	for i := range 20 + g.IntN(40) {
		j := Job{Name: fmt.Sprintf("j%02d", i), Queue: s.Queues[g.IntN(len(s.Queues))].Name, Pods: 1, Devices: oneOf[int64](g, 1, 1, 1, 2, 2, 4, 8),
			Priority: g.Int32N(priorities), Duration: 20*time.Second + time.Duration(g.ExpFloat64()*float64(mean))}
		if g.chance(.15) {
			j.Pods = int64(2 + g.IntN(4))
		}
		// Without a model, the hub and the worker may assign different flavors.
		if kinds := modelsOf(s.Clusters); len(kinds) > 1 || g.chance(.25) {
			j.Model = kinds[g.IntN(len(kinds))]
		}
		if isWhole && g.chance(.4) {
			j.CPU, j.Memory = j.Devices*oneOf[int64](g, 2000, 6000, 8000), j.Devices*oneOf[int64](g, 16, 48)*1024
		}
		if g.chance(.05) {
			j.InitCPU = j.CPU * 2
		}
		if g.chance(.2) {
			j.Limit = true
		}
		if j.Pods > 1 && g.chance(.2) {
			j.MinPods = 1
		}
		if g.chance(.05) {
			j.Kind = KindGroup
		}
		if g.chance(.1) {
			j.Grace = g.seconds(5, 60)
		}
		if g.chance(.05) {
			j.Lingers = g.seconds(5, 60)
		}
		if g.chance(.03) {
			j.Behavior = oneOf(g, Crashes, NeverReady, Fails)
		}
		if g.chance(.2) {
			j.Namespace = "team-b"
		}
		if len(list)%3 == 0 {
			j.Tolerates = DedicatedTaint
		}
		list = append(list, j)
		// A burst arrives at once.
		if !g.chance(.3) {
			at += time.Duration(g.ExpFloat64() * float64(mean) * float64(2*j.Devices*j.Pods) / (load * float64(devices)))
		}
		list[i].At = at
	}
	return list
}

// modelsOf are the device models of a fleet.
func modelsOf(clusters []Cluster) []string {
	var list []string
	for _, f := range flavorsOf(clusters) {
		list = append(list, f.model)
	}
	return list
}

// faultsOf draws a schedule of faults.
func (g generator) faultsOf(s *Spec) []Fault {
	end := int(s.LastPlanned() / time.Second)
	cluster := func() string { return s.Clusters[g.IntN(len(s.Clusters))].Name }
	job := func() string { return s.Jobs[g.IntN(len(s.Jobs))].Name }
	var list []Fault
	for range 1 + g.IntN(10) {
		f := Fault{At: g.seconds(20, max(60, end)), Lasts: g.seconds(10, 400)}
		f.Kind = oneOf(g, Unreachable, Unreachable, Leaves, NodeLost, DeviceLost, SchedulerDead, StartsFail, MetricsLost, StoreLost, KueueMetricsLost,
			PrometheusDown, PrometheusSlow, Lies, OperatorDown, OperatorDown, WritesFail, HubSlow, KueueDown, QueueStopped, Deactivated, Deactivated, Preempted, Preempted, CopyLost, CopyLost, Deleted, Renominated)
		switch f.Kind {
		case Unreachable:
			f.Cluster = cluster()
			if g.chance(.2) {
				f.Lasts = g.seconds(900, 1500) // longer than MultiKueue waits
			}
		case NodeLost, DeviceLost:
			f.Cluster, f.Amount = cluster(), int64(1+g.IntN(2))
		case Leaves, SchedulerDead, StartsFail, MetricsLost, KueueMetricsLost:
			f.Cluster = cluster()
		case StoreLost:
			f.Cluster, f.Amount = cluster(), g.Int64N(2)
		case Lies:
			f.Cluster, f.Amount = cluster(), 1+g.Int64N(8)
		case PrometheusSlow:
			f.Amount = 200 + g.Int64N(12000)
		case WritesFail:
			f.Amount = 20 + g.Int64N(300)
		case HubSlow:
			f.Amount = 50 + g.Int64N(2000)
		case OperatorDown, KueueDown:
			f.Lasts = g.seconds(1, 90)
		case Deactivated, Preempted, CopyLost, Deleted, Renominated:
			f.Job = job()
			f.Lasts = g.seconds(1, 90)
		case QueueStopped:
			f.Job, f.Amount = job(), g.Int64N(2)
		default: // neither cluster nor job nor amount
		}
		list = append(list, f)
	}
	return list
}
