package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"plimsoll.dev/plimsoll/operator/embedded"
	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// embeddedDemo is the part of the demo that needs no component of the fleet: exporters
// with simulated GPUs, and Prometheus and the operator's decisions in this process.
type embeddedDemo struct {
	nodes      *fleet.Fleet
	prometheus *embedded.Prometheus
	hub        *embedded.Hub
	screen     *screen
	scores     scoreTable
	clusters   []string
	// progress describes the build of the fleet; "" = none.
	progress func() string
	running  map[string]runningJob
}

type runningJob struct {
	decision embedded.Decision
	pod      *corev1.Pod
}

// newEmbeddedDemo loads the rules and the samples of the repository at root.
func newEmbeddedDemo(ctx context.Context, nodes *fleet.Fleet, root string, s *screen) (*embeddedDemo, error) {
	log, err := os.Create(filepath.Join(nodes.Dir(), "logs", "embedded.log"))
	if err != nil {
		return nil, err
	}
	d := &embeddedDemo{nodes: nodes, screen: s, progress: func() string { return "" }, running: map[string]runningJob{}}
	o := embedded.PrometheusOptions{
		RuleFiles: []string{filepath.Join(root, "rules", "recording-nodes.yaml"), filepath.Join(root, "rules", "recording-devices.yaml")},
		Logger:    slog.New(slog.NewTextHandler(log, nil)),
	}
	for _, w := range fleet.DefaultWorkers() {
		d.clusters = append(d.clusters, w.Name)
		for _, address := range nodes.Targets(w.Name) {
			o.Targets = append(o.Targets, embedded.Target{Cluster: w.Name, Address: address})
		}
	}
	if d.prometheus, err = embedded.NewPrometheus(o); err != nil {
		return nil, err
	}
	policy, err := readManifest(root, "policy.yaml", "scoringpolicy/fleet")
	if err != nil {
		return nil, err
	}
	gate, err := readManifest(root, "gate.yaml", "placementgate/gpu")
	if err != nil {
		return nil, err
	}
	d.hub, err = embedded.NewHub(ctx, embedded.HubOptions{Policy: policy, Gate: gate, Clusters: d.clusters, Source: d.prometheus.Query})
	return d, err
}

// readManifest reads an object of the hub's samples. Its periods are as short as on the
// fleet.
func readManifest(root, file, object string) (m embedded.Manifest, err error) {
	m.Object, err = os.ReadFile(filepath.Join(root, "config", "samples", "hub", file))
	for _, p := range periodPatches() {
		if p.object == object {
			m.Patch = []byte(p.patch)
		}
	}
	return m, err
}

// runSteps runs all steps and stops at the first failure.
func (d *embeddedDemo) runSteps(ctx context.Context) error {
	d.screen.printf("%s", legend)
	return runSteps(ctx, d.screen, d.drawTable, []step{
		{titleEmbeddedScores, 30 * time.Second, d.awaitScores},
		{titleEmbeddedBurst, 30 * time.Second, d.submitBurst},
		{titleEmbeddedWait, time.Minute, d.submitBigJobs},
	}, func(stepResult) {})
}

func (d *embeddedDemo) awaitScores(ctx context.Context) (string, error) {
	err := d.await(ctx, "a score of each cluster", func(context.Context) error {
		for _, c := range d.clusters {
			if total, ok := d.hub.Scores(c)["total"]; !ok || total == lowestScore {
				return fmt.Errorf("%s has the scores %v", c, d.hub.Scores(c))
			}
		}
		return nil
	})
	return "12 exporters, the shipped recording rules and the policy of config/samples/hub gave each cluster a score", err
}

func (d *embeddedDemo) submitBurst(ctx context.Context) (string, error) {
	const n = 12
	count, passedOver, start := map[string]int{}, "", time.Now()
	for i := range n {
		decision, err := d.place(ctx, fleet.Job{Name: fmt.Sprintf("burst-%d", i+1), Model: fleet.H100, GPUs: 2})
		if err != nil {
			return "", err
		}
		count[decision.Cluster]++
		passedOver = cmp.Or(passedOver, decision.PassedOver)
	}
	took := time.Since(start)
	if count[""] > 0 {
		return "", fmt.Errorf("%d of %d jobs wait, although all fit", count[""], n)
	}
	if passedOver != "" {
		d.screen.printf("      The best total, not chosen: %s\n", passedOver)
	}
	if err := d.awaitFree(ctx, "the metrics to show the jobs", 44-2*n); err != nil {
		return "", err
	}
	if err := d.awaitRound(ctx); err != nil {
		return "", err
	}
	var counts []string
	for _, c := range d.clusters {
		counts = append(counts, fmt.Sprintf("%d on %s", count[c], c))
	}
	return fmt.Sprintf("%d jobs with 2 GPUs each: %s; all were placed within %s, before the metrics showed the first one: the ledger counts what was promised",
		n, strings.Join(counts, ", "), took.Round(time.Millisecond)), nil
}

