//go:build e2e && long

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// An elastic job that grows keeps its running pod: the new slice goes to the same cluster, and
// the gate lets it through at once.
func TestElasticJobGrowsAndShrinks(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	submit(ctx, t, fleet.Job{Name: "elastic", Model: fleet.H100, GPUs: 1, Elastic: true})
	cluster := awaitRunning(ctx, t, "elastic")
	var first []string
	await(ctx, t, "the first pod", func(ctx context.Context) (err error) {
		if first, err = runningPods(ctx, "elastic", cluster); err == nil && len(first) != 1 {
			err = fmt.Errorf("%d pods run", len(first))
		}
		return err
	})
	for _, size := range []int{3, 2} {
		if out, err := lab.Hub.Kubectl(ctx, "", "patch", "job/elastic", "-n", fleet.Namespace, "--type=merge", "-p", fmt.Sprintf(`{"spec":{"parallelism":%d}}`, size)); err != nil {
			t.Fatal(err, out)
		}
		var running []string
		await(ctx, t, fmt.Sprintf("%d pods on %s", size, cluster), func(ctx context.Context) (err error) {
			if running, err = runningPods(ctx, "elastic", cluster); err == nil && len(running) != size {
				err = fmt.Errorf("%d pods run; workloads: %s", len(running), describeWorkloads(ctx))
			}
			return err
		})
		if size == 3 && !slices.Contains(running, first[0]) {
			t.Errorf("the first pod did not survive: %v, then %v", first, running)
		}
	}
}

// describeWorkloads shows the placement of all workloads of the namespace.
func describeWorkloads(ctx context.Context) string {
	list := &kueue.WorkloadList{}
	if err := lab.Hub.Client.List(ctx, list, client.InNamespace(fleet.Namespace)); err != nil {
		return err.Error()
	}
	var lines []string
	for i := range list.Items {
		wl := &list.Items[i]
		line := wl.Name + ":"
		if wl.Status.ClusterName != nil {
			line += " on " + *wl.Status.ClusterName
		}
		for _, c := range wl.Status.AdmissionChecks {
			line += fmt.Sprintf(" %s=%s %q", c.Name, c.State, c.Message)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}

// placedClusters returns the clusters of the workloads whose names have a prefix, and an error
// unless there are n of them and all are admitted.
func placedClusters(ctx context.Context, prefix string, n int) ([]string, error) {
	list := &kueue.WorkloadList{}
	if err := lab.Hub.Client.List(ctx, list, client.InNamespace(fleet.Namespace)); err != nil {
		return nil, err
	}
	var clusters []string
	for i := range list.Items {
		if wl := &list.Items[i]; strings.HasPrefix(wl.Name, prefix) && wl.Status.ClusterName != nil {
			clusters = append(clusters, *wl.Status.ClusterName)
		}
	}
	if len(clusters) != n {
		return nil, fmt.Errorf("%d of %d are placed; %s", len(clusters), n, describeWorkloads(ctx))
	}
	slices.Sort(clusters)
	return slices.Compact(clusters), nil
}

// applyJob creates a job, and deletes it at the end of the test.
func applyJob(ctx context.Context, t *testing.T, manifest, object string) {
	t.Helper()
	if err := lab.Hub.Apply(ctx, manifest); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cleanUp(t, func(ctx context.Context) error {
			_, err := lab.Hub.Kubectl(ctx, "", "delete", object, "-n", fleet.Namespace)
			return err
		})
	})
}

// applyEverywhere creates an object on all clusters, and deletes it at the end of the test.
func applyEverywhere(ctx context.Context, t *testing.T, manifest, object string) {
	t.Helper()
	for _, c := range append([]*fleet.Cluster{lab.Hub}, lab.Workers...) {
		if err := c.Apply(ctx, manifest); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cleanUp(t, func(ctx context.Context) error {
				_, err := c.Kubectl(ctx, "", "delete", object)
				return err
			})
		})
	}
}

