//go:build e2e && long

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

const virtualGate = `
apiVersion: plimsoll.dev/v1alpha1
kind: PlacementGate
metadata: {name: virtual}
spec:
  placementRef: {namespace: plimsoll-fleet, name: gpu}
  sourceRef: {name: thanos}
  periodSeconds: 2
  podSetUpdates:
    nodeSelector: {example.com/cluster: "vk-{cluster}"}
    tolerations: [{key: example.com/virtual, operator: Exists}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: plimsoll-virtual}
spec:
  controllerName: plimsoll.dev/placement
  parameters: {apiGroup: plimsoll.dev, kind: PlacementGate, name: virtual}
`

// Clusters may be virtual nodes of the hub. Kueue then starts the job on the hub with
// the node selector and the tolerations of the gate.
func TestVirtualNodePodsGetNodeSelector(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	if err := lab.Hub.Apply(ctx, virtualGate); err != nil {
		t.Fatal(err)
	}
	queue{name: "virtual", hub: 64, worker: 64, checks: []string{"plimsoll-virtual"}}.create(ctx, t)
	submit(ctx, t, fleet.Job{Name: "pinned", Model: fleet.H100, GPUs: 1, Queue: "virtual"})
	await(ctx, t, "the job to be started on a virtual node", func(ctx context.Context) error {
		const pods = `jsonpath={.spec.suspend} {.spec.template.spec.nodeSelector.example\.com/cluster} {.spec.template.spec.tolerations[*].key}`
		got, err := lab.Hub.Kubectl(ctx, "", "get", "job/pinned", "-n", fleet.Namespace, "-o", pods)
		if err != nil {
			return err
		}
		wl, err := lab.Workload(ctx, "pinned")
		if err != nil {
			return err
		}
		if wl == nil || len(wl.Status.AdmissionChecks) == 0 || len(wl.Status.AdmissionChecks[0].PodSetUpdates) != 1 {
			return errors.New("the job has no workload with pod set updates")
		}
		check := wl.Status.AdmissionChecks[0]
		node := check.PodSetUpdates[0].NodeSelector["example.com/cluster"]
		cluster := strings.TrimPrefix(node, "vk-")
		if lab.Worker(cluster) == nil || !strings.HasPrefix(check.Message, cluster+" ") {
			return fmt.Errorf("the node selector is %q, but the message of the check is %q", node, check.Message)
		}
		if want := "false vk-" + cluster + " example.com/virtual"; got != want {
			return fmt.Errorf("suspend, node selector and tolerations are %q, want %q", got, want)
		}
		return nil
	})
}