func (d *embeddedDemo) submitBigJobs(ctx context.Context) (string, error) {
	for name := range d.running {
		d.end(name)
	}
	if err := d.awaitFree(ctx, "the metrics to show the free GPUs", 44); err != nil {
		return "", err
	}
	for i := range 3 {
		name := fmt.Sprintf("train-%d", i+1)
		if _, err := d.place(ctx, fleet.Job{Name: name, Model: fleet.H100, GPUs: 8}); err != nil {
			return "", err
		}
		if _, ok := d.running[name]; !ok {
			return "", fmt.Errorf("%s does not run, although it fits", name)
		}
	}
	big := fleet.Job{Name: "train-4", Model: fleet.H100, GPUs: 8}
	if err := d.awaitFree(ctx, "the metrics to show the jobs", 20); err != nil {
		return "", err
	}
	if decision, err := d.place(ctx, big); err != nil || decision.Cluster != "" {
		return "", fmt.Errorf("train-4 runs on %q, although no node has 8 free GPUs (%w)", decision.Cluster, err)
	}
	var decision embedded.Decision
	err := d.await(ctx, "the message of train-4 to follow the metrics", func(ctx context.Context) (err error) {
		decision, err = d.hub.Decide(ctx, big.Object())
		if err == nil && !strings.Contains(decision.Message, messageNoRoom) {
			err = fmt.Errorf("the message is %q", decision.Message)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	d.screen.printf("\n      Why it waits, as kubectl plimsoll explain workload shows it on a hub:\n%s\n", indent(decision.Explanation))
	first := d.running["train-1"].decision.Cluster
	d.end("train-1")
	err = d.await(ctx, "train-4 to start", func(ctx context.Context) (err error) {
		decision, err = d.hub.Decide(ctx, big.Object())
		if err == nil && decision.Cluster == "" {
			err = fmt.Errorf("it still waits: %s", decision.Message)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	if err := d.start(big, decision); err != nil {
		return "", err
	}
	return fmt.Sprintf("train-4 waited; train-1 on %s ended, and train-4 started on %s", first, decision.Cluster), d.awaitFree(ctx, "the metrics to show it", 20)
}

// place lets the gate decide about a job, and runs its pod on the chosen cluster. The explanation of a job
// that waits has the reason.
func (d *embeddedDemo) place(ctx context.Context, j fleet.Job) (embedded.Decision, error) {
	decision, err := d.hub.Decide(ctx, j.Object())
	if err != nil {
		return decision, err
	}
	if decision.Cluster == "" {
		d.screen.printf("      %-14s waits\n", j.Name)
		return decision, nil
	}
	return decision, d.start(j, decision)
}

// start runs the pod of a job on the cluster that the gate has chosen.
func (d *embeddedDemo) start(j fleet.Job, decision embedded.Decision) error {
	job := j.Object()
	d.screen.printf("      %-14s -> %s: %s\n", j.Name, decision.Cluster, decision.Message)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: j.Name, UID: types.UID(j.Name)}, Spec: job.Spec.Template.Spec,
	}
	if err := d.nodes.RunPod(decision.Cluster, j.Model, pod); err != nil {
		return err
	}
	d.hub.Admitted(decision)
	d.running[j.Name] = runningJob{decision, pod}
	return nil
}

func (d *embeddedDemo) end(name string) {
	r := d.running[name]
	d.nodes.EndPod(r.decision.Cluster, r.pod)
	d.hub.Ended(r.decision)
	delete(d.running, name)
}

// awaitRound waits for a scoring round that starts after now.
func (d *embeddedDemo) awaitRound(ctx context.Context) error {
	now := time.Now()
	return d.await(ctx, "a scoring round", func(context.Context) error {
		if last := d.hub.LastRound(); last.Before(now) {
			return fmt.Errorf("the last one was at %s", last.Format(time.TimeOnly))
		}
		return nil
	})
}

// awaitFree waits until the metrics show this number of free H100s in all clusters.
func (d *embeddedDemo) awaitFree(ctx context.Context, what string, want float64) error {
	return d.await(ctx, what, func(ctx context.Context) error {
		free, err := d.prometheus.ByCluster(ctx, queryFree)
		sum := 0.0
		for _, n := range free {
			sum += n
		}
		if err == nil && sum != want {
			err = fmt.Errorf("%g H100s are free, want %g", sum, want)
		}
		return err
	})
}

func (d *embeddedDemo) await(ctx context.Context, what string, done func(context.Context) error) error {
	return awaitWithTable(ctx, what, d.drawTable, done)
}

func (d *embeddedDemo) drawTable(ctx context.Context) {
	table, err := d.table(ctx)
	if ctx.Err() != nil { // keep the last table
		return
	}
	if err != nil {
		table = fmt.Sprintf("      no table: %v\n", err)
	}
	d.screen.draw(table + d.footer())
}

func (d *embeddedDemo) table(ctx context.Context) (string, error) {
	free, err := d.prometheus.ByCluster(ctx, queryFree)
	if err != nil {
		return "", err
	}
	onOneNode, err := d.prometheus.ByCluster(ctx, queryOnOneNode)
	if err != nil {
		return "", err
	}
	var rows []row
	for _, c := range d.clusters {
		rows = append(rows, row{cluster: c, free: free, onOneNode: onOneNode, scores: d.hub.Scores(c)})
	}
	return d.scores.format(rows)
}

// footer states what is missing and how far the fleet is.
func (d *embeddedDemo) footer() string {
	if progress := d.progress(); progress != "" {
		return fmt.Sprintf("%s Fleet: %s\n", notShown, progress)
	}
	return notShown + "\n"
}

func indent(text string) string {
	indented := strings.ReplaceAll("\n"+strings.TrimRight(text, "\n"), "\n", "\n      ")
	return strings.ReplaceAll(indented, "\n      \n", "\n\n")[1:]
}
