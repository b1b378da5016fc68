package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

//go:embed manifests/best.yaml
var bestPlacement string

// shortPeriods contains a patch per line that makes the samples react in seconds.
//
//go:embed manifests/short-periods.txt
var shortPeriods string

type periodPatch struct{ object, patch string }

// periodPatches returns the patches of shortPeriods. object is kind/name.
func periodPatches() []periodPatch {
	var patches []periodPatch
	for _, line := range strings.Split(strings.TrimSpace(shortPeriods), "\n") {
		object, patch, _ := strings.Cut(line, " ")
		patches = append(patches, periodPatch{object, patch})
	}
	return patches
}

type demo struct {
	fleet   *fleet.Fleet
	screen  *screen
	scores  scoreTable
	start   time.Time
	results []stepResult
	jobs    []string // that are running or waiting
}

type stepResult struct {
	title, outcome string
	took           time.Duration
	err            error
}

// step is a part of the demo. run returns one sentence about the outcome.
type step struct {
	title string
	limit time.Duration
	run   func(context.Context) (outcome string, err error)
}

// runSteps runs all steps and stops at the first failure.
func (d *demo) runSteps(ctx context.Context) error {
	return runSteps(ctx, d.screen, d.drawTable, []step{
		{titleInstall, 2 * time.Minute, d.install},
		{titleScores, time.Minute, d.awaitScores},
		{titleMetricChanges, time.Minute, d.changeMetric},
		{titleWholeNodes, time.Minute, d.submitWholeNodeJobs},
		{titleWaitsForRoom, time.Minute, d.submitWaitingJob},
		{titleBurst, 90 * time.Second, d.submitBurst},
		{titleOperatorKilled, time.Minute, d.killOperator},
		{titleLosesExporters, 2 * time.Minute, d.killExporters},
	}, func(r stepResult) { d.results = append(d.results, r) })
}

// runSteps runs steps with a table below their lines. It calls report after each step and
// stops at the first failure.
func runSteps(ctx context.Context, screen *screen, drawTable func(context.Context), steps []step, report func(stepResult)) error {
	for i, s := range steps {
		screen.printf("\n[%d/%d] %s\n", i+1, len(steps), s.title)
		start := time.Now()
		stepCtx, cancel := context.WithTimeout(ctx, s.limit)
		outcome, err := s.run(stepCtx)
		if screen.table != "" {
			drawTable(stepCtx)
		}
		cancel()
		screen.settle()
		report(stepResult{s.title, outcome, time.Since(start), err})
		if err != nil {
			screen.printf("      FAILED: %v\n", err)
			return fmt.Errorf("step %d of %d failed", i+1, len(steps))
		}
		screen.printf("      done in %.1fs: %s\n", time.Since(start).Seconds(), outcome)
	}
	return nil
}

func (d *demo) printSummary() {
	d.screen.printf("\nSummary after %s\n", time.Since(d.start).Round(time.Second))
	for _, r := range d.results {
		mark, text := "ok  ", r.outcome
		if r.err != nil {
			mark, text = "FAIL", r.err.Error()
		}
		d.screen.printf("  %s %5.1fs  %s\n               %s\n", mark, r.took.Seconds(), r.title, text)
	}
}

func (d *demo) install(ctx context.Context) (string, error) {
	if err := d.fleet.Install(ctx); err != nil {
		return "", err
	}
	if err := d.fleet.Hub.Apply(ctx, bestPlacement); err != nil {
		return "", err
	}
	for _, p := range periodPatches() {
		if _, err := d.fleet.Hub.Kubectl(ctx, "", "patch", p.object, "--type=merge", "-p", p.patch); err != nil {
			return "", err
		}
	}
	if err := d.fleet.SetHold(ctx, new(int32(30))); err != nil {
		return "", err
	}
	if err := d.fleet.StartExporters(ctx); err != nil {
		return "", err
	}
	if err := d.fleet.StartOperator(ctx); err != nil {
		return "", err
	}
	return "the operator is ready and runs with the permissions of its own service account", nil
}

func (d *demo) awaitScores(ctx context.Context) (string, error) {
	err := d.await(ctx, "a score of each cluster", func(ctx context.Context) error {
		for _, w := range d.fleet.Workers {
			if err := d.checkScored(ctx, w.Name); err != nil {
				return err
			}
		}
		_, err := d.bestCluster(ctx)
		return err
	})
	if err != nil {
		return "", err
	}
	best, err := d.bestCluster(ctx)
	return "all clusters have a score, and OCM chooses " + best, err
}

