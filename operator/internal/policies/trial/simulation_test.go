package trial

import (
	"fmt"
	"math"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/policies/profile"
)

// The simulation runs jobs on a fleet with one device model per cluster, with metrics that are up
// to simScrape seconds old. It uses the product's functions: Next and NewCopy, the status of the
// policy, the JobProfile, shape.FactsOf, gate.Decide and the ledger. A job holds quota of the hub
// during its trial. Copies have quota of their own, and jobs are decided before them.

const (
	simStep        = 5  // seconds
	simScrape      = 15 // seconds
	simNodes       = 6  // of each cluster
	simNodeDevices = 8
	simHalfLife    = 720 * time.Hour
	modelLabel     = "nvidia.com/gpu.product"
)

// simProgram is a program that runs once or several times. Its profile belongs to it.
type simProgram struct {
	name          string
	devices, pods int64
	// speed by model, 1 on the fastest one. A trial measures it as throughput.
	speed   map[string]float64
	seconds float64 // mean duration on the fastest model
	profile v1alpha1.JobProfileStatus
}

// simJob is a job, or a copy of one.
type simJob struct {
	uid      string
	program  *simProgram
	template corev1.PodTemplateSpec
	pods     int64
	seconds  float64 // on the fastest model
	arrives  int     // second
	// The following are seconds, -1 before the event.
	reserved, passed, started, ended int

	copies   map[string]*simJob // of a job, by model
	original *simJob            // of a copy
	facts    shape.Facts        // when it was sent
	cluster  *simCluster
	nodes    []int // of its pods
}

func newSimJob(uid string, p *simProgram, template corev1.PodTemplateSpec, pods int64, seconds float64, arrives int) *simJob {
	return &simJob{uid: uid, program: p, template: template, pods: pods, seconds: seconds, arrives: arrives, reserved: -1, passed: -1, started: -1, ended: -1}
}

func (j *simJob) devices() int64 { return j.program.devices * j.pods }

// workload returns the Workload that Kueue makes of the job.
func (j *simJob) workload() *kueue.Workload {
	return &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: j.uid, UID: types.UID(j.uid)},
		Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "main", Count: int32(j.pods), Template: j.template}}}}
}

// simCluster has nodes with one device model.
type simCluster struct {
	name, model string
	free        []int64   // devices by node
	sampled     []int64   // free at the last scrape
	sent        []*simJob // not started
}

// podsOn returns how many pods fit on nodes with free devices.
func podsOn(free []int64, devicesPerPod int64) (pods int64) {
	for _, n := range free {
		pods += n / devicesPerPod
	}
	return pods
}

// start starts a job if all of its pods fit, each on the node with the fewest free devices.
func (c *simCluster) start(j *simJob, second int) bool {
	if podsOn(c.free, j.program.devices) < j.pods {
		return false
	}
	for range j.pods {
		best := -1
		for i, free := range c.free {
			if free >= j.program.devices && (best < 0 || free < c.free[best]) {
				best = i
			}
		}
		c.free[best] -= j.program.devices
		j.nodes = append(j.nodes, best)
	}
	j.started, j.cluster = second, c
	return true
}

// simStrategy says what the gate and the trials know.
type simStrategy struct {
	name string
	// usesProfiles is true if the gate has the query preference of config/samples/gates/fastest-model.yaml.
	usesProfiles bool
	// scores is a score of each model for all jobs. Nil = no score.
	scores map[string]int32
	// trials is the policy of trial runs. Nil = none.
	trials *v1alpha1.TrialPolicySpec
}

type simulation struct {
	strategy simStrategy
	policy   *v1alpha1.TrialPolicy
	clusters []*simCluster
	ledger   *ledger.Ledger
	quota    int64 // devices that no job reserved

	second, sampledAt int
	pending           []*simJob // without quota
	waiting           []*simJob // with quota, not sent
	running           []*simJob
	finished          int
	copies            int  // that were created
	hasNew            bool // jobs to decide
}

func (s *simulation) now() time.Time { return noon.Add(time.Duration(s.second) * time.Second) }

func (s *simulation) at(second int) time.Time { return noon.Add(time.Duration(second) * time.Second) }

// simulate runs all jobs to their end.
func simulate(models []string, jobs []*simJob, strategy simStrategy) *simulation {
	s := &simulation{strategy: strategy, ledger: ledger.New(0, 10*time.Minute), policy: &v1alpha1.TrialPolicy{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}}
	if strategy.trials != nil {
		s.policy.Spec = *strategy.trials
	}
	for i, model := range models {
		c := &simCluster{name: fmt.Sprint("cluster", i+1), model: model}
		for range simNodes {
			c.free = append(c.free, simNodeDevices)
			s.quota += simNodeDevices
		}
		s.clusters = append(s.clusters, c)
	}
	next := 0
	for ; s.finished < len(jobs); s.second += simStep {
		s.endRuns()
		for ; next < len(jobs) && jobs[next].arrives <= s.second; next++ {
			s.pending = append(s.pending, jobs[next])
		}
		s.reserveQuota()
		s.advanceTrials()
		if s.second%simScrape == 0 {
			s.scrape()
			s.hasNew = true
		}
		if s.hasNew {
			s.sendWaiting()
		}
		s.startSent()
	}
	return s
}

