package scenario

import (
	"context"
	"fmt"
	"time"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// preemptingQueue has quota for one job with 8 GPUs on the hub.
const preemptingQueue = `
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: scenario-high}
value: 1000
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: scenario-low}
value: 1
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: scenario}
spec:
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu, cpu, memory]
    flavors: [{name: h100, resources: [{name: nvidia.com/gpu, nominalQuota: %d}, {name: cpu, nominalQuota: 10k}, {name: memory, nominalQuota: 100Ti}]}]
%s---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: scenario, namespace: team-a}
spec: {clusterQueue: scenario}
`

func preemption(ctx context.Context, s *stage) (string, error) {
	for _, w := range s.fleet.Workers {
		if err := w.Apply(ctx, fmt.Sprintf(preemptingQueue, 256, "")); err != nil {
			return "", err
		}
	}
	checks := "  admissionChecksStrategy: {admissionChecks: [{name: plimsoll}, {name: multikueue}]}\n"
	if err := s.fleet.Hub.Apply(ctx, fmt.Sprintf(preemptingQueue, 8, checks)); err != nil {
		return "", err
	}
	if _, err := s.fleet.Hub.Kubectl(ctx, "", "wait", "--for=condition=Active", "--timeout=60s", "clusterqueue/scenario"); err != nil {
		return "", err
	}
	low := fleet.Job{Name: "low", Model: fleet.H100, GPUs: 8, Queue: "scenario", Priority: "scenario-low"}
	first, err := s.start(ctx, low)
	if err != nil {
		return "", err
	}
	high := fleet.Job{Name: "high", Model: fleet.H100, GPUs: 8, Queue: "scenario", Priority: "scenario-high", Duration: 5 * time.Second}
	if err := s.submit(ctx, high); err != nil {
		return "", err
	}
	err = s.awaitView(ctx, "low", "to be preempted", func(v fleet.JobView) bool { return v.Cluster == "" && len(v.Copies) == 0 })
	if err != nil {
		return "", err
	}
	s.log("low is preempted")
	err = s.awaitView(ctx, "high", "to finish", func(v fleet.JobView) bool { return v.Finished && len(v.Copies) == 0 })
	if err != nil {
		return "", err
	}
	s.log("high has finished")
	second, err := s.awaitRunning(ctx, "low")
	return fmt.Sprintf("high took the quota of low, which had run on %s; after high finished, low started on %s", first, second), err
}
