//go:build e2e && long

package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/embedded"
	"plimsoll.dev/plimsoll/test/lab/fleet"
)

const (
	fitNamespace = "fit"
	fitSeed      = 20261129
	// maxFitPods bounds the pods of a step that tries to start more than fit.
	maxFitPods = 120
	// dedicatedTaint is the key of a taint that the rules tolerate, and some of the pods.
	dedicatedTaint = "dedicated"
)

// fitOverhead is the overhead of pods of the RuntimeClass fitNamespace.
var fitOverhead = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceMemory: resource.MustParse("160Mi")}

// fitRound has nodes of a model of its own, so that kube-scheduler can't mix rounds up.
type fitRound struct {
	cluster *fleet.Cluster
	random  *rand.Rand
	name    string // of the round. It is the model, and the prefix of the names of nodes and pods
	nodes   []*corev1.Node
	// hub and rules are what a Hub and a Prometheus are made of.
	hub   embedded.HubOptions
	rules []string
}

// The gate's default fit query over the shipped rules and a real kube-state-metrics equals the number of pods that a
// real kube-scheduler then starts, on 1,000 random nodes with random pods. One third of the steps has fewer pods than
// fit, the others have more. Pods start as on a kubelet: kube-state-metrics reports a sidecar as one only with the
// status of its pod, so that the rules count more for a pod which is bound and has no status.
//
// The pods differ from what a cluster may have in two ways. Their sidecars are listed before other init containers:
// for a sidecar after a larger init container, kube-scheduler counts less than the rule. And they state no resources of
// the pod as a whole (spec.resources), which kube-state-metrics does not report.
func TestFitEqualsTheScheduler(t *testing.T) {
	const rounds, nodes, steps = 20, 50, 3
	ctx := testContext(t, 15*time.Minute)
	cluster := lab.Worker("cluster1")
	t.Cleanup(func() { cleanUp(t, func(ctx context.Context) error { return deleteFit(ctx, t, cluster) }) })
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fitNamespace}},
		&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: fitNamespace}, Handler: "none", Overhead: &nodev1.Overhead{PodFixed: fitOverhead}},
	} {
		if err := cluster.Client.Create(ctx, object); err != nil {
			t.Fatal(err)
		}
	}
	var bound, rejected, limited int
	for i := range rounds {
		r := newFitRound(t, cluster, i)
		r.createNodes(ctx, t, nodes)
		r.fillNodes(ctx, t)
		for step := range steps {
			result := r.compare(ctx, t, fmt.Sprintf("%s-step%d", r.name, step), step == 0)
			bound, rejected = bound+result.bound, rejected+result.rejected
			if result.isLimited {
				limited++
			}
		}
		if err := r.clear(ctx); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: so far %d pods are bound and %d are not", r.name, bound, rejected)
	}
	t.Logf("%d pods were bound and %d were not. CPU, memory, pods, labels or taints limited %d of %d steps", bound, rejected, limited, rounds*steps)
	if bound < 500 || rejected < rounds || limited < rounds*steps/2 {
		t.Error("that is too few for a comparison")
	}
}

