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
	query   string // of the sample gate
	devices []claimDevice
}

// claimDevice is a published device.
type claimDevice struct {
	node, name string
	memory     int64 // MiB
}

// claimRequest is what each pod of a step requests: whole devices, or a part of one device.
type claimRequest struct {
	devices       int
	memory, cores int64 // MiB and percent of the cores; 0 for whole devices
}

// The fit query of the sample gate shares equals the number of pods that kube-scheduler then starts,
// for random ResourceSlices whose devices have consumable capacity, and for random claims. One half
// of the steps has fewer pods than fit, the other half has more.
func TestFitEqualsTheSchedulerOfResourceClaims(t *testing.T) {
	const rounds, steps = 8, 6
	ctx := testContext(t, 15*time.Minute)
	cluster := lab.Worker("cluster1")
	if err := cluster.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: claimsNamespace}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cleanUp(t, func(ctx context.Context) error { return deleteClaims(ctx, cluster) }) })
	random := rand.New(rand.NewPCG(20261125, 3))
	query := sharesFit(t)
	rejected, bound := 0, 0
	for i := range rounds {
		r := &claimRound{cluster: cluster, random: random, driver: fmt.Sprintf("round%d.example.com", i), query: query}
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
			want := min(pods, fit)
			r.awaitScheduled(ctx, t, prefix, request, pods, want)
			bound, rejected = bound+want, rejected+pods-want
		}
	}
	t.Logf("%d pods were bound and %d were not, as the fit query said", bound, rejected)
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
			d := claimDevice{node.Name, fmt.Sprintf("gpu-%d", i), []int64{81_559, 46_068, 15_360}[r.random.IntN(3)]}
			r.devices = append(r.devices, d)
			slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{Name: d.name, AllowMultipleAllocations: ptr.To(true),
				Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: mebibytes(d.memory)}, "cores": {Value: resource.MustParse("100")}}})
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

func (r *claimRound) randomRequest() claimRequest {
	if r.random.IntN(4) == 0 {
		return claimRequest{devices: 1 + r.random.IntN(2)}
	}
	return claimRequest{devices: 1, memory: []int64{1000, 3000, 10_000, 15_360, 27_186, 46_068}[r.random.IntN(6)],
		cores: []int64{10, 20, 30, 33, 50, 70, 100}[r.random.IntN(7)]}
}

// fit evaluates the query of the sample gate over the series that these slices and claims stand for.
func (r *claimRound) fit(ctx context.Context, t *testing.T, request claimRequest) int {
	t.Helper()
	used := r.consumed(ctx, t)
	script := "load 1m\n"
	for _, d := range r.devices {
		u := used[d.node+"/"+d.name]
		for dimension, amount := range map[string][2]float64{
			"shares": {10, float64(u.claims)}, "memory": {float64(d.memory << 20), float64(u.memory)}, "cores": {1, float64(u.cores) / 100},
		} {
			id := fmt.Sprintf(`cluster="c",node=%q,uuid="%s/%s",model="m",provider="hami",dimension=%q`, d.node, d.node, d.name, dimension)
			script += fmt.Sprintf("  device_dimension:plimsoll_share_capacity:placeable{%s} %g\n  device_dimension:plimsoll_free_share:placeable{%s} %.17g\n", id, amount[0], id, amount[0]-amount[1])
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

// sharesFit returns the fit query of the sample gate shares.
func sharesFit(t *testing.T) string {
	t.Helper()
	root, err := fleet.FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(root, "config", "samples", "gates", "shares.yaml"))
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
	if request.memory > 0 {
		exactly.Capacity = &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{
			"memory": mebibytes(request.memory), "cores": *resource.NewQuantity(request.cores, resource.DecimalSI)}}
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
// It deletes those, so that they take no room later.
func (r *claimRound) awaitScheduled(ctx context.Context, t *testing.T, prefix string, request claimRequest, pods, want int) {
	t.Helper()
	var list corev1.PodList
	await(ctx, t, fmt.Sprintf("%d of %d pods of %s with %+v to be bound, and the others to be refused", want, pods, prefix, request), func(ctx context.Context) error {
		if err := r.cluster.Client.List(ctx, &list, client.InNamespace(claimsNamespace), client.MatchingLabels{"step": prefix}); err != nil {
			return err
		}
		bound, refused := 0, 0
		for _, pod := range list.Items {
			switch {
			case pod.Spec.NodeName != "":
				bound++
			case isUnschedulable(&pod):
				refused++
			}
		}
		if bound > want {
			t.Fatalf("kube-scheduler bound %d pods of %s with %+v, but the query fits %d on %+v", bound, prefix, request, want, r.devices)
		}
		if bound < want || refused < pods-want {
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
