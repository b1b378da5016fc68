package gate_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/prometheus/promql/promqltest"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/metrics/promql"
)

const (
	root  = "../../../.."
	model = "NVIDIA-H100-80GB-HBM3"
)

// sharedDevice is a device of HAMi: its memory in MiB, and what pods have of it.
type sharedDevice struct {
	node                    int
	memory                  int64
	usedMemory, usedPercent int64
	usedShares              int64
	usedCores               float64 // as the exporter adds them
}

const replicas = 10 // of each device

// take starts a pod as HAMi's scheduler does, or returns false. A percentage of the memory is
// rounded down to MiB. A pod with all cores wants an unused device, and a device without free cores
// takes no pod.
func (d *sharedDevice) take(s shape.Share) bool {
	memory := s.Memory >> 20
	if memory == 0 {
		memory = d.memory * s.MemoryPercent / 100
	}
	fits := d.usedShares < replicas && d.memory-d.usedMemory >= memory && 100-d.usedPercent >= s.CorePercent &&
		(s.CorePercent < 100 || d.usedShares == 0) && (s.CorePercent > 0 || d.usedPercent < 100)
	if fits {
		d.usedShares++
		d.usedMemory += memory
		d.usedPercent += s.CorePercent
		d.usedCores += float64(s.CorePercent) / 100
	}
	return fits
}

// fits returns how many pods start on the devices, each with k devices of one node.
func fits(devices []sharedDevice, s shape.Share, k int) (pods int) {
	for node := range 3 {
		var slots []int
		for _, d := range devices {
			n := 0
			for d.node == node && d.take(s) {
				n++
			}
			slots = append(slots, n)
		}
		pods += podsOnDifferentDevices(slots, k)
	}
	return pods
}

func randomShare(random *rand.Rand) shape.Share {
	s := shape.Share{CorePercent: []int64{0, 0, 10, 30, 33, 50, 70, 100}[random.IntN(8)]}
	if random.IntN(2) == 0 {
		s.Memory = []int64{500, 3000, 10_000, 27_186, 40_000, 81_559}[random.IntN(6)] << 20
	} else {
		s.MemoryPercent = []int64{1, 10, 20, 25, 33, 50, 100}[random.IntN(7)]
	}
	return s
}

// The fit query of the sample gate over the recorded rules equals what HAMi's scheduler can place,
// for random devices, pods and requests. For pods with several devices it is never more, and equal
// if a device takes one pod only.
func TestFitOfSharesEqualsPlacement(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates many cases")
	}
	const cases = 80
	random := rand.New(rand.NewPCG(20261122, 2))
	clusters := make([][]sharedDevice, cases)
	var metrics shareMetrics
	for c := range clusters {
		cluster := fmt.Sprintf("c%03d", c)
		metrics.addNodes(cluster, 3)
		for i := range random.IntN(6) {
			d := sharedDevice{node: random.IntN(3), memory: []int64{81_559, 46_068, 15_360}[random.IntN(3)]}
			for range random.IntN(8) {
				d.take(randomShare(random))
			}
			clusters[c] = append(clusters[c], d)
			for dimension, amount := range map[string][2]float64{
				"shares": {replicas, float64(d.usedShares)}, "memory": {float64(d.memory << 20), float64(d.usedMemory << 20)}, "cores": {1, d.usedCores},
			} {
				id := []string{"cluster", cluster, "node", fmt.Sprint(d.node), "uuid", fmt.Sprint(i), "model", model, "provider", "hami", "dimension", dimension}
				metrics.add(amount[0], "plimsoll_device_share_capacity", id...)
				metrics.add(amount[1], "plimsoll_device_share_allocated", id...)
			}
		}
	}
	fitOf := metrics.fitOf(t, "shares")
	compared, several := 0, 0
	for range 60 {
		p := shape.PodSet{Resource: "nvidia.com/gpu", Model: model, DevicesPerPod: 1 + int64(random.IntN(2)*random.IntN(3)), Pods: 1}
		share := randomShare(random)
		p.Share = &share
		got, expr := fitOf(p)
		for c, devices := range clusters {
			cluster := fmt.Sprintf("c%03d", c)
			want := fits(devices, share, int(p.DevicesPerPod))
			isExact := p.DevicesPerPod == 1 || max(share.MemoryPercent, share.CorePercent) > 50
			if fit := int(got[cluster]); isExact && fit != want || fit > want {
				t.Fatalf("%d devices with %s for each pod: the query fits %d pods on %+v, HAMi %d\n%s", p.DevicesPerPod, share, fit, devices, want, expr)
			}
			compared++
			if want > 0 {
				several++
			}
		}
	}
	if several < compared/4 {
		t.Errorf("only %d of %d cases have room", several, compared)
	}
}

// Half of the devices busy and half idle is not 50%: a job with 30% fits on the idle ones, and on
// none of a cluster whose devices are at 50%.
func TestPackingCountsDevices(t *testing.T) {
	script := "load 1m\n"
	device := func(cluster string, i int, model string, utilization, free float64) {
		id := fmt.Sprintf(`cluster=%q,node="n",model=%q,uuid="%d"`, cluster, model, i)
		script += fmt.Sprintf("  device:plimsoll_utilization:placeable{%s} %g\n  device_dimension:plimsoll_free_share:placeable{%s,provider=\"nvidia\",dimension=\"shares\"} %g\n"+
			"  device_dimension:plimsoll_share_capacity:placeable{%s,provider=\"nvidia\",dimension=\"shares\"} 4\n", id, utilization, id, free, id)
	}
	for i, utilization := range []float64{1, 1, 0, 0} {
		device("half", i, model, utilization, 3)
		device("even", i, model, 0.5, 3)
	}
	device("limit", 0, model, 0.4, 1)
	device("above", 0, model, 0.41, 4)
	device("full", 0, model, 0, 0)
	device("other", 0, "NVIDIA-L4", 0, 4)
	expr, err := sampleFit(t, "packing").Render(shape.Facts{}.Vars(shape.PodSet{Resource: "nvidia.com/gpu.shared", Model: model, DevicesPerPod: 1, Pods: 1}))
	if err != nil {
		t.Fatal(err)
	}
	script += "\neval instant at 0m " + expr + `
  {cluster="half"} 2
  {cluster="even"} 0
  {cluster="limit"} 1
  {cluster="above"} 0
  {cluster="full"} 0
`
	promqltest.RunTest(t, script, promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery))
}

