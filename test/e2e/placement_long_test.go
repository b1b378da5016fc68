//go:build e2e && long

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

func TestScoreChangeKeepsRunningJob(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	submit(ctx, t, fleet.Job{Name: "steady", Model: fleet.H100, GPUs: 1})
	old := awaitRunning(ctx, t, "steady")
	total := func(ctx context.Context) int32 {
		scores, err := lab.Scores(ctx, "fleet", old)
		if err != nil {
			t.Fatal(err)
		}
		return scores["total"]
	}
	// Jobs of earlier tests may still affect the score.
	for cluster, devices := range map[string]float64{"cluster1": 16, "cluster2": 20, "cluster3": 8} {
		if cluster == old {
			devices--
		}
		awaitFreeDevices(ctx, t, cluster, fleet.H100, devices)
	}
	before := total(ctx)
	if err := lab.SetLoad(old, 0.99); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.SetLoad(old, 0); err != nil {
			t.Error(err)
		}
	})
	await(ctx, t, "the score of "+old+" to fall", func(ctx context.Context) error {
		now := total(ctx)
		if before = max(before, now); now > before-25 {
			return fmt.Errorf("%d, was %d", now, before)
		}
		return nil
	})
	// Without scores, some of 6 jobs would run there: it has the most free devices. More would not fit on the
	// smallest cluster, if that is the only one with such a score.
	const jobs = 6
	for i := range jobs {
		submit(ctx, t, fleet.Job{Name: fmt.Sprintf("next-%d", i), Model: fleet.H100, GPUs: 1})
	}
	for i := range jobs {
		if got := awaitRunning(ctx, t, fmt.Sprintf("next-%d", i)); got == old {
			t.Fatalf("next-%d runs on %s, whose score is no longer among the best", i, got)
		}
	}
	checkStillRuns(ctx, t, "steady", old)
}
