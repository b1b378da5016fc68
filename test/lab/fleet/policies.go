package fleet

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"

	plimsoll "plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// ApplySample applies a file of config/samples to the hub.
func (f *Fleet) ApplySample(ctx context.Context, path string) error {
	_, err := f.Hub.Kubectl(ctx, "", "apply", "--server-side", "-f", filepath.Join(f.opts.Root, "config", "samples", path))
	return err
}

// ApplyGateCheck creates an AdmissionCheck that the PlacementGate decides. By convention its name
// begins with that of the samples' check.
func (f *Fleet) ApplyGateCheck(ctx context.Context, name, gate string) error {
	return f.Hub.Apply(ctx, fmt.Sprintf(`
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: %s}
spec:
  controllerName: plimsoll.dev/placement
  parameters: {apiGroup: plimsoll.dev, kind: PlacementGate, name: %s}
`, name, gate))
}

// PatchGate merges the patch into the spec of the samples' gate.
func (f *Fleet) PatchGate(ctx context.Context, spec string) error {
	_, err := f.Hub.Kubectl(ctx, "", "patch", "placementgate/gpu", "--type=merge", "-p", `{"spec":`+spec+`}`)
	return err
}

// MeasuredQuota is a CapacityPolicy for the Cohort "measured". It reacts within seconds.
const MeasuredQuota = `
apiVersion: plimsoll.dev/v1alpha1
kind: CapacityPolicy
metadata: {name: measured}
spec:
  sourceRef: {name: thanos}
  cohortName: measured
  mode: Enforce
  periodSeconds: 10
  advanced: {raiseAfterRounds: 1, lowerAfterSeconds: 0}
  quotas:
  - flavor: h100
    resource: nvidia.com/gpu
    query: sum by (cluster) (cluster_resource_model:plimsoll_usable_devices:sum{resource="nvidia.com/gpu", model="NVIDIA-H100-80GB-HBM3"})
`

// CohortQuota returns the nominal quota of the first flavor and resource of a Cohort.
func (f *Fleet) CohortQuota(ctx context.Context, name string) (int, error) {
	text, err := f.Hub.Kubectl(ctx, "", "get", "cohort", name, "-o", "jsonpath={.spec.resourceGroups[0].flavors[0].resources[0].nominalQuota}")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(text)
}

const reclaimIdleYAML = `
apiVersion: plimsoll.dev/v1alpha1
kind: ReclaimPolicy
metadata: {name: idle-gpus}
spec:
  sourceRef: {name: thanos}
  clusterQueues: [reclaim]
  mode: %s
  idleSeconds: 10
  minRunSeconds: 10
  maxPerHour: 1
  periodSeconds: 10
`

// ReclaimIdle returns a ReclaimPolicy for the queue "reclaim". It reacts within seconds.
func ReclaimIdle(mode plimsoll.Mode) string { return fmt.Sprintf(reclaimIdleYAML, mode) }

// CreateSecret creates a Secret in the namespace of the jobs on a worker.
func (f *Fleet) CreateSecret(ctx context.Context, cluster, name string) error {
	_, err := f.Worker(cluster).Kubectl(ctx, "", "create", "secret", "generic", name, "--from-literal=token=x", "-n", Namespace)
	return err
}

// DeleteSecret deletes the Secret that CreateSecret created, if it exists.
func (f *Fleet) DeleteSecret(ctx context.Context, cluster, name string) error {
	_, err := f.Worker(cluster).Kubectl(ctx, "", "delete", "secret", name, "--ignore-not-found", "-n", Namespace)
	return err
}

const rebalanceYAML = `
apiVersion: plimsoll.dev/v1alpha1
kind: ReclaimPolicy
metadata: {name: rebalance}
spec:
  sourceRef: {name: thanos}
  clusterQueues: [rebalance]
  rebalance: {mode: %s}
  minRunSeconds: 10
  maxPerHour: 1
  periodSeconds: 10
`

// Rebalance returns a ReclaimPolicy that moves jobs of the queue "rebalance". It reacts within
// seconds.
func Rebalance(mode plimsoll.Mode) string { return fmt.Sprintf(rebalanceYAML, mode) }
