package gate_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/metrics/promql"
)

// amounts are milli-cores, bytes of memory, devices and pods.
type amounts struct{ cpu, memory, devices, pods int64 }

func (a amounts) plus(b amounts) amounts {
	return amounts{a.cpu + b.cpu, a.memory + b.memory, a.devices + b.devices, a.pods + b.pods}
}

func (a amounts) max(b amounts) amounts {
	return amounts{max(a.cpu, b.cpu), max(a.memory, b.memory), max(a.devices, b.devices), max(a.pods, b.pods)}
}

// fits is how many pods with these amounts kube-scheduler places on a node that has a left.
func (a amounts) fits(pod amounts) int64 {
	n := a.pods
	for _, row := range [][2]int64{{a.cpu, pod.cpu}, {a.memory, pod.memory}, {a.devices, pod.devices}} {
		if row[1] > 0 {
			n = min(n, row[0]/row[1])
		}
	}
	return max(0, n)
}

// wholeNode is a node with what its pods leave.
type wholeNode struct {
	total, left amounts
	zone        string
	hasZone     bool // kube-state-metrics reports zones
	taints      []corev1.Taint
}

// holds reports whether kube-scheduler places a pod on the node by labels and taints.
func (n wholeNode) holds(p shape.PodSet, tolerations []corev1.Toleration) bool {
	if n.hasZone && len(p.NodeLabels) > 0 && !slices.Contains(p.NodeLabels[0].Values, n.zone) {
		return false
	}
	for i := range n.taints {
		isTolerated := func(t corev1.Toleration) bool { return t.ToleratesTaint(logr.Discard(), &n.taints[i], false) }
		if n.taints[i].Key != "nvidia.com/gpu" && n.taints[i].Effect != corev1.TaintEffectPreferNoSchedule && !slices.ContainsFunc(tolerations, isTolerated) {
			return false
		}
	}
	return true
}

var (
	taintKeys    = []string{"dedicated", "sku", "nvidia.com/gpu"} // that the rules count as usable
	taintValues  = []string{"", "a", `b"|.*`}
	taintEffects = []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute, corev1.TaintEffectPreferNoSchedule}
)

func randomTolerations(random *rand.Rand) (list []corev1.Toleration) {
	for range random.IntN(4) {
		t := corev1.Toleration{Key: oneOf(random, append(taintKeys, "dedicated", "")), Operator: corev1.TolerationOpExists, Effect: oneOf(random, append(taintEffects, ""))}
		if t.Key != "" && random.IntN(2) == 0 {
			t.Operator, t.Value = oneOf(random, []corev1.TolerationOperator{"", corev1.TolerationOpEqual}), oneOf(random, taintValues)
		}
		list = append(list, t)
	}
	return list
}

func oneOf[T any](random *rand.Rand, list []T) T { return list[random.IntN(len(list))] }

// tolerationsOf returns what the gate reads of tolerations in a pod.
func tolerationsOf(list []corev1.Toleration) []shape.Toleration {
	gpu := corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}
	pod := corev1.PodSpec{Tolerations: list, Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Limits: gpu, Requests: gpu}}}}
	wl := &kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: pod}}}}}
	return shape.FactsOf(wl, shape.OptionsOf(&v1alpha1.PlacementGateSpec{}, nil)).PodSets[0].Tolerations
}

