//go:build e2e && long

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

const podOfGroup = `
apiVersion: v1
kind: Pod
metadata:
  name: trainer-%d
  namespace: ` + fleet.Namespace + `
  labels: {kueue.x-k8s.io/queue-name: ` + fleet.Queue + `, kueue.x-k8s.io/pod-group-name: trainers}
  annotations: {kueue.x-k8s.io/pod-group-total-count: "2"}
spec: %s
`

// podsOfGroup returns the names of the group's pods on a cluster.
func podsOfGroup(ctx context.Context, c *fleet.Cluster, args ...string) ([]string, error) {
	out, err := c.Kubectl(ctx, "", append([]string{"get", "pods", "-n", fleet.Namespace, "-l", "kueue.x-k8s.io/pod-group-name=trainers",
		"-o", "jsonpath={.items[*].metadata.name}"}, args...)...)
	return strings.Fields(out), err
}

// Only cluster1 has two nodes with eight H100. One pod alone also fits on cluster3, but all pods of
// a group go to one cluster. When they have finished, nothing remains there.
func TestPodGroupIsPlacedAsAWhole(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	for i := range 2 {
		if err := lab.Hub.Apply(ctx, fmt.Sprintf(podOfGroup, i, fmt.Sprintf(podOfEight, "Never"))); err != nil {
			t.Fatal(err)
		}
	}
	cluster1 := lab.Worker("cluster1")
	await(ctx, t, "both pods to run on cluster1", func(ctx context.Context) error {
		clusters, err := placedClusters(ctx, "trainers", 1)
		if err == nil && !slices.Equal(clusters, []string{"cluster1"}) {
			err = fmt.Errorf("placed on %v", clusters)
		}
		if err != nil {
			return err
		}
		running, err := podsOfGroup(ctx, cluster1, "--field-selector=status.phase=Running")
		if err == nil && len(running) != 2 {
			err = fmt.Errorf("%v run", running)
		}
		return err
	})
	for i := range 2 {
		if _, err := cluster1.Kubectl(ctx, "", "patch", fmt.Sprintf("pod/trainer-%d", i), "-n", fleet.Namespace, "--subresource=status", "--type=merge",
			"-p", `{"status":{"phase":"Succeeded"}}`); err != nil {
			t.Fatal(err)
		}
	}
	await(ctx, t, "the group to finish", func(ctx context.Context) error {
		finished, err := lab.Hub.Kubectl(ctx, "", "get", "workload/trainers", "-n", fleet.Namespace, "-o", `jsonpath={.status.conditions[?(@.type=="Finished")].status}`)
		if err == nil && finished != "True" {
			err = fmt.Errorf("Finished is %q", finished)
		}
		return err
	})
	kubectl(ctx, t, "delete", "pods", "-n", fleet.Namespace, "-l", "kueue.x-k8s.io/pod-group-name=trainers", "--wait=false")
	await(ctx, t, "the pods to be deleted", func(ctx context.Context) error {
		for _, c := range []*fleet.Cluster{lab.Hub, cluster1} {
			if pods, err := podsOfGroup(ctx, c); err != nil || len(pods) > 0 {
				return fmt.Errorf("%s has %v, %w", c.Name, pods, err)
			}
		}
		return nil
	})
}
