//go:build e2e && long

// Package install follows the short way of config/README.md on a fleet without Plimsoll: its
// commands, as the document has them, on a hub with OCM and Kueue and two workers.
package install

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// What config/README.md promises.
const (
	maxCommands = 5
	maxTime     = 15 * time.Minute
)

// builtinDispatcher is Kueue's dispatcher before connect sets ours.
const builtinDispatcher = "kueue.x-k8s.io/multikueue-dispatcher-all-at-once"

// The first gated job runs on the only worker that has eight free H100s on a node.
func TestShortWay(t *testing.T) {
	log.SetLogger(logr.Discard()) // client-go logs lost watches
	w := newWay(t, nil)
	job := w.follow(t)
	await(w.ctx, t, job+" to run", func(ctx context.Context) error {
		v, err := w.lab.View(ctx, job)
		if err == nil && (len(v.Running) != 1 || v.Running[0] != "cluster1") {
			err = fmt.Errorf("%+v", v)
		}
		return err
	})
	w.checkGuard(t)
	w.report(t, "the job runs on cluster1")
}

// Without GPUs, the exporter simulates devices. The job is sent to a worker, where its pod
// stays Pending.
func TestShortWayWithoutGPUs(t *testing.T) {
	log.SetLogger(logr.Discard())
	w := newWay(t, map[string]any{"platform": "sim"})
	w.removeDevices(t)
	job := w.follow(t)
	await(w.ctx, t, job+" to be sent to a worker", func(ctx context.Context) error {
		v, err := w.lab.View(ctx, job)
		if err == nil && (!v.Admitted || v.Cluster == "" || v.CheckState != "Ready") {
			err = fmt.Errorf("%+v", v)
		}
		return err
	})
	w.report(t, "the job is on a worker")
}

// way is the way of a new user to the first job.
type way struct {
	ctx     context.Context
	lab     *fleet.Fleet
	dir     string // working directory with the edited file
	env     []string
	started time.Time
	lines   []string // seconds of each command
	// exporting has the workers whose exporters run.
	exporting map[string]bool
}

// newWay starts a fleet without Plimsoll, and edits the file of values.
func newWay(t *testing.T, exporter map[string]any) *way {
	t.Helper()
	dir, err := os.MkdirTemp("", "pli")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), maxTime)
	t.Cleanup(cancel)
	w := &way{ctx: ctx, dir: t.TempDir()}
	w.lab, err = fleet.Up(ctx, fleet.Options{Dir: dir, Workers: fleet.DefaultWorkers()[:2], Dispatcher: builtinDispatcher, WithoutRules: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.lab.Stop()
		if t.Failed() {
			t.Logf("logs of all components: %s/logs", dir)
		} else if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	w.prepareHub(t)
	w.prepareWorkers(t)
	w.prepareDirectory(t, exporter)
	return w
}

var shortWay = regexp.MustCompile("(?s)### Short way\n.*?```sh\n(.*?)```")

// commands returns the commands of the short way.
func commands(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), "config", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := shortWay.FindSubmatch(text)
	if block == nil {
		t.Fatal("config/README.md has no short way")
	}
	lines := strings.Split(strings.TrimSpace(string(block[1])), "\n")
	if len(lines) > maxCommands {
		t.Errorf("%d commands", len(lines))
	}
	return lines
}

var created = regexp.MustCompile(`job\.batch/(\S+) created`)

// follow runs the commands, and returns the name of the job that the last one creates. After
// each command, the programs act that the lab does not run.
func (w *way) follow(t *testing.T) string {
	t.Helper()
	w.started = time.Now()
	output := ""
	for _, command := range commands(t) {
		start := time.Now()
		switch words := strings.Fields(command); {
		case words[0] == "helm":
			w.helmInstall(t, words[1:])
		case strings.HasPrefix(command, "kubectl plimsoll doctor"):
			w.awaitDoctor(t, command)
		default:
			output = w.run(t, command)
		}
		w.settle(t)
		w.lines = append(w.lines, fmt.Sprintf("%6.1f s  %s", time.Since(start).Seconds(), command))
	}
	m := created.FindStringSubmatch(output)
	if m == nil {
		t.Fatalf("the last command created no job: %s", output)
	}
	return m[1]
}

// report logs the time of each command and of the whole way.
func (w *way) report(t *testing.T, end string) {
	t.Helper()
	took := time.Since(w.started)
	t.Logf("%d commands, 1 edited file, %.0f s until %s:\n%s", len(w.lines), took.Seconds(), end, strings.Join(w.lines, "\n"))
	if took > maxTime {
		t.Errorf("the way takes %s", took)
	}
}

// awaitDoctor repeats the command until it finds no fault.
func (w *way) awaitDoctor(t *testing.T, command string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, 3*time.Minute)
	defer cancel()
	first := ""
	await(ctx, t, "doctor to find no fault", func(ctx context.Context) error {
		out, err := w.try(ctx, command)
		if err != nil && out != first {
			first = out
			t.Logf("%s after %.0f s:\n%s", command, time.Since(w.started).Seconds(), out)
		}
		return err
	})
}

// checkGuard checks that the chart's guard limits the account with which the operator runs.
func (w *way) checkGuard(t *testing.T) {
	t.Helper()
	out, err := w.lab.Hub.Kubectl(w.ctx, "{apiVersion: kueue.x-k8s.io/v1beta2, kind: MultiKueueConfig, metadata: {name: forged}, spec: {clusters: [cluster1]}}",
		"create", "--as="+fleet.OperatorUser, "-f", "-")
	if err == nil || !strings.Contains(out, "plimsoll-guard-multikueue") {
		t.Errorf("a MultiKueueConfig of no gate, written by the operator: %v %s", err, out)
	}
}
