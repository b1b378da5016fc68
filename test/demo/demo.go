package main

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

//go:embed manifests/best.yaml
var bestPlacement string

//go:embed manifests/pace.txt
var pace string

type demo struct {
	fleet  *fleet.Fleet
	screen *screen
	start  time.Time
	done   []outcome
	jobs   []string
}

type outcome struct {
	title, seen string
	took        time.Duration
	err         error
}

// step runs one step to its end and stops the demo at the first that is not seen.
type step struct {
	title string
	limit time.Duration
	run   func(context.Context) (seen string, err error)
}

func (d *demo) steps(ctx context.Context) error {
	all := []step{
		{"Install Plimsoll: CRDs, roles, samples, an exporter on each GPU node, the operator", 2 * time.Minute, d.install},
		{"Metrics become scores: every cluster has one, and OCM decides by them", time.Minute, d.scores},
		{"A metric changes: others load the best cluster, and the decision moves", time.Minute, d.metricChanges},
		{"Jobs of 8 GPUs on one node: cluster2 has the most H100s, but no node with eight", time.Minute, d.wholeNodes},
		{"No room anywhere: the next such job waits and says for what; it starts when room appears", time.Minute, d.waitsForRoom},
		{"Two big jobs end, and a burst of small ones fills the best cluster first, then the others", 90 * time.Second, d.burst},
		{"The operator is killed and comes back: nothing moves", time.Minute, d.operatorKilled},
		{"The best cluster loses its exporters: the decision moves, what runs there runs on", 90 * time.Second, d.losesExporters},
	}
	for i, s := range all {
		d.screen.printf("\n[%d/%d] %s\n", i+1, len(all), s.title)
		start := time.Now()
		sctx, cancel := context.WithTimeout(ctx, s.limit)
		seen, err := s.run(sctx)
		cancel()
		d.screen.settle()
		d.done = append(d.done, outcome{s.title, seen, time.Since(start), err})
		if err != nil {
			d.screen.printf("      NOT SEEN: %v\n", err)
			return fmt.Errorf("step %d of %d was not seen to happen", i+1, len(all))
		}
		d.screen.printf("      seen in %.1fs: %s\n", time.Since(start).Seconds(), seen)
	}
	return nil
}

func (d *demo) summary() {
	d.screen.printf("\nSummary after %s\n", time.Since(d.start).Round(time.Second))
	for _, o := range d.done {
		mark, text := "ok  ", o.seen
		if o.err != nil {
			mark, text = "FAIL", o.err.Error()
		}
		d.screen.printf("  %s %5.1fs  %s\n               %s\n", mark, o.took.Seconds(), o.title, text)
	}
}

func (d *demo) install(ctx context.Context) (string, error) {
	if err := d.fleet.Install(ctx); err != nil {
		return "", err
	}
	if err := d.fleet.Hub.Apply(ctx, bestPlacement); err != nil {
		return "", err
	}
	// Rounds every two seconds and short holds, so that nobody waits for minutes.
	for _, line := range strings.Split(strings.TrimSpace(pace), "\n") {
		object, patch, _ := strings.Cut(line, " ")
		if _, err := d.fleet.Hub.Kubectl(ctx, "", "patch", object, "--type=merge", "-p", patch); err != nil {
			return "", err
		}
	}
	if err := d.fleet.StartExporters(ctx); err != nil {
		return "", err
	}
	if err := d.fleet.StartOperator(ctx); err != nil {
		return "", err
	}
	return "the operator is ready, as its own service account", nil
}

func (d *demo) scores(ctx context.Context) (string, error) {
	err := d.await(ctx, "a score for each cluster", func(ctx context.Context) error {
		for _, w := range d.fleet.Workers {
			scores, err := d.fleet.Scores(ctx, "fleet", w.Name)
			if err != nil {
				return err
			}
			if total, ok := scores["total"]; !ok || total < 0 {
				return fmt.Errorf("%s has the scores %v", w.Name, scores)
			}
		}
		_, err := d.best(ctx)
		return err
	})
	if err != nil {
		return "", err
	}
	best, err := d.best(ctx)
	return "OCM's best is " + best, err
}

// best cluster by the demo's Placement that asks for one.
func (d *demo) best(ctx context.Context) (string, error) {
	clusters, err := d.fleet.Decision(ctx, "plimsoll-system", "best")
	if err != nil {
		return "", err
	}
	if len(clusters) != 1 {
		return "", fmt.Errorf("the Placement best has decided for %v", clusters)
	}
	return clusters[0], nil
}

