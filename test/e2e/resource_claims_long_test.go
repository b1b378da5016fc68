//go:build e2e && long

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/promqltest"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/test/lab/fleet"
)

const claimsNamespace = "claims"

// claimRound publishes devices of a driver of its own, so that kube-scheduler can't mix rounds up.
type claimRound struct {
	cluster *fleet.Cluster
	random  *rand.Rand
	driver  string
	gate    string // shares, or claims: then the devices have policies
	query   string // of the sample gate
	devices []claimDevice
}

// claimDevice is a published device. Its memory is in MiB, its cores in percent.
type claimDevice struct {
	node, name    string
	memory, cores claimCapacity
}

// claimCapacity is a capacity with the policy that requests are rounded up by, if it has one: values,
// or a minimum, a maximum and a step.
type claimCapacity struct {
	value, byDefault       int64
	minimum, maximum, step int64
	values                 []int64
	hasPolicy              bool
}

// claimRequest is what each pod of a step requests. 0 is no request: the pod consumes the default of
// each device, which is all of it without a policy.
type claimRequest struct {
	devices       int
	memory, cores int64 // MiB and percent of the cores
}

// The fit queries of the sample gates shares and claims equal the number of pods that kube-scheduler
// then starts, for random ResourceSlices whose devices have consumable capacity, and for random
// claims: never more, and equal unless a pod requests parts of several devices. One half of the steps
// has fewer pods than fit, the other half has more.
func TestFitEqualsTheSchedulerOfResourceClaims(t *testing.T) {
	const rounds, steps = 16, 6
	ctx := testContext(t, 15*time.Minute)
	cluster := lab.Worker("cluster1")
	if err := cluster.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: claimsNamespace}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cleanUp(t, func(ctx context.Context) error { return deleteClaims(ctx, cluster) }) })
	random := rand.New(rand.NewPCG(20261125, 3))
	rejected, bound := 0, 0
	for i := range rounds {
		r := &claimRound{cluster: cluster, random: random, driver: fmt.Sprintf("round%d.example.com", i), gate: []string{"shares", "claims"}[i%2]}
		r.query = sampleFit(t, r.gate)
		r.publish(ctx, t)
		t.Cleanup(func() { cleanUp(t, r.unpublish) })
		for step := range steps {
			request := r.randomRequest()
			fit := r.fit(ctx, t, request)
			pods := fit + 1 + random.IntN(2)
			if step%2 == 0 {
				pods = min(1+random.IntN(4), fit)
			}
			prefix := fmt.Sprintf("round%d-step%d", i, step)
			r.start(ctx, t, prefix, request, pods)
			started := r.awaitScheduled(ctx, t, prefix, request, pods, min(pods, fit))
			bound, rejected = bound+started, rejected+pods-started
		}
	}
	t.Logf("%d pods were bound and %d were not", bound, rejected)
	if bound < 100 || rejected < rounds*steps/2 {
		t.Errorf("%d pods were bound and %d were not: too few for a comparison", bound, rejected)
	}
}

// publish creates a ResourceSlice with one to three devices for each node, and a DeviceClass.
func (r *claimRound) publish(ctx context.Context, t *testing.T) {
	t.Helper()
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: r.driver}, Spec: resourcev1.DeviceClassSpec{
		Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", r.driver)}}}}}
	if err := r.cluster.Client.Create(ctx, class); err != nil {
		t.Fatal(err)
	}
	var nodes corev1.NodeList
	if err := r.cluster.Client.List(ctx, &nodes); err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes.Items {
		slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node.Name + "-" + r.driver}, Spec: resourcev1.ResourceSliceSpec{
			Driver: r.driver, NodeName: ptr.To(node.Name), Pool: resourcev1.ResourcePool{Name: node.Name, Generation: 1, ResourceSliceCount: 1}}}
		for i := range 1 + r.random.IntN(3) {
			d := claimDevice{node.Name, fmt.Sprintf("gpu-%d", i), r.randomCapacity([]int64{81_559, 46_068, 15_360}[r.random.IntN(3)]), r.randomCapacity(100)}
			r.devices = append(r.devices, d)
			slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{Name: d.name, AllowMultipleAllocations: ptr.To(true),
				Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": d.memory.published(mebibytes), "cores": d.cores.published(percent)}})
		}
		if err := r.cluster.Client.Create(ctx, slice); err != nil {
			t.Fatal(err)
		}
	}
}

func (r *claimRound) unpublish(ctx context.Context) error {
	var slices resourcev1.ResourceSliceList
	if err := r.cluster.Client.List(ctx, &slices); err != nil {
		return err
	}
	for i := range slices.Items {
		if slices.Items[i].Spec.Driver == r.driver {
			if err := r.cluster.Client.Delete(ctx, &slices.Items[i]); err != nil {
				return err
			}
		}
	}
	return r.cluster.Client.Delete(ctx, &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: r.driver}})
}

func mebibytes(n int64) resource.Quantity { return *resource.NewQuantity(n<<20, resource.BinarySI) }

func percent(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.DecimalSI) }

