package whatif

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// pods is a pod template whose only container is named after the pods.
func pods(name string) string {
	return fmt.Sprintf(`{spec: {containers: [{name: %s, resources: {limits: {nvidia.com/gpu: 8}}}]}}`, name)
}

func TestPodSetsOfKinds(t *testing.T) {
	for _, tc := range []struct{ name, manifest, want string }{
		{"a Pod", `{apiVersion: v1, kind: Pod, metadata: {name: j}, ` + strings.TrimPrefix(pods("a"), "{"), "main 1 a"},
		{"a Job of one pod", `{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {template: ` + pods("a") + `}}`, "main 1 a"},
		{"a Job runs no more pods than it completes", `{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {parallelism: 4, completions: 3, template: ` + pods("a") + `}}`, "main 3 a"},
		{"a Job with more completions", `{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {parallelism: 2, completions: 9, template: ` + pods("a") + `}}`, "main 2 a"},
		{"a Deployment", `{apiVersion: apps/v1, kind: Deployment, metadata: {name: j}, spec: {replicas: 3, template: ` + pods("a") + `}}`, "main 3 a"},
		{"a StatefulSet", `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: j}, spec: {template: ` + pods("a") + `}}`, "main 1 a"},
		{"a JobSet", `{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: j}, spec: {replicatedJobs: [
		  {name: driver, template: {spec: {template: ` + pods("a") + `}}}, {name: workers, replicas: 2, template: {spec: {parallelism: 4, completions: 4, template: ` + pods("b") + `}}}]}}`, "driver 1 a, workers 8 b"},
		{"a LeaderWorkerSet", `{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, metadata: {name: j}, spec: {replicas: 2, leaderWorkerTemplate: {size: 4, leaderTemplate: ` + pods("a") + `, workerTemplate: ` + pods("b") + `}}}`, "leader 2 a, worker 6 b"},
		{"a LeaderWorkerSet without leaders", `{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, metadata: {name: j}, spec: {leaderWorkerTemplate: {size: 4, workerTemplate: ` + pods("b") + `}}}`, "worker 4 b"},
		{"a RayCluster", `{apiVersion: ray.io/v1, kind: RayCluster, metadata: {name: j}, spec: {headGroupSpec: {template: ` + pods("a") + `}, workerGroupSpecs: [{groupName: gpu, replicas: 2, numOfHosts: 4, template: ` + pods("b") + `}]}}`, "head 1 a, gpu 8 b"},
		{"a RayJob", `{apiVersion: ray.io/v1, kind: RayJob, metadata: {name: j}, spec: {rayClusterSpec: {headGroupSpec: {template: ` + pods("a") + `}}}}`, "head 1 a"},
		{"a RayService", `{apiVersion: ray.io/v1, kind: RayService, metadata: {name: j}, spec: {rayClusterConfig: {headGroupSpec: {template: ` + pods("a") + `}}}}`, "head 1 a"},
		{"a PyTorchJob", `{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: j}, spec: {pytorchReplicaSpecs: {Worker: {replicas: 3, template: ` + pods("b") + `}, Master: {template: ` + pods("a") + `}}}}`, "master 1 a, worker 3 b"},
		{"a TFJob", `{apiVersion: kubeflow.org/v1, kind: TFJob, metadata: {name: j}, spec: {tfReplicaSpecs: {PS: {replicas: 2, template: ` + pods("a") + `}}}}`, "ps 2 a"},
		{"an MPIJob", `{apiVersion: kubeflow.org/v2beta1, kind: MPIJob, metadata: {name: j}, spec: {mpiReplicaSpecs: {Worker: {replicas: 0, template: ` + pods("b") + `}, Launcher: {template: ` + pods("a") + `}}}}`, "launcher 1 a"},
		{"an XGBoostJob", `{apiVersion: kubeflow.org/v1, kind: XGBoostJob, metadata: {name: j}, spec: {xgbReplicaSpecs: {Master: {template: ` + pods("a") + `}}}}`, "master 1 a"},
		{"a PaddleJob", `{apiVersion: kubeflow.org/v1, kind: PaddleJob, metadata: {name: j}, spec: {paddleReplicaSpecs: {Worker: {template: ` + pods("a") + `}}}}`, "worker 1 a"},
		{"a JAXJob", `{apiVersion: kubeflow.org/v1, kind: JAXJob, metadata: {name: j}, spec: {jaxReplicaSpecs: {Worker: {template: ` + pods("a") + `}}}}`, "worker 1 a"},
		{"an AppWrapper", `{apiVersion: workload.codeflare.dev/v1beta2, kind: AppWrapper, metadata: {name: j}, spec: {components: [
		  {template: {apiVersion: v1, kind: Service}}, {template: {apiVersion: batch/v1, kind: Job, spec: {parallelism: 2, template: ` + pods("a") + `}}}]}}`, "main-1 2 a"},
		{"a Workload", `{apiVersion: kueue.x-k8s.io/v1beta2, kind: Workload, metadata: {name: j}, spec: {podSets: [{name: x, count: 5, template: ` + pods("a") + `}]}}`, "x 5 a"},

		{"too many pods", `{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: j}, spec: {replicatedJobs: [{name: a, replicas: 2147483647, template: {spec: {parallelism: 2147483647, template: ` + pods("a") + `}}}]}}`, "a 2147483647 a"},
		{"two negative numbers", `{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, metadata: {name: j}, spec: {replicas: -1, leaderWorkerTemplate: {size: -1, workerTemplate: ` + pods("b") + `}}}`, "leaderworkerset/j: the number of pods worker must not be negative"},
		{"an AppWrapper of an unknown kind with pods", `{apiVersion: workload.codeflare.dev/v1beta2, kind: AppWrapper, metadata: {name: j}, spec: {components: [{template: {apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob}, podSets: [{replicas: 4}]}]}}`, "appwrapper/j: spec.components[0].template: the pods of a TrainJob are not known"},
		{"no pods", `{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {parallelism: 0, template: ` + pods("a") + `}}`, "job/j: has no pods"},
		{"no template", `{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {}}`, "job/j: the template of pods main must have containers"},
		{"a negative number", `{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {parallelism: -2, template: ` + pods("a") + `}}`, "job/j: the number of pods main must not be negative, is -2"},
		{"another type", `{apiVersion: ray.io/v1, kind: RayCluster, metadata: {name: j}, spec: {headGroupSpec: {template: ` + pods("a") + `}, workerGroupSpecs: {}}}`, "raycluster/j: spec.workerGroupSpecs: must be of type"},
		{"another kind", `{apiVersion: batch/v1, kind: CronJob, metadata: {name: j}}`, "cronjob/j: the pods of a CronJob are not known from its manifest"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			manifest := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(tc.manifest), &manifest.Object); err != nil {
				t.Fatal(err)
			}
			wl, err := WorkloadOf(manifest, "team-a")
			var got []string
			if err == nil {
				for _, p := range wl.Spec.PodSets {
					got = append(got, fmt.Sprintf("%s %d %s", p.Name, p.Count, p.Template.Spec.Containers[0].Name))
					if n := p.Template.Spec.Containers[0].Resources.Requests["nvidia.com/gpu"]; n.Value() != 8 {
						t.Errorf("pods %s request %s devices instead of their limit", p.Name, n.String())
					}
				}
			} else {
				got = []string{err.Error()}
			}
			if text := strings.Join(got, ", "); text != tc.want && (err == nil || !strings.HasPrefix(text, tc.want)) {
				t.Errorf("got %q, want %q", text, tc.want)
			}
		})
	}
}