const podOfEight = `{nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}, restartPolicy: %s, containers: [{name: main, image: "registry.example/train:1", resources: {limits: {nvidia.com/gpu: "8", cpu: "4", memory: 16Gi}}}]}`

// Only cluster1 has two nodes with eight H100. A replica alone also fits on cluster3, but all
// replicas of a LeaderWorkerSet go to one cluster.
func TestLeaderWorkerSetIsPlacedAsAWhole(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	applyJob(ctx, t, `
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: serve, namespace: `+fleet.Namespace+`, labels: {kueue.x-k8s.io/queue-name: `+fleet.Queue+`}}
spec:
  replicas: 2
  startupPolicy: LeaderCreated
  rolloutStrategy: {type: RollingUpdate, rollingUpdateConfiguration: {maxUnavailable: 1, maxSurge: 0}}
  leaderWorkerTemplate:
    size: 1
    workerTemplate:
      spec: `+fmt.Sprintf(podOfEight, "Always"), "leaderworkersets/serve")
	await(ctx, t, "both replicas to be placed", func(ctx context.Context) error {
		clusters, err := placedClusters(ctx, "leaderworkerset-serve", 2)
		if err == nil && !slices.Equal(clusters, []string{"cluster1"}) {
			err = fmt.Errorf("placed on %v", clusters)
		}
		return err
	})
}

// kindOfJob is a job with two pods that have eight H100 each.
type kindOfJob struct {
	workload string // prefix of its name
	object   string // on the hub
	manifest string
	// runtime is an object to which the job refers on every cluster, and its manifest.
	runtime, runtimeManifest string
}

// jobsOfTwo are jobs of each kind. %[1]s is a pod with devices, %[2]s one without, and %[3]s the
// metadata of a job in the queue.
var jobsOfTwo = []kindOfJob{
	{workload: "trainjob-pair", object: "trainjobs/pair", manifest: `
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: pair, %[3]s}
spec:
  suspend: true
  managedBy: kueue.x-k8s.io/multikueue
  runtimeRef: {apiGroup: trainer.kubeflow.org, kind: ClusterTrainingRuntime, name: pair}
  trainer: {numNodes: 2}
`, runtime: "clustertrainingruntimes/pair", runtimeManifest: `
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: pair}
spec:
  mlPolicy: {numNodes: 1}
  template:
    spec:
      replicatedJobs:
      - name: node
        groupName: default
        replicas: 1
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec: {template: {spec: %[1]s}}
`},
	{workload: "jobset-pair", object: "jobsets/pair", manifest: `
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: pair, %[3]s}
spec:
  suspend: true
  managedBy: kueue.x-k8s.io/multikueue
  replicatedJobs:
  - {name: a, replicas: 1, template: {spec: {parallelism: 1, completions: 1, template: {spec: %[1]s}}}}
  - {name: b, replicas: 1, template: {spec: {parallelism: 1, completions: 1, template: {spec: %[1]s}}}}
`},
	{workload: "rayjob-pair", object: "rayjobs/pair", manifest: `
apiVersion: ray.io/v1
kind: RayJob
metadata: {name: pair, %[3]s}
spec:
  suspend: true
  managedBy: kueue.x-k8s.io/multikueue
  shutdownAfterJobFinishes: true
  submissionMode: HTTPMode
  entrypoint: "true"
  rayClusterSpec:
    headGroupSpec: {rayStartParams: {}, template: {spec: %[2]s}}
    workerGroupSpecs:
    - {groupName: gpu, replicas: 2, minReplicas: 2, maxReplicas: 2, numOfHosts: 1, rayStartParams: {}, template: {spec: %[1]s}}
`},
	{workload: "raycluster-pair", object: "rayclusters/pair", manifest: `
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: pair, %[3]s}
spec:
  suspend: true
  managedBy: kueue.x-k8s.io/multikueue
  headGroupSpec: {rayStartParams: {}, template: {spec: %[2]s}}
  workerGroupSpecs:
  - {groupName: gpu, replicas: 2, minReplicas: 2, maxReplicas: 2, numOfHosts: 1, rayStartParams: {}, template: {spec: %[1]s}}
`},
	{workload: "pytorchjob-pair", object: "pytorchjobs/pair", manifest: `
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: pair, %[3]s}
spec:
  runPolicy: {suspend: true, managedBy: kueue.x-k8s.io/multikueue}
  pytorchReplicaSpecs:
    Master: {replicas: 1, restartPolicy: Never, template: {spec: %[1]s}}
    Worker: {replicas: 1, restartPolicy: Never, template: {spec: %[1]s}}
`},
	{workload: "mpijob-pair", object: "mpijobs/pair", manifest: `
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: pair, %[3]s}
spec:
  slotsPerWorker: 8
  runPolicy: {suspend: true, managedBy: kueue.x-k8s.io/multikueue}
  mpiReplicaSpecs:
    Launcher: {replicas: 1, restartPolicy: Never, template: {spec: %[2]s}}
    Worker: {replicas: 2, restartPolicy: Never, template: {spec: %[1]s}}
`},
}