func newFitRound(t *testing.T, cluster *fleet.Cluster, i int) *fitRound {
	t.Helper()
	root, err := fleet.FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	r := &fitRound{cluster: cluster, random: rand.New(rand.NewPCG(fitSeed, uint64(i))), name: fmt.Sprintf("fit-round%d", i),
		rules: []string{filepath.Join(root, "rules", "recording-nodes.yaml")}, hub: embedded.HubOptions{Clusters: []string{cluster.Name}}}
	for name, manifest := range map[string]*embedded.Manifest{"policy.yaml": &r.hub.Policy, "gate.yaml": &r.hub.Gate} {
		if manifest.Object, err = os.ReadFile(filepath.Join(root, "config", "samples", "hub", name)); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// oneOf returns a random element.
func oneOf[T any](random *rand.Rand, list ...T) T { return list[random.IntN(len(list))] }

// createNodes creates nodes and waits until their taints are those of their state.
func (r *fitRound) createNodes(ctx context.Context, t *testing.T, n int) {
	t.Helper()
	for i := range n {
		r.nodes = append(r.nodes, r.randomNode(fmt.Sprintf("%s-node%d", r.name, i)))
	}
	r.parallel(t, len(r.nodes), func(i int) error { return r.cluster.Client.Create(ctx, r.nodes[i]) })
	await(ctx, t, "the nodes of "+r.name+" to be ready", func(ctx context.Context) error {
		current, err := r.listNodes(ctx)
		if err != nil {
			return err
		}
		for _, node := range current {
			isReady := !isTainted(&node, corev1.TaintNodeNotReady) && !isTainted(&node, corev1.TaintNodeUnreachable)
			if isReady != isManaged(&node) || isTainted(&node, corev1.TaintNodeUnschedulable) != node.Spec.Unschedulable {
				return fmt.Errorf("%s has the taints %v", node.Name, node.Spec.Taints)
			}
		}
		return nil
	})
}

// randomNode returns a node with 0 to 8 devices. Some nodes are cordoned, tainted or not ready.
func (r *fitRound) randomNode(name string) *corev1.Node {
	gpus := r.random.Int64N(9)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"type": "kwok", fleet.ProductLabel: r.name}}}
	if r.random.IntN(5) > 0 {
		node.Labels[fleet.BlockLabel] = oneOf(r.random, "a", "b", "a.b", "acb")
	}
	if r.random.IntN(5) > 0 {
		node.Labels[fleet.CapacityTypeLabel] = oneOf(r.random, "SPOT", "ON_DEMAND")
	}
	taint := func(key string, effect corev1.TaintEffect) {
		node.Spec.Taints = []corev1.Taint{{Key: key, Value: oneOf(r.random, "", "ml", "web"), Effect: effect}}
	}
	switch r.random.IntN(24) {
	case 0:
		delete(node.Labels, "type")
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}} // and Unknown after a minute
	case 1, 2:
		node.Spec.Unschedulable = true
	case 3:
		taint("example.com/team", corev1.TaintEffectNoSchedule)
	case 4:
		taint("example.com/team", corev1.TaintEffectNoExecute)
	case 5:
		taint("example.com/team", corev1.TaintEffectPreferNoSchedule)
	case 6, 7:
		taint(fleet.GPUResource, corev1.TaintEffectNoSchedule) // which the rules and the pods tolerate
	case 8, 9, 10, 11:
		taint(dedicatedTaint, oneOf(r.random, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute, corev1.TaintEffectPreferNoSchedule))
	}
	node.Status.Capacity = corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(oneOf[int64](r.random, 7_910, 15_890, 63_770, 127_500), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(1<<34+r.random.Int64N(1<<38), resource.BinarySI),
		corev1.ResourcePods:   *resource.NewQuantity(oneOf[int64](r.random, 4, 8, 110), resource.DecimalSI),
		fleet.GPUResource:     *resource.NewQuantity(gpus, resource.DecimalSI),
	}
	node.Status.Allocatable = maps.Clone(node.Status.Capacity)
	if gpus > 0 && r.random.IntN(8) == 0 { // the device plugin withdrew a device
		node.Status.Allocatable[fleet.GPUResource] = *resource.NewQuantity(gpus-1, resource.DecimalSI)
	}
	return node
}

// isManaged reports whether kwok makes the node ready and starts its pods.
func isManaged(node *corev1.Node) bool { return node.Labels["type"] == "kwok" }

func isTainted(node *corev1.Node, key string) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == key })
}

