package trial

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

const (
	simH100 = "NVIDIA-H100-80GB-HBM3"
	simL40S = "NVIDIA-L40S"
	simA100 = "NVIDIA-A100-SXM4-80GB"
)

var simModels = []string{simH100, simL40S, simA100}

// simSpeeds are the relative speeds of four kinds of programs. The first three are ratios of the
// data sheets: BF16 (989, 362, 312 TFLOPS), FP32 (67, 91.6, 19.5 TFLOPS) and memory bandwidth
// (3350, 864, 2039 GB/s). The host limits the fourth.
var simSpeeds = []map[string]float64{
	{simH100: 1, simL40S: 0.37, simA100: 0.32},
	{simH100: 0.73, simL40S: 1, simA100: 0.21},
	{simH100: 1, simL40S: 0.26, simA100: 0.61},
	{simH100: 1, simL40S: 1, simA100: 1},
}

// trace describes the jobs of a simulation.
type trace struct {
	minutes float64 // mean duration of a job on its fastest model
	runs    int     // of each program
	load    float64 // of the devices, if each job ran on a random model
}

const (
	simSeeds   = 3 // over which the means are taken
	simJobs    = 300
	largeJob   = 8 // devices with which trials begin
	trialLimit = 900
)

// jobs returns the jobs of a trace: half of the programs have 8 to 32 devices, the others 1 to 4.
func (tr trace) jobs(seed uint64) []*simJob {
	random := rand.New(rand.NewPCG(20261125, seed))
	var programs []*simProgram
	work := 0.0 // device-seconds of all programs on random models
	for i := range simJobs / tr.runs {
		p := &simProgram{name: fmt.Sprint("program-", i), devices: 8, pods: []int64{1, 1, 2, 4}[random.IntN(4)], speed: simSpeeds[random.IntN(len(simSpeeds))]}
		if i%2 == 1 {
			p.devices, p.pods = []int64{1, 1, 2, 4}[random.IntN(4)], 1
		}
		p.seconds = tr.minutes * 60 * (0.25 + 1.5*random.Float64())
		for _, model := range simModels {
			work += float64(p.devices*p.pods) * p.seconds / p.speed[model] / float64(len(simModels))
		}
		programs = append(programs, p)
	}
	every := work / float64(len(programs)) / (tr.load * float64(len(simModels)*simNodes*simNodeDevices))
	var jobs []*simJob
	at := 0.0
	for i := range simJobs {
		p := programs[i%len(programs)]
		at += random.ExpFloat64() * every
		jobs = append(jobs, newSimJob(fmt.Sprint("job-", i), p, podTemplate(p.devices), p.pods, p.seconds*(0.9+0.2*random.Float64()), int(at)))
	}
	return jobs
}

// modelScore prefers the model that is the fastest one for most programs.
var modelScore = map[string]int32{simH100: 100, simL40S: 50, simA100: 50}

var (
	withoutProfiles = simStrategy{name: "no profiles"}
	withRuns        = simStrategy{name: "profiles of runs", usesProfiles: true}
	withTrials      = simStrategy{name: "trials", usesProfiles: true, trials: trialSpec()}
	withScore       = simStrategy{name: "score of models", scores: modelScore}
	withScoreTrials = simStrategy{name: "score and trials", scores: modelScore, usesProfiles: true, trials: trialSpec()}
	strategies      = []simStrategy{withoutProfiles, withRuns, withTrials, withScore, withScoreTrials}
)

// trialSpec has the default times, and limits that no trace reaches.
func trialSpec() *v1alpha1.TrialPolicySpec {
	spec := &v1alpha1.TrialPolicySpec{MinDevices: largeJob, RunSeconds: 300, WaitSeconds: trialLimit, MaxCopiesPerDay: 1000, MaxConcurrent: 20}
	for _, model := range simModels {
		spec.Models = append(spec.Models, v1alpha1.TrialModel{Name: model, NodeSelector: map[string]string{modelLabel: model}})
	}
	return spec
}