// randomCapacity returns a capacity, for the gate claims with a random policy.
func (r *claimRound) randomCapacity(value int64) claimCapacity {
	c := claimCapacity{value: value, byDefault: value, maximum: value, step: 1}
	if r.gate == "shares" {
		return c
	}
	switch c.hasPolicy = true; r.random.IntN(4) {
	case 0:
		c.values = []int64{value / 8, value / 3, value / 2}
		c.byDefault = c.values[r.random.IntN(3)]
	case 1:
		c.step = 1 + r.random.Int64N(value/8)
		c.minimum = c.step * (1 + r.random.Int64N(2))
		c.maximum = c.step * (value * 3 / 4 / c.step)
		c.byDefault = c.minimum + c.step
	case 2:
		c.byDefault = 1 + r.random.Int64N(value)
		c.minimum = 1
	default:
		c.hasPolicy = false
	}
	return c
}

// published returns the capacity of a ResourceSlice.
func (c *claimCapacity) published(quantity func(int64) resource.Quantity) resourcev1.DeviceCapacity {
	out := resourcev1.DeviceCapacity{Value: quantity(c.value)}
	if !c.hasPolicy {
		return out
	}
	out.RequestPolicy = &resourcev1.CapacityRequestPolicy{Default: ptr.To(quantity(c.byDefault))}
	for _, v := range c.values {
		out.RequestPolicy.ValidValues = append(out.RequestPolicy.ValidValues, quantity(v))
	}
	if c.values == nil {
		valid := &resourcev1.CapacityRequestPolicyRange{Min: ptr.To(quantity(c.minimum)), Max: ptr.To(quantity(c.maximum))}
		if c.step > 1 {
			valid.Step = ptr.To(quantity(c.step))
		}
		out.RequestPolicy.ValidRange = valid
	}
	return out
}

// bounds are the values of plimsoll_device_share_policy.
func (c *claimCapacity) bounds() map[string]int64 {
	if c.values != nil {
		return map[string]int64{"default": c.byDefault, "value0": c.values[0], "value1": c.values[1], "value2": c.values[2]}
	}
	return map[string]int64{"default": c.byDefault, "min": c.minimum, "max": c.maximum, "step": c.step}
}

func (r *claimRound) randomRequest() claimRequest {
	request := claimRequest{devices: 1, memory: []int64{1000, 3000, 10_000, 15_360, 27_186, 46_068}[r.random.IntN(6)],
		cores: []int64{10, 20, 30, 33, 50, 70, 100}[r.random.IntN(7)]}
	switch {
	case r.gate == "claims": // each of the two can be absent, for any number of devices
		request.devices += r.random.IntN(2)
		request.memory *= int64(min(1, r.random.IntN(4)))
		request.cores *= int64(min(1, r.random.IntN(4)))
	case r.random.IntN(4) == 0:
		return claimRequest{devices: 1 + r.random.IntN(2)}
	}
	return request
}

