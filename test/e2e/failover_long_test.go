//go:build e2e && long

package e2e

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// Longest times until the next decision after the leader is lost. A killed leader keeps its
// Lease for 15 s. One that gets SIGTERM gives it up, and the others look every second, so that they decide
// long before a Lease would end.
const (
	afterKill  = 20 * time.Second
	afterStop  = 8 * time.Second
	afterStart = 30 * time.Second
)

// Two operators run. Decisions continue after the leader is killed, after the leader gets SIGTERM,
// and after both were gone while jobs waited. Jobs that run are not touched.
func TestDecisionsContinueAfterOperatorsAreLost(t *testing.T) {
	ctx := testContext(t, 6*time.Minute)
	startTwoOperators(ctx, t)
	submit(ctx, t, fleet.Job{Name: "runs-on", Model: fleet.H100, GPUs: 1})
	cluster := awaitRunning(ctx, t, "runs-on")

	since := endOperator(t, "operator-a", syscall.SIGKILL)
	submit(ctx, t, fleet.Job{Name: "after-kill", Model: fleet.H100, GPUs: 1})
	checkDecided(ctx, t, "the leader was killed", since, afterKill, "after-kill")

	restartOperator(ctx, t, "operator-a")
	since = endOperator(t, "operator-b", syscall.SIGTERM)
	submit(ctx, t, fleet.Job{Name: "after-stop", Model: fleet.H100, GPUs: 1})
	checkDecided(ctx, t, "the leader got SIGTERM", since, afterStop, "after-stop")

	endOperator(t, "operator-a", syscall.SIGKILL)
	const jobs = 12
	var names []string
	for i := range jobs {
		names = append(names, fmt.Sprintf("meanwhile-%d", i))
		submit(ctx, t, fleet.Job{Name: names[i], Model: fleet.H100, GPUs: 1})
	}
	for _, name := range names {
		awaitView(ctx, t, name, "to wait for the gate", func(v fleet.JobView) bool { return v.CheckState == "Pending" })
	}
	checkStillRuns(ctx, t, "runs-on", cluster)
	since = time.Now()
	restartOperator(ctx, t, "operator-a")
	checkDecided(ctx, t, "the first operator started again", since, afterStart, names...)
	for _, name := range append(names, "after-kill", "after-stop") {
		awaitRunning(ctx, t, name)
	}
	checkStillRuns(ctx, t, "runs-on", cluster)
}

// endOperator returns when the operator received the signal.
func endOperator(t *testing.T, name string, sig syscall.Signal) time.Time {
	t.Helper()
	at := time.Now()
	if err := lab.Programs().End(name, sig); err != nil {
		t.Fatal(err)
	}
	return at
}

func restartOperator(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	if err := lab.Programs().Restart(ctx, name); err != nil {
		t.Fatal(err)
	}
}

// checkDecided waits until the gate has let the jobs through, and fails the test if this took
// longer than the limit since the event.
func checkDecided(ctx context.Context, t *testing.T, event string, since time.Time, limit time.Duration, jobs ...string) {
	t.Helper()
	for _, name := range jobs {
		awaitView(ctx, t, name, "to be decided", func(v fleet.JobView) bool { return v.CheckState == "Ready" })
	}
	took := time.Since(since).Round(100 * time.Millisecond)
	t.Logf("%s: %d jobs were decided after %s", event, len(jobs), took)
	if took > limit {
		t.Errorf("%s: %d jobs were decided after %s, want at most %s", event, len(jobs), took, limit)
	}
}