func (d *demo) metricChanges(ctx context.Context) (string, error) {
	before, err := d.best(ctx)
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
	err = d.await(ctx, "the decision to move away from "+before, func(ctx context.Context) error {
		if exported == 0 {
			if busy, err := d.fleet.ExporterShowsLoad(ctx, before, 50); err != nil || !busy {
				return fmt.Errorf("the exporters of %s show no load yet (%v)", before, err)
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
		if best, err := d.best(ctx); err != nil || best == before {
			return fmt.Errorf("OCM's best is still %s (%v)", before, err)
		}
		decided = time.Since(start)
		return nil
	})
	if err != nil {
		return "", err
	}
	best, err := d.best(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("from %s to %s; after the exporter showed it: changed score %.1fs, changed decision %.1fs",
		before, best, (scored - exported).Seconds(), (decided - exported).Seconds()), d.fleet.SetLoad(before, 0)
}

func (d *demo) wholeNodes(ctx context.Context) (string, error) {
	var seen []string
	for i := range 3 {
		name := fmt.Sprintf("train-%d", i+1)
		cluster, err := d.submitAndRun(ctx, fleet.Job{Name: name, Model: fleet.H100, GPUs: 8})
		if err != nil {
			return "", err
		}
		if cluster == "cluster2" {
			return "", fmt.Errorf("%s went to cluster2, which has no node with 8 H100s", name)
		}
		seen = append(seen, name+" on "+cluster)
	}
	return strings.Join(seen, ", "), nil
}

func (d *demo) waitsForRoom(ctx context.Context) (string, error) {
	const name = "train-4"
	d.jobs = append(d.jobs, name)
	if err := d.fleet.Submit(ctx, fleet.Job{Name: name, Model: fleet.H100, GPUs: 8}); err != nil {
		return "", err
	}
	var message string
	err := d.await(ctx, name+" to say what it waits for", func(ctx context.Context) error {
		v, err := d.fleet.View(ctx, name)
		if err != nil {
			return err
		}
		if message = v.Message; v.Gate != "Pending" || !strings.Contains(message, "cluster2 with 6") {
			return fmt.Errorf("%s has the state %q and says %q", name, v.Gate, message)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	d.screen.printf("      %s waits: %s\n", name, message)
	if err := d.end(ctx, "train-1"); err != nil {
		return "", err
	}
	cluster, err := d.runs(ctx, name)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%q; then train-1 went and %s started on %s", message, name, cluster), nil
}

func (d *demo) burst(ctx context.Context) (string, error) {
	for _, name := range []string{"train-2", "train-3"} {
		if err := d.end(ctx, name); err != nil {
			return "", err
		}
	}
	const n = 12 // two more than the best one has room for
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
		cluster, err := d.runs(ctx, name)
		if err != nil {
			return "", err
		}
		count[cluster]++
	}
	var seen []string
	for _, w := range d.fleet.Workers {
		seen = append(seen, fmt.Sprintf("%s %d", w.Name, count[w.Name]))
	}
	return fmt.Sprintf("%d jobs of 2 GPUs: %s", n, strings.Join(seen, ", ")), nil
}

func (d *demo) operatorKilled(ctx context.Context) (string, error) {
	before, err := d.where(ctx)
	if err != nil {
		return "", err
	}
	if err := d.fleet.Programs().End("plimsoll-operator", syscall.SIGKILL); err != nil {
		return "", err
	}
	if err := d.fleet.Programs().Restart(ctx, "plimsoll-operator"); err != nil {
		return "", err
	}
	cluster, err := d.submitAndRun(ctx, fleet.Job{Name: "after-restart", Model: fleet.H100, GPUs: 1})
	if err != nil {
		return "", err
	}
	if err := d.unmoved(ctx, before); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d jobs run where they ran, and the next one runs on %s", len(before), cluster), nil
}

func (d *demo) losesExporters(ctx context.Context) (string, error) {
	before, err := d.where(ctx)
	if err != nil {
		return "", err
	}
	lost, err := d.best(ctx)
	if err != nil {
		return "", err
	}
	if err := d.fleet.KillExporters(lost); err != nil {
		return "", err
	}
	start := time.Now()
	err = d.await(ctx, "the decision to leave "+lost, func(ctx context.Context) error {
		scores, err := d.fleet.Scores(ctx, "fleet", lost)
		if err != nil {
			return err
		}
		if best, err := d.best(ctx); err != nil || best == lost {
			return fmt.Errorf("OCM's best is still %s with the scores %v (%v)", lost, scores, err)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	moved := time.Since(start)
	// The others may be full. A job of theirs ends, so that the next one has a
	// place that is known to be free.
	elsewhere := slices.IndexFunc(d.jobs, func(job string) bool { return before[job] != lost })
	if elsewhere < 0 {
		return "", fmt.Errorf("every job runs on %s: none can end elsewhere to make room", lost)
	}
	ended := d.jobs[elsewhere]
	delete(before, ended)
	if err := d.end(ctx, ended); err != nil {
		return "", err
	}
	cluster, err := d.submitAndRun(ctx, fleet.Job{Name: "after-loss", Model: fleet.H100, GPUs: 1})
	if err != nil {
		return "", err
	}
	if cluster == lost {
		return "", fmt.Errorf("after-loss went to %s, of which nothing is known", lost)
	}
	if err := d.unmoved(ctx, before); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s is blind, the decision left it after %.1fs; %s ended and the next job runs on %s; %d jobs run where they ran",
		lost, moved.Seconds(), ended, cluster, len(before)), nil
}