// checkScored returns an error unless the cluster has a score that rests on metrics.
func (d *demo) checkScored(ctx context.Context, cluster string) error {
	scores, err := d.fleet.Scores(ctx, "fleet", cluster)
	if total, ok := scores["total"]; err == nil && (!ok || total < 0) {
		err = fmt.Errorf("%s has the scores %v", cluster, scores)
	}
	return err
}

// bestCluster returns the cluster that the demo's Placement for a single cluster
// has chosen.
func (d *demo) bestCluster(ctx context.Context) (string, error) {
	clusters, err := d.fleet.Decision(ctx, "plimsoll-fleet", "best")
	if err != nil {
		return "", err
	}
	if len(clusters) != 1 {
		return "", fmt.Errorf("the Placement \"best\" has chosen %v, not one cluster", clusters)
	}
	return clusters[0], nil
}

// leftBest returns nil once OCM's best cluster is another one.
func (d *demo) leftBest(ctx context.Context, cluster string) error {
	best, err := d.bestCluster(ctx)
	if err == nil && best == cluster {
		err = fmt.Errorf("OCM still chooses %s", cluster)
	}
	return err
}

func (d *demo) changeMetric(ctx context.Context) (string, error) {
	before, err := d.bestCluster(ctx)
	if err != nil {
		return "", err
	}
	scores, err := d.fleet.Scores(ctx, "fleet", before)
	if err != nil {
		return "", err
	}
	start := time.Now()
	if err := d.fleet.SetLoad(before, 0.95); err != nil {
		return "", err
	}
	var exported, scored, decided time.Duration
	err = d.await(ctx, "OCM to choose another cluster than "+before, func(ctx context.Context) error {
		if exported == 0 {
			busy, err := d.fleet.ExporterShowsLoad(ctx, before, 50)
			if err == nil && !busy {
				err = fmt.Errorf("the exporters of %s do not show the load yet", before)
			}
			if err != nil {
				return err
			}
			exported = time.Since(start)
		}
		now, err := d.fleet.Scores(ctx, "fleet", before)
		if err != nil {
			return err
		}
		if scored == 0 {
			if now["total"] >= scores["total"] {
				return fmt.Errorf("the score of %s is still %d", before, now["total"])
			}
			scored = time.Since(start)
		}
		if err := d.leftBest(ctx, before); err != nil {
			return err
		}
		decided = time.Since(start)
		return nil
	})
	if err != nil {
		return "", err
	}
	best, err := d.bestCluster(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("OCM chooses %s instead of %s; after the exporters showed the load, the score changed in %.1fs and the decision in %.1fs",
		best, before, (scored - exported).Seconds(), (decided - exported).Seconds()), d.fleet.SetLoad(before, 0)
}

func (d *demo) submitWholeNodeJobs(ctx context.Context) (string, error) {
	var places []string
	for i := range 3 {
		name := fmt.Sprintf("train-%d", i+1)
		cluster, err := d.submitAndAwait(ctx, fleet.Job{Name: name, Model: fleet.H100, GPUs: 8})
		if err != nil {
			return "", err
		}
		if cluster == "cluster2" {
			return "", fmt.Errorf("%s runs on cluster2, which has no node with 8 H100 GPUs", name)
		}
		places = append(places, name+" on "+cluster)
	}
	return strings.Join(places, ", "), nil
}

func (d *demo) submitWaitingJob(ctx context.Context) (string, error) {
	const name = "train-4"
	d.jobs = append(d.jobs, name)
	if err := d.fleet.Submit(ctx, fleet.Job{Name: name, Model: fleet.H100, GPUs: 8}); err != nil {
		return "", err
	}
	var message string
	err := d.await(ctx, name+" to wait for free GPUs", func(ctx context.Context) error {
		v, err := d.fleet.View(ctx, name)
		if err != nil {
			return err
		}
		if message = v.CheckMessage; v.CheckState != "Pending" || !strings.Contains(message, messageNoRoom) {
			return fmt.Errorf("the check of %s is %q with the message %q", name, v.CheckState, message)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	d.screen.printf("      %s waits: %s\n", name, message)
	if err := d.deleteJob(ctx, "train-1"); err != nil {
		return "", err
	}
	cluster, err := d.awaitRunning(ctx, name)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s waited with the message %q; after train-1 ended, it started on %s", name, message, cluster), nil
}

func (d *demo) submitBurst(ctx context.Context) (string, error) {
	for _, name := range []string{"train-2", "train-3"} {
		if err := d.deleteJob(ctx, name); err != nil {
			return "", err
		}
	}
	const n = 12 // two more than fit on the best cluster
	var names []string
	for i := range n {
		name := fmt.Sprintf("burst-%d", i+1)
		names = append(names, name)
		if err := d.fleet.Submit(ctx, fleet.Job{Name: name, Model: fleet.H100, GPUs: 2, Duration: 10 * time.Minute}); err != nil {
			return "", err
		}
	}
	d.jobs = append(d.jobs, names...)
	count := map[string]int{}
	for _, name := range names {
		cluster, err := d.awaitRunning(ctx, name)
		if err != nil {
			return "", err
		}
		count[cluster]++
	}
	var counts []string
	for _, w := range d.fleet.Workers {
		counts = append(counts, fmt.Sprintf("%d on %s", count[w.Name], w.Name))
	}
	return fmt.Sprintf("%d jobs with 2 GPUs each: %s", n, strings.Join(counts, ", ")), nil
}

func (d *demo) killOperator(ctx context.Context) (string, error) {
	before, err := d.locateJobs(ctx)
	if err != nil {
		return "", err
	}
	killed := d.fleet.Programs().Pids()[fleet.Operator]
	if err := d.fleet.Programs().End(fleet.Operator, syscall.SIGKILL); err != nil {
		return "", err
	}
	d.screen.printf("      %s (pid %d) ended by SIGKILL\n", fleet.Operator, killed)
	if err := d.fleet.Programs().Restart(ctx, fleet.Operator); err != nil {
		return "", err
	}
	d.screen.printf("      %s runs again (pid %d)\n", fleet.Operator, d.fleet.Programs().Pids()[fleet.Operator])
	cluster, err := d.submitAndAwait(ctx, fleet.Job{Name: "after-restart", Model: fleet.H100, GPUs: 1})
	if err != nil {
		return "", err
	}
	if err := d.checkUnmoved(ctx, before); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d jobs run where they ran before, and a new job runs on %s", len(before), cluster), nil
}

func (d *demo) killExporters(ctx context.Context) (string, error) {
	before, err := d.locateJobs(ctx)
	if err != nil {
		return "", err
	}
	lost, err := d.bestCluster(ctx)
	if err != nil {
		return "", err
	}
	if err := d.fleet.KillExporters(lost); err != nil {
		return "", err
	}
	start := time.Now()
	err = d.await(ctx, lost+" to lose its score, and OCM to choose another cluster", func(ctx context.Context) error {
		scores, err := d.fleet.Scores(ctx, "fleet", lost)
		if err != nil {
			return err
		}
		if scores["total"] != lowestScore {
			return fmt.Errorf("the scores of %s are still %v", lost, scores)
		}
		return d.leftBest(ctx, lost)
	})
	if err != nil {
		return "", err
	}
	moved := time.Since(start)
	ended, err := d.endJobElsewhere(ctx, lost, before)
	if err != nil {
		return "", err
	}
	cluster, err := d.submitAndAwait(ctx, fleet.Job{Name: "after-loss", Model: fleet.H100, GPUs: 1})
	if err != nil {
		return "", err
	}
	if cluster == lost {
		return "", fmt.Errorf("after-loss runs on %s, which has no fresh metrics", lost)
	}
	if err := d.checkUnmoved(ctx, before); err != nil {
		return "", err
	}
	if err := d.fleet.StartExporters(ctx, lost); err != nil {
		return "", err
	}
	err = d.await(ctx, lost+" to have a score again", func(ctx context.Context) error { return d.checkScored(ctx, lost) })
	return fmt.Sprintf("%s got the score -100 and OCM chose another cluster %.1fs after its exporters ended; %s ended and a new job runs on %s; %d jobs run where they ran before; the exporters are back",
		lost, moved.Seconds(), ended, cluster, len(before)), err
}

// endJobElsewhere ends a job on another cluster than lost, because the other
// clusters may be full. It removes the job from running and returns its name.
func (d *demo) endJobElsewhere(ctx context.Context, lost string, running map[string]string) (string, error) {
	i := slices.IndexFunc(d.jobs, func(job string) bool { return running[job] != lost })
	if i < 0 {
		return "", errors.New("all jobs run on " + lost + ", so none can end on another cluster")
	}
	job := d.jobs[i]
	delete(running, job)
	return job, d.deleteJob(ctx, job)
}