// randomNode adds the series of a node with random pods.
func randomNode(random *rand.Rand, metrics *shareMetrics, cluster, name string, hasZone bool) wholeNode {
	n := wholeNode{hasZone: hasZone, zone: []string{"a", "b", "a.b"}[random.IntN(3)], total: amounts{
		cpu: []int64{7_910, 63_770, 127_500}[random.IntN(3)], memory: 1 + random.Int64N(1<<40), devices: 8, pods: []int64{4, 8, 110}[random.IntN(3)]}}
	n.left = n.total
	of := func(more ...string) []string { return append([]string{"cluster", cluster, "node", name}, more...) }
	for range random.IntN(5) {
		if random.IntN(6) == 0 && n.left.devices > 0 {
			n.left.devices--
		}
	}
	metrics.add(1_700_000_000, "plimsoll_exporter_last_collection_timestamp_seconds", of()...)
	for state, devices := range map[string]int64{"allocatable": 8, "free": n.left.devices, "unhealthy": 0, "allocated": 8 - n.left.devices} {
		metrics.add(float64(devices), "plimsoll_node_devices", of("resource", "nvidia.com/gpu", "model", model, "state", state)...)
	}
	metrics.add(1, "kube_node_status_condition", of("condition", "Ready", "status", "true")...)
	metrics.add(0, "kube_node_spec_unschedulable", of()...)
	labels := of()
	if hasZone {
		labels = of("label_topology_kubernetes_io_zone", n.zone)
	}
	metrics.add(1, "kube_node_labels", labels...)
	for range max(0, random.IntN(5)-2) {
		taint := corev1.Taint{Key: oneOf(random, taintKeys), Value: oneOf(random, taintValues), Effect: oneOf(random, taintEffects)}
		if !slices.Contains(n.taints, taint) {
			n.taints = append(n.taints, taint)
			metrics.add(1, "kube_node_spec_taint", of("key", taint.Key, "value", taint.Value, "effect", string(taint.Effect))...)
		}
	}
	for resource, amount := range map[string]float64{"cpu": float64(n.total.cpu) / 1000, "memory": float64(n.total.memory), "pods": float64(n.total.pods)} {
		metrics.add(amount, "kube_node_status_allocatable", of("resource", resource)...)
	}
	for i := range random.IntN(6) {
		n.left = randomPod(random, metrics, cluster, name, fmt.Sprintf("pod-%s-%d", name, i), n.left)
	}
	return n
}

// randomPod adds the series of a pod of a node, if it fits there, and returns what is left.
func randomPod(random *rand.Rand, metrics *shareMetrics, cluster, node, pod string, left amounts) amounts {
	draw := func() amounts {
		return amounts{cpu: random.Int64N(3) * random.Int64N(9_000), memory: random.Int64N(3) * random.Int64N(1<<37)}
	}
	containers, inits, sidecars := []amounts{draw(), draw()}[:1+random.IntN(2)], []amounts{draw(), draw()}[:random.IntN(3)], []amounts{draw()}[:random.IntN(2)]
	var overhead amounts
	if random.IntN(3) == 0 {
		overhead = amounts{cpu: 250, memory: 1 << 27}
	}
	var sum, largest, beside amounts
	for _, a := range containers {
		sum = sum.plus(a)
	}
	for _, a := range inits {
		largest = largest.max(a)
	}
	for _, a := range sidecars { // they start before the other init containers
		beside = beside.plus(a)
	}
	needs := sum.max(largest).plus(beside).plus(overhead).plus(amounts{pods: 1})
	if left.fits(needs) < 1 {
		return left
	}
	phase := []string{"Running", "Running", "Running", "Pending", "Succeeded", "Failed"}[random.IntN(6)]
	of := func(more ...string) []string {
		return append([]string{"cluster", cluster, "namespace", "ml", "pod", pod}, more...)
	}
	metrics.add(1, "kube_pod_info", of("node", node)...)
	for _, name := range []string{"Running", "Pending", "Succeeded", "Failed"} {
		value := 0.0
		if name == phase {
			value = 1
		}
		metrics.add(value, "kube_pod_status_phase", of("phase", name)...)
	}
	request := func(kind, container string, a amounts) {
		if a.cpu > 0 {
			metrics.add(float64(a.cpu)/1000, kind, of("node", node, "container", container, "resource", "cpu")...)
		}
		if a.memory > 0 {
			metrics.add(float64(a.memory), kind, of("node", node, "container", container, "resource", "memory")...)
		}
	}
	for i, a := range containers {
		request("kube_pod_container_resource_requests", fmt.Sprint("main-", i), a)
	}
	for i, a := range inits {
		request("kube_pod_init_container_resource_requests", fmt.Sprint("init-", i), a)
		metrics.add(1, "kube_pod_init_container_info", of("container", fmt.Sprint("init-", i))...)
	}
	for i, a := range sidecars {
		request("kube_pod_init_container_resource_requests", fmt.Sprint("sidecar-", i), a)
		metrics.add(1, "kube_pod_init_container_info", of("container", fmt.Sprint("sidecar-", i), "restart_policy", "Always")...)
	}
	if overhead.cpu > 0 {
		metrics.add(float64(overhead.cpu)/1000, "kube_pod_overhead_cpu_cores", of()...)
		metrics.add(float64(overhead.memory), "kube_pod_overhead_memory_bytes", of()...)
	}
	if phase == "Succeeded" || phase == "Failed" {
		return left
	}
	return amounts{left.cpu - needs.cpu, left.memory - needs.memory, left.devices, left.pods - 1}
}