// A container may state requests without limits, and annotations that Kueue reads.
func TestRequestsAndAnnotations(t *testing.T) {
	manifest := &unstructured.Unstructured{}
	text := `{apiVersion: batch/v1, kind: Job, metadata: {name: j, annotations: {kueue.x-k8s.io/job-min-parallelism: "2"}}, spec: {parallelism: 4, template: {
	  metadata: {annotations: {kueue.x-k8s.io/podset-required-topology: rack}},
	  spec: {initContainers: [{name: i}], containers: [{name: c, resources: {requests: {cpu: 1}}}, {name: d, resources: {limits: {cpu: 2}, requests: {memory: 1Gi}}}]}}}}`
	if err := yaml.Unmarshal([]byte(text), &manifest.Object); err != nil {
		t.Fatal(err)
	}
	wl, err := WorkloadOf(manifest, "team-a")
	if err != nil {
		t.Fatal(err)
	}
	p := wl.Spec.PodSets[0]
	if p.MinCount == nil || *p.MinCount != 2 || p.TopologyRequest == nil || *p.TopologyRequest.Required != "rack" {
		t.Errorf("got at least %v pods and topology %v", p.MinCount, p.TopologyRequest)
	}
	if requests := p.Template.Spec.Containers[1].Resources.Requests; requests.Cpu().Value() != 2 || requests.Memory().Value() != 1<<30 {
		t.Errorf("got requests %v", requests)
	}
}