// The pods with devices need room together, whatever the kind of the job. Only cluster1 has two
// nodes with eight H100.
func TestJobsArePlacedAsAWhole(t *testing.T) {
	const (
		inQueue       = "namespace: " + fleet.Namespace + ", labels: {kueue.x-k8s.io/queue-name: " + fleet.Queue + "}"
		withoutDevice = `{restartPolicy: Never, containers: [{name: main, image: "registry.example/train:1", resources: {limits: {cpu: "1", memory: 1Gi}}}]}`
	)
	for _, kind := range jobsOfTwo {
		t.Run(kind.workload, func(t *testing.T) {
			ctx := testContext(t, 5*time.Minute)
			if kind.runtime != "" {
				applyEverywhere(ctx, t, fmt.Sprintf(kind.runtimeManifest, fmt.Sprintf(podOfEight, "Never")), kind.runtime)
			}
			applyJob(ctx, t, fmt.Sprintf(kind.manifest, fmt.Sprintf(podOfEight, "Never"), withoutDevice, inQueue), kind.object)
			await(ctx, t, "the job to be placed", func(ctx context.Context) error {
				clusters, err := placedClusters(ctx, kind.workload, 1)
				if err == nil && !slices.Equal(clusters, []string{"cluster1"}) {
					err = fmt.Errorf("placed on %v", clusters)
				}
				return err
			})
		})
	}
}

// With the policy of Kueue itself, the operator nominates with its own field manager, without
// a restart.
func TestDetectsKueuesNominationPolicy(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	if err := lab.ApplyNominationPolicy(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cleanUp(t, func(ctx context.Context) error {
			_, err := lab.Hub.Kubectl(ctx, "", "delete", "mutatingadmissionpolicy/clear-nominated-cluster-names", "mutatingadmissionpolicybinding/clear-nominated-cluster-names-binding")
			return err
		})
	})
	await(ctx, t, "an own nomination that the policy clears", func(ctx context.Context) error {
		name := fmt.Sprintf("policy-%d", time.Now().UnixMilli())
		submit(ctx, t, fleet.Job{Name: name, Model: fleet.H100, GPUs: 1, Duration: time.Second})
		awaitFinished(ctx, t, name)
		managers, err := lab.Hub.Kubectl(ctx, "", "get", "workload/"+workloadName(ctx, t, name), "-n", fleet.Namespace, "--show-managed-fields", "-o", "jsonpath={.metadata.managedFields[*].manager}")
		if err == nil && !strings.Contains(managers, "plimsoll-dispatch") {
			err = fmt.Errorf("field managers of %s: %s", name, managers)
		}
		return err
	})
}