// The default queries fit and emptyFit over the recorded rules equal what kube-scheduler places, on 1,000 random nodes
// with random pods.
func TestFitOfWholePodsEqualsPlacement(t *testing.T) {
	const clusters, nodes = 100, 10
	random := rand.New(rand.NewPCG(20261128, 1))
	byCluster := map[string][]wholeNode{}
	var metrics shareMetrics
	for c := range clusters {
		cluster := fmt.Sprintf("c%03d", c)
		metrics.add(1, "kube_pod_status_phase", "cluster", cluster, "namespace", "kube-system", "pod", "kube-state-metrics", "phase", "Running")
		for i := range nodes {
			byCluster[cluster] = append(byCluster[cluster], randomNode(random, &metrics, cluster, fmt.Sprint("n", i), c%4 > 0))
		}
	}
	recorded := metrics.recorded(t)
	compared, byCPU := 0, 0
	for i := range 60 {
		needs := amounts{cpu: random.Int64N(3) * (1 + random.Int64N(16_000)), memory: random.Int64N(3) * (1 + random.Int64N(1<<37)), devices: 1 + random.Int64N(4), pods: 1}
		if n := byCluster[fmt.Sprintf("c%03d", i)][i%nodes]; i%2 == 0 { // these pods take all CPU of a node
			for pods := min(n.left.devices, n.left.pods); pods > 0; pods-- {
				if n.left.cpu%pods == 0 {
					needs = amounts{n.left.cpu / pods, n.left.memory / 8, 1, 1}
					break
				}
			}
		}
		p := shape.PodSet{Resource: "nvidia.com/gpu", Model: model, DevicesPerPod: needs.devices, Pods: 1, Requests: shape.Requests{MilliCPU: needs.cpu, Memory: needs.memory}}
		if random.IntN(2) == 0 {
			p.NodeLabels = []shape.NodeLabel{{Key: "topology.kubernetes.io/zone", Values: [][]string{{"a"}, {"a", "b"}, {"a.b"}, {"c"}}[random.IntN(4)]}}
		}
		tolerations := randomTolerations(random)
		p.Tolerations = tolerationsOf(tolerations)
		fit, empty, byDevices := recorded(exprOf(t, gate.QueryFit, p)), recorded(exprOf(t, gate.QueryEmptyFit, p)), recorded(exprOf(t, gate.QueryDeviceFit, p))
		for cluster, list := range byCluster {
			var want, wantEmpty int64
			for _, n := range list {
				if !n.holds(p, tolerations) {
					continue
				}
				want, wantEmpty = want+n.left.fits(needs), wantEmpty+n.total.fits(needs)
			}
			if fit[cluster] != float64(want) || empty[cluster] != float64(wantEmpty) {
				t.Fatalf("%+v: the queries fit %v and %v pods on %s, kube-scheduler places %d and %d\n%+v\n%s", p, fit[cluster], empty[cluster], cluster, want, wantEmpty, list, exprOf(t, gate.QueryFit, p))
			}
			compared++
			if byDevices[cluster] > fit[cluster] {
				byCPU++
			}
		}
	}
	if byCPU < compared/4 {
		t.Errorf("CPU, memory, pods, labels or taints limit the pods in %d of %d cases", byCPU, compared)
	}
}

// exprOf renders a default query of a gate for a pod set.
func exprOf(t *testing.T, name string, p shape.PodSet) string {
	t.Helper()
	for _, q := range gate.Queries(&v1alpha1.PlacementGateSpec{}, "cluster") {
		if q.Name != name {
			continue
		}
		q, _ = q.For(p)
		template, problems := promql.ParseTemplate(q.Expr, q.Variables())
		if len(problems) > 0 {
			t.Fatalf("%s\n%s", promql.Strings(problems), q.Expr)
		}
		expr, err := template.Render(shape.Facts{}.Vars(p))
		if err != nil {
			t.Fatal(err)
		}
		return expr
	}
	t.Fatalf("no query %s", name)
	return ""
}