// A job that was run before counts with the utilization of its profile. One that uses more than 70%
// by itself fits on idle devices only.
func TestPackingByTheProfileOfTheJob(t *testing.T) {
	const metrics = `load 1m
  device:plimsoll_utilization:placeable{cluster="c1",node="n",uuid="0"} 0
  device:plimsoll_utilization:placeable{cluster="c1",node="n",uuid="1"} 0.5
  device:plimsoll_utilization:placeable{cluster="c1",node="n",uuid="2"} 0.6
  device:plimsoll_utilization:placeable{cluster="c1",node="n",uuid="3"} 0
  device_dimension:plimsoll_free_share:placeable{cluster="c1",node="n",model="m",uuid="0",provider="nvidia",dimension="shares"} 4
  device_dimension:plimsoll_free_share:placeable{cluster="c1",node="n",model="m",uuid="1",provider="nvidia",dimension="shares"} 3
  device_dimension:plimsoll_free_share:placeable{cluster="c1",node="n",model="m",uuid="2",provider="nvidia",dimension="shares"} 3
  device_dimension:plimsoll_free_share:placeable{cluster="c1",node="n",model="m",uuid="3",provider="nvidia",dimension="shares"} 0
`
	template, problems := promql.ParseTemplate(sampleGate(t, "packing").Requirements[0].Query, slices.Concat(shape.Variables, shape.ProfileVariables))
	if problems != nil {
		t.Fatal(promql.Strings(problems))
	}
	script := metrics
	for _, tc := range []struct {
		percent, pods int64
		devices       int // with room; 0 = fewer than pods
	}{{10, 1, 3}, {20, 1, 2}, {20, 3, 0}, {30, 1, 1}, {93, 1, 1}, {93, 2, 0}} {
		expr, err := template.Render(shape.Facts{}.Vars(shape.PodSet{Model: "m", DevicesPerPod: 1, Pods: tc.pods, Profile: &shape.Profile{UtilizationPercent: tc.percent}}))
		if err != nil {
			t.Fatal(err)
		}
		script += "\neval instant at 0m " + expr + "\n"
		if tc.devices > 0 {
			script += fmt.Sprintf("  {cluster=\"c1\"} %d\n", tc.devices)
		}
	}
	promqltest.RunTest(t, script, promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery))
}

// A gate whose fit query reads neither shares nor a topology sends the same queries for pods that
// request them as for pods that do not.
func TestQueriesWithoutSharesAreUnchanged(t *testing.T) {
	workload := func(limits corev1.ResourceList, topology *kueue.PodSetTopologyRequest) *kueue.Workload {
		spec := corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Limits: limits}}}}
		return &kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "main", Count: 2, Template: corev1.PodTemplateSpec{Spec: spec}, TopologyRequest: topology}}}}
	}
	one := resource.MustParse("1")
	plain := workload(corev1.ResourceList{"nvidia.com/gpu": one}, nil)
	sharing := workload(corev1.ResourceList{"nvidia.com/gpu": one, "nvidia.com/gpumem": resource.MustParse("3000"), "nvidia.com/gpucores": resource.MustParse("30")},
		&kueue.PodSetTopologyRequest{Required: ptr.To("rack")})
	own := v1alpha1.PlacementGateSpec{Requirements: []v1alpha1.GateRequirement{{Name: "calm", Query: `up{model="$model"} > $devices_per_pod`}}}
	own.Queries.Fit = `sum by (cluster) (fit{resource="$resource"} / $pods)`
	for name, spec := range map[string]v1alpha1.PlacementGateSpec{"default": {}, "own queries": own} {
		t.Run(name, func(t *testing.T) {
			queries := func(wl *kueue.Workload) (texts []string) {
				f := shape.FactsOf(wl, shape.OptionsOf(&spec, nil))
				for _, q := range gate.Queries(&spec, "cluster") {
					template, problems := promql.ParseTemplate(q.Expr, shape.Variables)
					if problems != nil {
						t.Fatal(promql.Strings(problems))
					}
					text, err := template.Render(f.Vars(f.PodSets[0]))
					if err != nil {
						t.Fatal(err)
					}
					texts = append(texts, q.Name+": "+text)
				}
				return texts
			}
			if diff := cmp.Diff(queries(plain), queries(sharing)); diff != "" {
				t.Errorf("queries (-plain +sharing):\n%s", diff)
			}
		})
	}
}

// sampleFit returns the fit query of a sample gate.
func sampleFit(t *testing.T, name string) *promql.Template {
	t.Helper()
	template, problems := promql.ParseTemplate(sampleGate(t, name).Queries.Fit, shape.Variables)
	if problems != nil {
		t.Fatal(promql.Strings(problems))
	}
	return template
}

// sampleGate returns a sample gate.
func sampleGate(t *testing.T, name string) v1alpha1.PlacementGateSpec {
	t.Helper()
	var sample v1alpha1.PlacementGate
	if err := yaml.UnmarshalStrict(read(t, "config/samples/gates/"+name+".yaml"), &sample); err != nil {
		t.Fatal(err)
	}
	return sample.Spec
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return content
}
