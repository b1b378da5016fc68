//go:build e2e && soak

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// TestSoak submits jobs for SOAK minutes (10 by default) while seeded faults hit
// the fleet; then every job has finished, and none was ever seen to run twice.
func TestSoak(t *testing.T) {
	minutes, err := strconv.Atoi(os.Getenv("SOAK"))
	if err != nil || minutes <= 0 {
		minutes = 10
	}
	seed := uint64(time.Now().UnixNano())
	if s, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("SEED=%d SOAK=%d", seed, minutes)
	random := rand.New(rand.NewPCG(seed, 1))
	ctx := testContext(t, time.Duration(minutes+10)*time.Minute)
	end := time.Now().Add(time.Duration(minutes) * time.Minute)

	open := map[string]bool{}
	for i := 0; time.Now().Before(end); i++ {
		j := fleet.Job{Name: fmt.Sprintf("soak-%d", i), Model: fleet.H100, GPUs: []int{1, 1, 2, 4, 8}[random.IntN(5)],
			Duration: time.Duration(2+random.IntN(20)) * time.Second}
		if err := lab.Submit(ctx, j); err != nil {
			t.Fatal(err)
		}
		open[j.Name] = true
		if random.IntN(10) == 0 {
			fault(ctx, t, random)
		}
		await(ctx, t, "the open jobs to become fewer than 20", func(ctx context.Context) error {
			return settle(ctx, t, open, 20)
		})
	}
	await(ctx, t, "every job to finish", func(ctx context.Context) error { return settle(ctx, t, open, 1) })
}

// settle deletes finished jobs and is an error while limit or more are open.
func settle(ctx context.Context, t *testing.T, open map[string]bool, limit int) error {
	t.Helper()
	for name := range open {
		v, err := lab.View(ctx, name)
		if err != nil {
			return err
		}
		if len(v.Running) > 1 {
			t.Fatalf("%s runs twice: %+v", name, v)
		}
		if v.Finished {
			if err := lab.DeleteJob(ctx, name); err != nil {
				return err
			}
			delete(open, name)
		}
	}
	if len(open) >= limit {
		return fmt.Errorf("%d jobs are open", len(open))
	}
	return nil
}

// fault ends something and brings it back.
func fault(ctx context.Context, t *testing.T, random *rand.Rand) {
	t.Helper()
	programs := []string{"plimsoll-operator", "thanos-query", "cluster1-prometheus", "cluster2-kueue", "cluster3-kube-apiserver", "hub-ocm-placement"}
	name := programs[random.IntN(len(programs))]
	t.Logf("fault: %s", name)
	if err := lab.Programs().End(name, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := lab.Programs().Restart(ctx, name); err != nil {
		t.Fatal(err)
	}
}