// fillNodes binds up to four random pods to each node, more than fit there in some cases. A part of them succeeds.
func (r *fitRound) fillNodes(ctx context.Context, t *testing.T) {
	t.Helper()
	var pods []*corev1.Pod
	for _, node := range r.nodes {
		if !isManaged(node) {
			continue
		}
		for i := range r.random.IntN(5) {
			pod := r.pod(fmt.Sprintf("%s-pod%d", node.Name, i), r.randomPod(r.random.Int64N(2)*r.random.Int64N(3)))
			pod.Spec.NodeName = node.Name
			pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
			pods = append(pods, pod)
		}
	}
	r.parallel(t, len(pods), func(i int) error { return r.cluster.Client.Create(ctx, pods[i]) })
	r.awaitRunning(ctx, t)
	for _, pod := range pods {
		if r.random.IntN(4) > 0 {
			continue
		}
		patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"status":{"phase":%q}}`, oneOf(r.random, corev1.PodSucceeded, corev1.PodFailed)))
		if err := r.cluster.Client.Status().Patch(ctx, pod, patch); err != nil {
			t.Fatal(err)
		}
	}
}

// randomPod returns a pod with this number of devices, and random requests of one or two containers, init containers
// and a sidecar.
func (r *fitRound) randomPod(devices int64) corev1.PodSpec {
	container := func(name string, i int) corev1.Container {
		return corev1.Container{Name: fmt.Sprint(name, i), Image: "none", Resources: requestsOf(
			r.random.Int64N(3)*r.random.Int64N(3_000), r.random.Int64N(3)*r.random.Int64N(1<<33), 0)}
	}
	var spec corev1.PodSpec
	for i := range r.random.IntN(2) {
		sidecar := container("sidecar", i)
		sidecar.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		spec.InitContainers = append(spec.InitContainers, sidecar)
	}
	for i := range r.random.IntN(3) {
		spec.InitContainers = append(spec.InitContainers, container("init", i))
	}
	for i := range 1 + r.random.IntN(2) {
		spec.Containers = append(spec.Containers, container("main", i))
	}
	with := &spec.Containers[0]
	if last := len(spec.InitContainers) - 1; last >= 0 && r.random.IntN(3) == 0 {
		with = &spec.InitContainers[last]
	}
	addDevices(with, devices)
	if r.random.IntN(3) == 0 {
		spec.RuntimeClassName, spec.Overhead = ptr.To(fitNamespace), fitOverhead
	}
	return spec
}

// requestsOf returns the requests of a container: thousandths of cores, bytes and devices. 0 is no request.
func requestsOf(milliCPU, memory, devices int64) corev1.ResourceRequirements {
	list := corev1.ResourceList{}
	if milliCPU > 0 {
		list[corev1.ResourceCPU] = *resource.NewMilliQuantity(milliCPU, resource.DecimalSI)
	}
	if memory > 0 {
		list[corev1.ResourceMemory] = *resource.NewQuantity(memory, resource.BinarySI)
	}
	c := corev1.Container{Resources: corev1.ResourceRequirements{Requests: list}}
	addDevices(&c, devices)
	return c.Resources
}

func addDevices(c *corev1.Container, devices int64) {
	if devices > 0 {
		quantity := *resource.NewQuantity(devices, resource.DecimalSI)
		c.Resources.Requests[fleet.GPUResource] = quantity
		c.Resources.Limits = corev1.ResourceList{fleet.GPUResource: quantity}
	}
}

// randomShape returns the pods of a step. In half of the cases, whole pods take all CPU or memory of a node, but for a
// remainder that is smaller than the number of pods.
func (r *fitRound) randomShape() corev1.PodSpec {
	spec := r.randomPod(1 + r.random.Int64N(3))
	if r.random.IntN(2) == 0 {
		node, pods := oneOf(r.random, r.nodes...), 1+r.random.Int64N(8)
		milliCPU, memory := node.Status.Allocatable.Cpu().MilliValue()/pods, node.Status.Allocatable.Memory().Value()/pods
		if r.random.IntN(2) == 0 {
			milliCPU /= 2
		} else {
			memory /= 2
		}
		spec = corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none", Resources: requestsOf(milliCPU, memory, 1)}}}
	}
	spec.Tolerations = []corev1.Toleration{{Key: fleet.GPUResource, Operator: corev1.TolerationOpExists}}
	switch toleration := (corev1.Toleration{Key: dedicatedTaint, Effect: oneOf(r.random, "", corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute)}); r.random.IntN(4) {
	case 0:
		toleration.Operator = corev1.TolerationOpExists
		spec.Tolerations = append(spec.Tolerations, toleration)
	case 1, 2:
		toleration.Value = oneOf(r.random, "", "ml", "web")
		spec.Tolerations = append(spec.Tolerations, toleration)
	}
	spec.NodeSelector = map[string]string{fleet.ProductLabel: r.name}
	if r.random.IntN(3) == 0 {
		spec.NodeSelector[fleet.CapacityTypeLabel] = oneOf(r.random, "SPOT", "ON_DEMAND")
	}
	if r.random.IntN(3) == 0 {
		blocks := oneOf(r.random, []string{"a"}, []string{"b", "a"}, []string{"a.b"}, []string{"c"})
		spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: fleet.BlockLabel, Operator: corev1.NodeSelectorOpIn, Values: blocks}}}}}}}
	}
	return spec
}

// pod returns a pod of the round.
func (r *fitRound) pod(name string, spec corev1.PodSpec) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: fitNamespace, Name: name, Labels: map[string]string{"round": r.name}}, Spec: *spec.DeepCopy()}
}

// comparison is what became of the pods of a step.
type comparison struct {
	bound, rejected int
	isLimited       bool // by CPU, memory, pods, labels or taints: the devices are sufficient for more pods
}

// compare starts pods of a random shape, fewer or more than fit. kube-scheduler must bind as many as fit and refuse the
// others.
func (r *fitRound) compare(ctx context.Context, t *testing.T, step string, fewer bool) comparison {
	t.Helper()
	spec := r.randomShape()
	metrics := r.collect(ctx, t)
	fit, byDevices := r.fit(ctx, t, metrics, spec)
	n := fit + 1 + r.random.IntN(3)
	if fit > 0 && (fewer || fit > maxFitPods) {
		n = min(1+r.random.IntN(10), fit)
	}
	pods := make([]*corev1.Pod, n)
	for i := range pods {
		pods[i] = r.pod(fmt.Sprintf("%s-%d", step, i), spec)
		pods[i].Labels["step"] = step
	}
	r.parallel(t, n, func(i int) error { return r.cluster.Client.Create(ctx, pods[i]) })
	describe := func() string {
		return fmt.Sprintf("seed %d, %s: the query fits %d of %d pods with %s\nkube-scheduler bound by node: %v\nunrequested:\n%s",
			fitSeed, step, fit, n, describePod(spec), r.boundByNode(ctx, t, step), strings.Join(r.unrequested(ctx, t, metrics), "\n"))
	}
	bound := r.awaitDecided(ctx, t, step, n, min(n, fit), describe)
	r.awaitRunning(ctx, t)
	return comparison{bound: bound, rejected: n - bound, isLimited: byDevices > fit}
}

// fit returns how many pods start by the gate's default query, and by devices alone.
func (r *fitRound) fit(ctx context.Context, t *testing.T, metrics *embedded.Prometheus, spec corev1.PodSpec) (pods, byDevices int) {
	t.Helper()
	options := r.hub
	options.Source = metrics.Query
	hub, err := embedded.NewHub(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: fitNamespace, Name: r.name}, Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: spec}}}
	if pods, err = hub.Fit(ctx, job, r.cluster.Name); err != nil {
		t.Fatal(err)
	}
	var devices int64
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		devices += c.Resources.Requests.Name(fleet.GPUResource, resource.DecimalSI).Value()
	}
	expr := fmt.Sprintf(`sum by (cluster) (floor(node_resource_model:plimsoll_free_devices:placeable{model=%q} / %d))`, r.name, devices)
	values, err := metrics.ByCluster(ctx, expr)
	if err != nil {
		t.Fatal(err)
	}
	return pods, int(values[r.cluster.Name])
}

// collect returns the metrics of kube-state-metrics and of the shipped rules, once they show the nodes and the pods
// that the API server has.
func (r *fitRound) collect(ctx context.Context, t *testing.T) (metrics *embedded.Prometheus) {
	t.Helper()
	await(ctx, t, "kube-state-metrics to show "+r.name, func(ctx context.Context) error {
		want, err := r.stateOfAPI(ctx)
		if err != nil {
			return err
		}
		if metrics, err = embedded.NewPrometheus(embedded.PrometheusOptions{RuleFiles: r.rules, Logger: slog.New(slog.DiscardHandler),
			Targets: []embedded.Target{{Cluster: r.cluster.Name, Address: r.cluster.KubeStateMetrics()}}}); err != nil {
			return err
		}
		if err := metrics.Collect(ctx); err != nil {
			return err
		}
		got, err := stateOfMetrics(ctx, metrics)
		if diff := cmp.Diff(want, got); err == nil && diff != "" {
			err = fmt.Errorf("the API server and kube-state-metrics differ: %s", diff)
		}
		return err
	})
	return metrics
}

// stateOfAPI lists what kube-state-metrics shows once it has all events.
func (r *fitRound) stateOfAPI(ctx context.Context) (state []string, err error) {
	nodes, err := r.listNodes(ctx)
	if err != nil {
		return nil, err
	}
	for _, node := range nodes {
		state = append(state, fmt.Sprintf("%s has room for %d pods", node.Name, node.Status.Allocatable.Pods().Value()))
		if isManaged(&node) {
			state = append(state, node.Name+" is ready")
		}
		for _, taint := range node.Spec.Taints {
			state = append(state, node.Name+" has the taint "+taint.Key)
		}
	}
	pods, err := r.listPods(ctx)
	for _, pod := range pods {
		state = append(state, fmt.Sprintf("%s is %s on %s", pod.Name, pod.Status.Phase, pod.Spec.NodeName))
	}
	return slices.Sorted(slices.Values(state)), err
}

// stateOfMetrics returns the same list from metrics.
func stateOfMetrics(ctx context.Context, metrics *embedded.Prometheus) (state []string, err error) {
	const nodes = `{node=~"fit-.+"`
	for _, row := range []struct {
		expr string
		text func(labels map[string]string, value float64) string
	}{
		{"kube_node_status_allocatable" + nodes + `,resource="pods"}`, func(l map[string]string, v float64) string {
			return fmt.Sprintf("%s has room for %.0f pods", l["node"], v)
		}},
		{"kube_node_status_condition" + nodes + `,condition="Ready",status="true"} == 1`, func(l map[string]string, _ float64) string { return l["node"] + " is ready" }},
		{"kube_node_spec_taint" + nodes + "}", func(l map[string]string, _ float64) string { return l["node"] + " has the taint " + l["key"] }},
		{fmt.Sprintf(`group by (pod, node, phase) (kube_pod_info{namespace=%[1]q} * on (pod) group_right (node) (kube_pod_status_phase{namespace=%[1]q} == 1))`, fitNamespace),
			func(l map[string]string, _ float64) string {
				return fmt.Sprintf("%s is %s on %s", l["pod"], l["phase"], l["node"])
			}},
	} {
		result, err := metrics.Query(ctx, row.expr, time.Now())
		if err != nil {
			return nil, err
		}
		for _, sample := range result.Samples {
			state = append(state, row.text(sample.Labels, sample.Value))
		}
	}
	return slices.Sorted(slices.Values(state)), nil
}

// awaitDecided waits until kube-scheduler has bound want pods of a step and refused the others, which it then deletes.
// It returns how many are bound.
func (r *fitRound) awaitDecided(ctx context.Context, t *testing.T, step string, pods, want int, describe func() string) (bound int) {
	t.Helper()
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var refused []*corev1.Pod
	err := fleet.Await(limited, "kube-scheduler", func(ctx context.Context) error {
		list, err := r.listPods(ctx, client.MatchingLabels{"step": step})
		if err != nil {
			return err
		}
		bound, refused = 0, nil
		for i := range list {
			switch pod := &list[i]; {
			case pod.Spec.NodeName != "":
				bound++
			case isUnschedulable(pod):
				refused = append(refused, pod)
			}
		}
		if bound > want {
			t.Fatalf("kube-scheduler bound %d pods: %s", bound, describe())
		}
		if bound < want || bound+len(refused) < pods {
			return fmt.Errorf("%d are bound and %d refused", bound, len(refused))
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%v: %s", err, describe())
	}
	r.parallel(t, len(refused), func(i int) error { return r.cluster.Client.Delete(ctx, refused[i], client.GracePeriodSeconds(0)) })
	return bound
}

// awaitRunning waits until no pod of the round is pending.
func (r *fitRound) awaitRunning(ctx context.Context, t *testing.T) {
	t.Helper()
	await(ctx, t, "all pods of "+r.name+" to run", func(ctx context.Context) error {
		list, err := r.listPods(ctx)
		if err != nil {
			return err
		}
		for _, pod := range list {
			if pod.Status.Phase == corev1.PodPending {
				return fmt.Errorf("%s is pending", pod.Name)
			}
		}
		return nil
	})
}

func (r *fitRound) listNodes(ctx context.Context) ([]corev1.Node, error) {
	var list corev1.NodeList
	err := r.cluster.Client.List(ctx, &list, client.MatchingLabels{fleet.ProductLabel: r.name})
	return list.Items, err
}

func (r *fitRound) listPods(ctx context.Context, options ...client.ListOption) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := r.cluster.Client.List(ctx, &list, append(options, client.InNamespace(fitNamespace))...)
	return list.Items, err
}

// boundByNode counts the pods of a step that are bound, for messages.
func (r *fitRound) boundByNode(ctx context.Context, t *testing.T, step string) map[string]int {
	t.Helper()
	list, err := r.listPods(ctx, client.MatchingLabels{"step": step})
	if err != nil {
		t.Error(err)
	}
	count := map[string]int{}
	for _, pod := range list {
		if pod.Spec.NodeName != "" {
			count[pod.Spec.NodeName]++
		}
	}
	return count
}

// unrequested lists what the rules report as left on each node, for messages.
func (r *fitRound) unrequested(ctx context.Context, t *testing.T, metrics *embedded.Prometheus) []string {
	t.Helper()
	result, err := metrics.Query(ctx, fmt.Sprintf(`node:kube_unrequested:placeable and on (node) kube_node_labels{label_nvidia_com_gpu_product=%q}`, r.name), time.Now())
	if err != nil {
		t.Error(err)
	}
	var lines []string
	for _, sample := range result.Samples {
		lines = append(lines, fmt.Sprintf("%s %s %v", sample.Labels["node"], sample.Labels["resource"], sample.Value))
	}
	return slices.Sorted(slices.Values(lines))
}

// describePod states the requests of a pod, and the labels and taints that its node may have.
func describePod(spec corev1.PodSpec) string {
	var parts []string
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		part := c.Name
		for _, name := range slices.Sorted(maps.Keys(c.Resources.Requests)) {
			quantity := c.Resources.Requests[name]
			part += fmt.Sprintf(" %s=%s", name, quantity.String())
		}
		parts = append(parts, part)
	}
	return fmt.Sprintf("%s; overhead %t; node selector %v; affinity %v; tolerations %v", strings.Join(parts, ", "), spec.Overhead != nil, spec.NodeSelector, spec.Affinity, spec.Tolerations)
}

// parallel calls do for 0 to n-1.
func (r *fitRound) parallel(t *testing.T, n int, do func(i int) error) {
	t.Helper()
	var g errgroup.Group
	g.SetLimit(8)
	for i := range n {
		g.Go(func() error { return do(i) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

// clear deletes the pods and the nodes of the round.
func (r *fitRound) clear(ctx context.Context) error {
	if err := r.cluster.Client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(fitNamespace), client.GracePeriodSeconds(0)); err != nil {
		return err
	}
	return r.cluster.Client.DeleteAllOf(ctx, &corev1.Node{}, client.MatchingLabels{fleet.ProductLabel: r.name})
}

// deleteFit deletes what a round left and waits until the metrics of the cluster are complete again.
func deleteFit(ctx context.Context, t *testing.T, cluster *fleet.Cluster) error {
	var nodes corev1.NodeList
	if err := cluster.Client.List(ctx, &nodes); err != nil {
		return err
	}
	for _, node := range nodes.Items {
		if strings.HasPrefix(node.Name, "fit-") {
			if err := cluster.Client.Delete(ctx, &node); err != nil {
				return err
			}
		}
	}
	if err := cluster.Client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(fitNamespace), client.GracePeriodSeconds(0)); err != nil {
		return err
	}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fitNamespace}}, &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: fitNamespace}},
	} {
		if err := client.IgnoreNotFound(cluster.Client.Delete(ctx, object)); err != nil {
			return err
		}
	}
	awaitValue(ctx, t, fmt.Sprintf(`cluster:plimsoll_reporting_nodes:ratio{cluster=%q}`, cluster.Name), 1)
	return nil
}