func (s *simulation) endRuns() {
	s.running = slices.DeleteFunc(s.running, func(j *simJob) bool {
		duration := j.seconds / j.program.speed[j.cluster.model]
		if j.original != nil {
			duration = min(duration, RunTime(s.policy).Seconds())
		}
		if float64(s.second-j.started) < duration {
			return false
		}
		s.end(j)
		if j.original == nil {
			s.finished++
			s.quota += j.devices()
			profile.Add(&j.program.profile, profile.Key{}, profile.NewRun(j.uid, s.now(), time.Duration(duration)*time.Second,
				map[v1alpha1.ProfileQuantity]map[string]float64{v1alpha1.QuantityUtilization: {j.cluster.model: 0.9}}), simHalfLife)
		}
		return true
	})
}

// end returns the devices of a job.
func (s *simulation) end(j *simJob) {
	for _, node := range j.nodes {
		j.cluster.free[node] += j.program.devices
	}
	j.ended = s.second
	s.ledger.Release(j.uid)
	s.ledger.Credit(ledger.Credit{Cluster: j.cluster.name, PodSets: j.facts.PodSets, FinishedAt: s.now()})
}

// reserveQuota reserves quota in the order of arrival. Jobs that fit pass those that do not.
func (s *simulation) reserveQuota() {
	s.pending = slices.DeleteFunc(s.pending, func(j *simJob) bool {
		if j.devices() > s.quota {
			return false
		}
		s.quota -= j.devices()
		j.reserved = s.second
		if s.strategy.trials == nil {
			j.passed, s.hasNew = s.second, true
		}
		s.waiting = append(s.waiting, j)
		return true
	})
}

func (s *simulation) scrape() {
	s.sampledAt = s.second
	sampled := map[string]ledger.SampleTimes{}
	for _, c := range s.clusters {
		c.sampled = slices.Clone(c.free)
		sampled[c.name] = ledger.SampleTimes{Devices: s.now()}
	}
	s.ledger.Expire(sampled, s.now())
}

// sendWaiting decides the jobs whose checks are Ready, and then the copies.
func (s *simulation) sendWaiting() {
	s.hasNew = false
	for _, copies := range []bool{false, true} {
		s.waiting = slices.DeleteFunc(s.waiting, func(j *simJob) bool {
			return (j.original != nil) == copies && j.passed >= 0 && s.send(j)
		})
	}
}

// send decides a job. It returns false if no cluster has room.
func (s *simulation) send(j *simJob) bool {
	options := shape.Options{ModelFrom: []string{modelLabel}}
	if s.strategy.usesProfiles {
		options.Profile = &j.program.profile
	}
	j.facts = shape.FactsOf(j.workload(), options)
	var candidates []gate.Candidate
	for _, c := range s.clusters {
		candidates = append(candidates, s.candidate(c, j.facts.PodSets[0]))
	}
	view := s.ledger.View()
	rules := gate.RulesOf(&v1alpha1.PlacementGateSpec{})
	if s.strategy.scores != nil {
		rules.Scores = []v1alpha1.GateScore{{ResourceName: "models", ScoreName: "speed", Use: v1alpha1.UsePrefer}}
	}
	order := gate.Decide(j.facts, candidates, gate.Fleet{}, view, rules, 1, s.now()).Order
	if len(order) == 0 {
		return false
	}
	s.ledger.Commit(view, j.uid, nil, []ledger.Entry{{UID: j.uid, Workload: j.facts.Key(), Cluster: order[0], PodSets: j.facts.PodSets, DebitedAt: s.now()}}, nil)
	i := slices.IndexFunc(s.clusters, func(c *simCluster) bool { return c.name == order[0] })
	s.clusters[i].sent = append(s.clusters[i].sent, j)
	return true
}

// candidate returns what the gate's queries return for a cluster.
func (s *simulation) candidate(c *simCluster, p shape.PodSet) gate.Candidate {
	m := gate.ShapeMetrics{Fit: gate.Known(0), Headroom: gate.Known(0), Capacity: gate.Known(0)}
	if p.Model == "" || p.Model == c.model {
		m.Fit.Value, m.Capacity.Value = float64(podsOn(c.sampled, p.DevicesPerPod)), float64(simNodeDevices*len(c.free))
		m.Headroom.Value = float64(podsOn(c.sampled, 1))
	}
	candidate := gate.Candidate{Name: c.name, SampledAt: s.at(s.sampledAt), Shapes: []gate.ShapeMetrics{m}}
	if s.strategy.scores != nil {
		candidate.Scores = map[string]gate.Score{gate.ScoreKey("models", "speed"): {Value: s.strategy.scores[c.model]}}
	}
	if p.Profile != nil && p.Profile.BestModel != "" {
		candidate.Preference = gate.Known(0)
		if p.Profile.BestModel == c.model && m.Fit.Value >= float64(p.Pods) {
			candidate.Preference = gate.Known(1)
		}
	}
	return candidate
}

