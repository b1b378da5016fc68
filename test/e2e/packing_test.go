//go:build e2e && long

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// Three clusters have a node with 4 shared GPUs. Two of them are used at 50% on average, the third at
// 20%. By its profile, the job uses 60% of a device: only the idle devices of cluster1 stay at 70%
// with it. A mean of the cluster would send it to cluster3.
func TestPackedJobGoesWhereDevicesHaveHeadroom(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	for _, shared := range []struct {
		cluster string
		node    fleet.Node
		pods    int // that others run, one on each device
		mean    float64
		devices float64 // with headroom for a job of 30%
	}{
		{"cluster1", fleet.SharedNode("cluster1-packing", 1, 1, 0, 0), 2, 50, 2},
		{"cluster2", fleet.SharedNode("cluster2-packing", 0.5, 0.5, 0.5, 0.5), 4, 50, 0},
		{"cluster3", fleet.SharedNode("cluster3-packing", 0.2, 0.2, 0.2, 0.2), 4, 20, 4},
	} {
		addNode(ctx, t, shared.cluster, shared.node)
		occupy(ctx, t, shared.cluster, shared.node.Name, shared.pods)
		awaitValue(ctx, t, fleet.MeanUtilization(shared.node.Name), shared.mean)
		awaitValue(ctx, t, fleet.DevicesWithHeadroom(shared.node.Name), shared.devices)
	}
	createGatedQueue(ctx, t, fleet.PackingQueue)
	createProfile(ctx, t, "heavy", 60)
	for i := range 2 {
		j := packedJob(fmt.Sprintf("heavy-%d", i+1))
		j.PodLabels = map[string]string{v1alpha1.ProfileLabel: "heavy"}
		submit(ctx, t, j)
		if cluster := awaitRunning(ctx, t, j.Name); cluster != "cluster1" {
			t.Errorf("%s runs on %s, want cluster1, which has idle devices", j.Name, cluster)
		}
	}
	// The pods of others and the two jobs hold one replica of each device.
	awaitValue(ctx, t, `sum(device_dimension:plimsoll_free_share:placeable{node="cluster1-packing",dimension="shares"} == 3)`, 4*3)

	submit(ctx, t, packedJob("unknown"))
	if cluster := awaitRunning(ctx, t, "unknown"); cluster == "cluster2" {
		t.Error("the job without a profile runs on cluster2, where every device is used at 50%")
	}
}

// Pods share the GPUs of two nodes. On cluster1, a GPU is used at 90%: the rules report that its pods
// disturb each other, and the sample policy slowdown prefers cluster2.
func TestInterferenceLowersTheScore(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	for _, shared := range []struct {
		cluster string
		node    fleet.Node
		exposed float64
	}{
		{"cluster1", fleet.SharedNode("cluster1-busy", 0.9, 0.1), 1},
		{"cluster2", fleet.SharedNode("cluster2-busy", 0.1, 0.1), 0},
	} {
		name := shared.node.Name
		addNode(ctx, t, shared.cluster, shared.node)
		for _, pod := range []string{"a", "b"} { // each has a replica of both GPUs
			t.Cleanup(func() {
				cleanUp(t, func(ctx context.Context) error { return lab.VacateAs(ctx, shared.cluster, name, pod) })
			})
			if err := lab.OccupyAs(ctx, shared.cluster, name, pod, map[corev1.ResourceName]int64{fleet.SharedGPUResource: 2}); err != nil {
				t.Fatal(err)
			}
		}
		awaitValue(ctx, t, fmt.Sprintf(`count(device:plimsoll_interference_exposure:bool{node=%q})`, name), 2)
		awaitValue(ctx, t, fmt.Sprintf(`sum(device:plimsoll_interference_exposure:bool{node=%q})`, name), shared.exposed)
	}
	t.Cleanup(func() { deleteObjects(t, "scoringpolicy/slowdown") })
	if err := lab.ApplySample(ctx, "cookbook/slowdown.yaml"); err != nil {
		t.Fatal(err)
	}
	await(ctx, t, "the scores of the policy slowdown", func(ctx context.Context) error {
		scores := map[string]int32{}
		for _, w := range lab.Workers {
			s, err := lab.Scores(ctx, "slowdown", w.Name)
			if err != nil {
				return err
			}
			total, ok := s["total"]
			if !ok {
				return fmt.Errorf("%s has the scores %v", w.Name, s)
			}
			scores[w.Name] = total
		}
		if scores["cluster2"] != 100 || scores["cluster1"] > 75 || scores["cluster1"] < 50 || scores["cluster3"] != -100 {
			return fmt.Errorf("scores %v, want 100 for cluster2, about 64 for cluster1, and -100 for cluster3, which shares no GPU", scores)
		}
		return nil
	})
}

// packedJob returns a job with a replica of a time-sliced GPU.
func packedJob(name string) fleet.Job {
	return fleet.Job{Name: name, Model: fleet.H100, GPUs: 1, Resource: fleet.SharedGPUResource, Queue: fleet.PackingQueue.Name}
}

// createProfile creates the profile of a job that uses this utilization of H100 GPUs, in percent,
// until the end of the test.
func createProfile(ctx context.Context, t *testing.T, name string, percent int64) {
	t.Helper()
	t.Cleanup(func() { deleteObjects(t, "-n="+fleet.Namespace, "jobprofile/"+name) })
	if err := lab.CreateProfile(ctx, name, fleet.H100, percent); err != nil {
		t.Fatal(err)
	}
}