// fit evaluates the query of the sample gate over the series that these slices and claims stand for.
func (r *claimRound) fit(ctx context.Context, t *testing.T, request claimRequest) int {
	t.Helper()
	used := r.consumed(ctx, t)
	script := "load 1m\n"
	for _, d := range r.devices {
		u := used[d.node+"/"+d.name]
		provider := map[string]string{"shares": "hami", "claims": "dra"}[r.gate]
		add := func(dimension string, capacity, used float64) (id string) {
			id = fmt.Sprintf(`cluster="c",node=%q,uuid="%s/%s",model="m",provider=%q,dimension=%q`, d.node, d.node, d.name, provider, dimension)
			script += fmt.Sprintf("  device_dimension:plimsoll_share_capacity:placeable{%s} %g\n  device_dimension:plimsoll_free_share:placeable{%s} %.17g\n", id, capacity, id, capacity-used)
			return id
		}
		if r.gate == "shares" {
			add("shares", 10, float64(u.claims))
		}
		memory, cores := add("memory", float64(d.memory.value<<20), float64(u.memory)), add("cores", 1, float64(u.cores)/100)
		for bound, amount := range d.memory.bounds() {
			script += fmt.Sprintf("  device_dimension_bound:plimsoll_share_policy:max{%s,bound=%q} %d\n", memory, bound, amount<<20)
		}
		for bound, amount := range d.cores.bounds() {
			script += fmt.Sprintf("  device_dimension_bound:plimsoll_share_policy:max{%s,bound=%q} %g\n", cores, bound, float64(amount)/100)
		}
	}
	ratio := 0
	if request.memory == 0 {
		ratio = 1 // whole devices
	}
	expr := strings.NewReplacer("$model", "m", "$devices_per_pod", fmt.Sprint(request.devices), "$share_memory_ratio", fmt.Sprint(ratio),
		"$share_memory", fmt.Sprint(request.memory<<20), "$share_cores", fmt.Sprint(float64(request.cores)/100)).Replace(r.query)
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	query, err := engine.NewInstantQuery(ctx, promqltest.LoadedStorage(t, script), nil, expr, time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer query.Close()
	result, err := query.Exec(ctx).Vector()
	if err != nil || len(result) != 1 {
		t.Fatalf("%s: %v, %v", expr, result, err)
	}
	return int(result[0].F)
}

// sampleFit returns the fit query of a sample gate.
func sampleFit(t *testing.T, gate string) string {
	t.Helper()
	root, err := fleet.FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(root, "config", "samples", "gates", gate+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var sample v1alpha1.PlacementGate
	if err := yaml.UnmarshalStrict(content, &sample); err != nil {
		t.Fatal(err)
	}
	return sample.Spec.Queries.Fit
}

// consumption is what the claims of a device consume of it.
type consumption struct{ claims, memory, cores int64 }

// consumed returns the consumption of each device of the round, by NODE/DEVICE.
func (r *claimRound) consumed(ctx context.Context, t *testing.T) map[string]consumption {
	t.Helper()
	var claims resourcev1.ResourceClaimList
	if err := r.cluster.Client.List(ctx, &claims, client.InNamespace(claimsNamespace)); err != nil {
		t.Fatal(err)
	}
	used := map[string]consumption{}
	for _, claim := range claims.Items {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, d := range claim.Status.Allocation.Devices.Results {
			if d.Driver == r.driver {
				memory, cores, u := d.ConsumedCapacity["memory"], d.ConsumedCapacity["cores"], used[d.Pool+"/"+d.Device]
				used[d.Pool+"/"+d.Device] = consumption{u.claims + 1, u.memory + memory.Value(), u.cores + cores.Value()}
			}
		}
	}
	return used
}

// start creates pods with a claim each.
func (r *claimRound) start(ctx context.Context, t *testing.T, prefix string, request claimRequest, pods int) {
	t.Helper()
	exactly := &resourcev1.ExactDeviceRequest{DeviceClassName: r.driver, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: int64(request.devices)}
	requests := map[resourcev1.QualifiedName]resource.Quantity{}
	if request.memory > 0 {
		requests["memory"] = mebibytes(request.memory)
	}
	if request.cores > 0 {
		requests["cores"] = percent(request.cores)
	}
	if len(requests) > 0 {
		exactly.Capacity = &resourcev1.CapacityRequirements{Requests: requests}
	}
	for i := range pods {
		meta := metav1.ObjectMeta{Namespace: claimsNamespace, Name: fmt.Sprintf("%s-%d", prefix, i), Labels: map[string]string{"step": prefix}}
		claim := &resourcev1.ResourceClaim{ObjectMeta: meta, Spec: resourcev1.ResourceClaimSpec{
			Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: exactly}}}}}
		pod := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{
			ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To(meta.Name)}},
			Containers:     []corev1.Container{{Name: "main", Image: "none", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}}}}}}
		for _, object := range []client.Object{claim, pod} {
			if err := r.cluster.Client.Create(ctx, object); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// awaitScheduled waits until kube-scheduler has bound want pods of a step and refused the others.
// It deletes those, so that they take no room later. If each pod requests parts of several devices,
// kube-scheduler may bind more: the query counts each device once. It returns how many are bound.
func (r *claimRound) awaitScheduled(ctx context.Context, t *testing.T, prefix string, request claimRequest, pods, want int) (bound int) {
	t.Helper()
	isExact := request.devices == 1 || request.memory == 0 && r.gate == "shares"
	var list corev1.PodList
	await(ctx, t, fmt.Sprintf("%d of %d pods of %s with %+v to be bound, and the others to be refused", want, pods, prefix, request), func(ctx context.Context) error {
		if err := r.cluster.Client.List(ctx, &list, client.InNamespace(claimsNamespace), client.MatchingLabels{"step": prefix}); err != nil {
			return err
		}
		refused := 0
		bound = 0
		for _, pod := range list.Items {
			switch {
			case pod.Spec.NodeName != "":
				bound++
			case isUnschedulable(&pod):
				refused++
			}
		}
		if isExact && bound > want {
			t.Fatalf("kube-scheduler bound %d pods of %s with %+v, but the query fits %d on %+v", bound, prefix, request, want, r.devices)
		}
		if bound < want || bound+refused < pods {
			return fmt.Errorf("%d are bound and %d refused", bound, refused)
		}
		return nil
	})
	for i := range list.Items {
		if list.Items[i].Spec.NodeName == "" {
			if err := r.cluster.Client.Delete(ctx, &list.Items[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	return bound
}

func isUnschedulable(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable {
			return true
		}
	}
	return false
}

// deleteClaims deletes the namespace of the test. No controller of the lab releases claims, so that
// their finalizers are removed here.
func deleteClaims(ctx context.Context, cluster *fleet.Cluster) error {
	if err := cluster.Client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(claimsNamespace), client.GracePeriodSeconds(0)); err != nil {
		return err
	}
	var claims resourcev1.ResourceClaimList
	if err := cluster.Client.List(ctx, &claims, client.InNamespace(claimsNamespace)); err != nil {
		return err
	}
	for i := range claims.Items {
		if err := cluster.Client.Patch(ctx, &claims.Items[i], client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
			return err
		}
	}
	return cluster.Client.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: claimsNamespace}})
}