func (s *simulation) startSent() {
	for _, c := range s.clusters {
		c.sent = slices.DeleteFunc(c.sent, func(j *simJob) bool {
			if !c.start(j, s.second) {
				return false
			}
			s.ledger.MarkAdmitted(j.uid, c.name, s.now(), false)
			s.running = append(s.running, j)
			return true
		})
	}
}

// advanceTrials does for each job whose check is Pending what a reconciliation does.
func (s *simulation) advanceTrials() {
	for _, j := range slices.Clone(s.waiting) {
		for j.passed < 0 {
			if !s.takeStep(j) {
				break
			}
		}
	}
}

// takeStep carries out the next step of a trial. It returns false if the step waits.
func (s *simulation) takeStep(j *simJob) bool {
	switch step := Next(s.stateOf(j)); step.Action {
	case Pass:
		s.deleteCopies(j, nil)
		End(&s.policy.Status, func(t v1alpha1.RunningTrial) bool { return t.WorkloadUID == j.uid })
		j.passed, s.hasNew = s.second, true
	case Reserve:
		Begin(&s.policy.Status, v1alpha1.RunningTrial{WorkloadUID: j.uid, Profile: j.program.name, Models: step.Models}, s.now())
	case Create:
		s.createCopies(j, step.Models)
	case Measure:
		s.measure(j, step.Models)
		s.deleteCopies(j, step.Models)
		EndCopies(&s.policy.Status, j.uid, step.Models)
	case Wait:
		return false
	}
	return true
}

func (s *simulation) stateOf(j *simJob) State {
	state := State{Now: s.now(), Policy: s.policy, PolicyName: s.policy.Name, Devices: j.devices(), UID: j.uid, Profile: j.program.name, ReservedAt: s.at(j.reserved), Copies: map[string]Copy{}}
	for _, model := range s.policy.Spec.Models {
		state.Fitting = append(state.Fitting, model.Name)
	}
	state.Known = map[string]string{}
	for i := range j.program.profile.Models {
		if m := &j.program.profile.Models[i]; m.Trials > 0 { // the policy has a throughputQuery
			state.Known[m.Model] = m.ThroughputP50
		}
	}
	for model, c := range j.copies {
		observed := Copy{IsQueued: true}
		if c.started >= 0 {
			observed.Started = s.at(c.started)
		}
		if c.ended >= 0 {
			observed.Ended = s.at(c.ended)
		}
		state.Copies[model] = observed
	}
	return state
}

func (s *simulation) createCopies(j *simJob, models []string) {
	if j.copies == nil {
		j.copies = map[string]*simJob{}
	}
	original := &batchv1.Job{Spec: batchv1.JobSpec{Template: j.template}}
	for _, model := range s.policy.Spec.Models {
		if !slices.Contains(models, model.Name) {
			continue
		}
		object := NewCopy(original, j.workload(), s.policy, model)
		c := newSimJob(object.Name, j.program, object.Spec.Template, 1, math.Inf(1), s.second)
		c.original, c.passed = j, s.second
		j.copies[model.Name] = c
		s.waiting = append(s.waiting, c)
		s.copies++
	}
}

// measure adds the throughput of copies that ran to the profile.
func (s *simulation) measure(j *simJob, models []string) {
	for _, model := range models {
		if c := j.copies[model]; c != nil && c.ended >= 0 {
			results := map[v1alpha1.ProfileQuantity]map[string]float64{v1alpha1.QuantityThroughput: {model: j.program.speed[model]}}
			profile.Add(&j.program.profile, profile.Key{}, profile.NewTrial(c.uid, s.now(), results), simHalfLife)
		}
	}
}

// deleteCopies deletes copies, those that run, too. Nil models means all.
func (s *simulation) deleteCopies(j *simJob, models []string) {
	for _, model := range s.policy.Spec.Models {
		c := j.copies[model.Name]
		if c == nil || models != nil && !slices.Contains(models, model.Name) {
			continue
		}
		isCopy := func(other *simJob) bool { return other == c }
		for _, cluster := range s.clusters {
			cluster.sent = slices.DeleteFunc(cluster.sent, isCopy)
		}
		s.waiting = slices.DeleteFunc(s.waiting, isCopy)
		s.running = slices.DeleteFunc(s.running, isCopy)
		if c.started >= 0 && c.ended < 0 {
			s.end(c)
		}
		s.ledger.Release(c.uid)
		delete(j.copies, model.Name)
	}
}

// podTemplate returns the pods of a job that runs on any device model.
func podTemplate(devices int64) corev1.PodTemplateSpec {
	limits := corev1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(devices, resource.DecimalSI)}
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "train:1", Resources: corev1.ResourceRequirements{Limits: limits}}}}}
}