// completion holds the mean times from the arrival of a job to its end, in minutes.
type completion struct {
	all, large float64
	trials     float64 // seconds for which tried jobs waited for their trials, mean
}

// run simulates a trace with a strategy. It fails the test if a trial outlives its limit, or leaves
// anything behind.
func (tr trace) run(t testing.TB, strategy simStrategy) (c completion) {
	var all, large, tried int
	for seed := range uint64(simSeeds) {
		jobs := tr.jobs(seed)
		s := simulate(simModels, jobs, strategy)
		for _, j := range jobs {
			minutes, wait := float64(j.ended-j.arrives)/60, j.passed-j.reserved
			c.all, all = c.all+minutes, all+1
			if j.devices() >= largeJob {
				c.large, large = c.large+minutes, large+1
			}
			if wait > 0 {
				c.trials, tried = c.trials+float64(wait), tried+1
			}
			if wait > trialLimit || len(j.copies) > 0 {
				t.Errorf("%+v, %s: %s waited %d s for its trial and has %d copies, want at most %d s and none", tr, strategy.name, j.uid, wait, len(j.copies), trialLimit)
			}
		}
		if held := s.ledger.DevicesByCluster(); len(held) > 0 || len(s.running)+len(s.waiting) > 0 || len(s.policy.Status.Trials) > 0 {
			t.Errorf("%+v, %s: the ledger holds %v, %d run, %d wait, and the policy has %d trials after the last job, want nothing",
				tr, strategy.name, held, len(s.running), len(s.waiting), len(s.policy.Status.Trials))
		}
	}
	return completion{c.all / float64(all), c.large / float64(large), c.trials / float64(max(tried, 1))}
}

// BenchmarkTrials prints the table of operator/docs/trials.md. Run it once:
//
//	go test ./operator/internal/policies/trial -run '^$' -bench Trials -benchtime 1x
func BenchmarkTrials(b *testing.B) {
	for b.Loop() {
		var table strings.Builder
		table.WriteString("\n| load | runs of each program | minutes on the fastest model |")
		for _, s := range strategies {
			fmt.Fprintf(&table, " %s |", s.name)
		}
		table.WriteString(" wait for a trial, s |\n|---|---|---|---|---|---|---|---|---|\n")
		for _, load := range []float64{0.5, 0.8} {
			for _, runs := range []int{1, 5} {
				for _, minutes := range []float64{5, 15, 30, 60, 240} {
					fmt.Fprintf(&table, "| %.1f | %d | %.0f |", load, runs, minutes)
					var wait float64
					for _, s := range strategies {
						c := trace{minutes, runs, load}.run(b, s)
						fmt.Fprintf(&table, " %.0f (%.0f) |", c.large, c.all)
						wait = max(wait, c.trials)
					}
					fmt.Fprintf(&table, " %.0f |\n", wait)
				}
			}
		}
		fmt.Println(table.String())
	}
}

// Every job is the first of its program. A trial takes some minutes, so jobs of an hour end sooner
// with it, and jobs of five minutes end later.
func TestTrialsShortenLongJobs(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates many cases")
	}
	for _, tc := range []struct {
		name          string
		minutes       float64
		before, after simStrategy
		least, most   float64 // mean completion of large jobs with trials, relative to that without
	}{
		{"an hour", 60, withoutProfiles, withTrials, 0.5, 0.8},
		{"an hour, models have a score", 60, withScore, withScoreTrials, 0.5, 0.95},
		{"five minutes", 5, withoutProfiles, withTrials, 1.2, 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tr := trace{tc.minutes, 1, 0.5}
			before, after := tr.run(t, tc.before), tr.run(t, tc.after)
			t.Logf("mean completion of large jobs: %s %.1f min, %s %.1f min; of all jobs: %.1f and %.1f min", tc.before.name, before.large, tc.after.name, after.large, before.all, after.all)
			if ratio := after.large / before.large; ratio < tc.least || ratio > tc.most {
				t.Errorf("trials change the mean completion by the factor %.2f, want %.2f to %.2f", ratio, tc.least, tc.most)
			}
		})
	}
}
