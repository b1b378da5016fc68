//go:build e2e

package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

func TestCopiesFollowNominations(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	occupy(ctx, t, "cluster1", "cluster1-gpu0", 1)
	occupy(ctx, t, "cluster1", "cluster1-gpu1", 1)
	occupy(ctx, t, "cluster3", "cluster3-gpu0", 1)
	awaitFreeDevices(ctx, t, "cluster1", fleet.H100, 14)
	awaitFreeDevices(ctx, t, "cluster3", fleet.H100, 7)
	release := holdQueue(ctx, t, "gpu", "cluster1", "cluster3")

	submit(ctx, t, fleet.Job{Name: "wide", Model: fleet.H100, GPUs: 8})
	awaitWaiting(ctx, t, "wide", messageNoRoom(8, fleet.H100))
	if v, err := lab.View(ctx, "wide"); err != nil || len(v.Nominated)+len(v.Copies) > 0 {
		t.Fatalf("want no nomination and no copy: %+v, %v", v, err)
	}
	for _, node := range []string{"cluster1-gpu0", "cluster3-gpu0"} {
		cluster, _, _ := strings.Cut(node, "-")
		if err := lab.Vacate(ctx, cluster, node); err != nil {
			t.Fatal(err)
		}
	}
	one := awaitView(ctx, t, "wide", "to have one copy", func(v fleet.JobView) bool { return len(v.Copies) > 0 })
	if len(one.Nominated) != 1 || !slices.Equal(one.Copies, one.Nominated) {
		t.Fatalf("want one nomination, and a copy on that cluster: %+v", one)
	}
	both := awaitView(ctx, t, "wide", "to be widened", func(v fleet.JobView) bool { return len(v.Copies) > 1 })
	if len(both.Nominated) != 2 || both.Nominated[0] != one.Nominated[0] || both.Cluster != "" {
		t.Fatalf("want the second cluster after the first: %+v", both)
	}
	release(both.Nominated[1])
	if got := awaitRunning(ctx, t, "wide"); got != both.Nominated[1] {
		t.Fatalf("wide runs on %s, want %s, whose queue was released", got, both.Nominated[1])
	}
}

// A user deletes the copy of a running job on its worker. Kueue evicts the workload,
// but completes the eviction only after a nomination. The gate must nominate.
func TestLostCopyIsReplaced(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	submit(ctx, t, fleet.Job{Name: "lost", Model: fleet.H100, GPUs: 1})
	first := awaitRunning(ctx, t, "lost")
	loseCopy(ctx, t, "lost", first)
	awaitRunning(ctx, t, "lost")
}

func TestFinishedJobHasNoCopy(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	submit(ctx, t, fleet.Job{Name: "short", Model: fleet.H100, GPUs: 1, Duration: time.Second})
	awaitFinished(ctx, t, "short")
}
