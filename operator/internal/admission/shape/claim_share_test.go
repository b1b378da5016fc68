package shape

import (
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// requesting returns a request of a device with capacities, given as name=quantity.
func requesting(capacities ...string) resourcev1.DeviceRequest {
	r := resourcev1.DeviceRequest{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu"}}
	for _, c := range capacities {
		if r.Exactly.Capacity == nil {
			r.Exactly.Capacity = &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{}}
		}
		name, quantity, _ := strings.Cut(c, "=")
		r.Exactly.Capacity.Requests[resourcev1.QualifiedName(name)] = resource.MustParse(quantity)
	}
	return r
}

// claimingSet returns a workload of one pod with a claim of a template, for which Kueue counts a device.
func claimingSet() *kueue.Workload {
	set := kueuePodSet("main", 1, "cpu", 1)
	set.Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: ptr.To("t")}}
	wl := &kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{set}}}
	wl.Status.Admission = &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: ptr.To[int32](1),
		ResourceUsage: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}}}}
	return wl
}

// The share of a claim is what the template requests of each device. Where requests differ, or the
// template is unknown, the pod counts with unused devices at least.
func TestShareOfClaim(t *testing.T) {
	admin := requesting("memory=80Gi")
	admin.Exactly.AdminAccess = ptr.To(true)
	alternatives := resourcev1.DeviceRequest{Name: "gpu", FirstAvailable: []resourcev1.DeviceSubRequest{
		{Name: "large", Capacity: requesting("memory=20Gi", "cores=10").Exactly.Capacity}, {Name: "small", Capacity: requesting("memory=10Gi", "cores=30").Exactly.Capacity}}}
	for _, tc := range []struct {
		name     string
		requests []resourcev1.DeviceRequest // nil if the template does not exist
		want     Share
		vars     [3]string // memory, ratio, cores
		named    []string
	}{
		{"memory and cores", []resourcev1.DeviceRequest{requesting("memory=10Gi", "cores=30")}, Share{Memory: 10 << 30, CorePercent: 30, Claimed: true}, [3]string{"10737418240", "0", "0.3"}, nil},
		{"names with a domain", []resourcev1.DeviceRequest{requesting("gpu.example.com/memory=1Gi", "gpu.example.com/cores=5")}, Share{Memory: 1 << 30, CorePercent: 5, Claimed: true}, [3]string{"1073741824", "0", "0.05"}, nil},
		{"memory only", []resourcev1.DeviceRequest{requesting("memory=1Gi")}, Share{Memory: 1 << 30, Claimed: true}, [3]string{"1073741824", "0", "0"}, nil},
		{"cores only", []resourcev1.DeviceRequest{requesting("cores=5")}, Share{MemoryPercent: 100, CorePercent: 5, Claimed: true}, [3]string{"0", "1", "0.05"}, nil},
		{"no capacity", []resourcev1.DeviceRequest{requesting()}, Share{MemoryPercent: 100, Claimed: true}, [3]string{"0", "1", "0"}, nil},
		{"a fraction is rounded up", []resourcev1.DeviceRequest{requesting("memory=1500m", "cores=1500m")}, Share{Memory: 2, CorePercent: 2, Claimed: true}, [3]string{"2", "0", "0.02"}, nil},
		{"another capacity", []resourcev1.DeviceRequest{requesting("memory=1Gi", "bandwidth=5")}, Share{Memory: 1 << 30, Claimed: true}, [3]string{"1073741824", "0", "0"}, []string{"claim gpu: capacity bandwidth"}},
		{"two requests", []resourcev1.DeviceRequest{requesting("memory=1Gi", "cores=50"), requesting("memory=2Gi", "cores=5")}, Share{Memory: 2 << 30, CorePercent: 50, Claimed: true}, [3]string{"2147483648", "0", "0.5"}, nil},
		{"two equal requests", []resourcev1.DeviceRequest{requesting("memory=1Gi"), requesting("memory=1Gi")}, Share{Memory: 1 << 30, Claimed: true}, [3]string{"1073741824", "0", "0"}, nil},
		{"one of two requests states its memory", []resourcev1.DeviceRequest{requesting("memory=1Gi"), requesting()}, unknownClaim, [3]string{"0", "1", "1"}, nil},
		{"alternatives", []resourcev1.DeviceRequest{alternatives}, Share{Memory: 20 << 30, CorePercent: 30, Claimed: true}, [3]string{"21474836480", "0", "0.3"}, nil},
		{"admin access", []resourcev1.DeviceRequest{requesting("memory=1Gi"), admin}, Share{Memory: 1 << 30, Claimed: true}, [3]string{"1073741824", "0", "0"}, nil},
		{"admin access only", []resourcev1.DeviceRequest{admin}, unknownClaim, [3]string{"0", "1", "1"}, nil},
		{"no requests", []resourcev1.DeviceRequest{}, unknownClaim, [3]string{"0", "1", "1"}, nil},
		{"no template", nil, unknownClaim, [3]string{"0", "1", "1"}, []string{"ResourceClaimTemplate t, which does not exist"}},
		{"negative", []resourcev1.DeviceRequest{requesting("memory=-1Gi", "cores=-5")}, Share{MemoryPercent: 100, Claimed: true}, [3]string{"0", "1", "0"}, nil},
		{"more than int64 has", []resourcev1.DeviceRequest{requesting("memory=99999999999999999999", "cores=99999999999999999999")}, Share{Memory: maxRequest << 20, CorePercent: maxRequest, Claimed: true}, [3]string{"1125899906842624", "0", "1.073741824e+07"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spec := v1alpha1.PlacementGateSpec{}
			spec.Queries.Fit = "sum by (cluster) (free / $share_memory)"
			opts := OptionsOf(&spec, nil)
			opts.ClaimTemplate = func(name string) *resourcev1.ResourceClaimSpec {
				if tc.requests == nil || name != "t" {
					return nil
				}
				return &resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: tc.requests}}
			}
			f := FactsOf(claimingSet(), opts)
			if len(f.PodSets) != 1 || f.PodSets[0].DevicesPerPod != 1 {
				t.Fatalf("pod sets %+v, want one with a device", f.PodSets)
			}
			if diff := cmp.Diff(&tc.want, f.PodSets[0].Share); diff != "" {
				t.Errorf("share (-want +got):\n%s", diff)
			}
			vars := f.Vars(f.PodSets[0])
			if got := [3]string{vars["share_memory"], vars["share_memory_ratio"], vars["share_cores"]}; got != tc.vars {
				t.Errorf("variables %q, want %q", got, tc.vars)
			}
			if diff := cmp.Diff(tc.named, f.Unmeasured); diff != "" {
				t.Errorf("unmeasured (-want +got):\n%s", diff)
			}
			spec.Queries.Fit = "free / $devices_per_pod"
			whole := OptionsOf(&spec, nil)
			whole.ClaimTemplate = opts.ClaimTemplate
			if f := FactsOf(claimingSet(), whole); f.PodSets[0].Share != nil || f.Unmeasured != nil {
				t.Errorf("another gate has the share %v and names %v", f.PodSets[0].Share, f.Unmeasured)
			}
		})
	}
}

// The claim of a ResourceClaim that is not of a template is not read.
func TestShareOfClaimWithoutTemplate(t *testing.T) {
	wl := claimingSet()
	wl.Spec.PodSets[0].Template.Spec.ResourceClaims[0] = corev1.PodResourceClaim{Name: "gpu", ResourceClaimName: ptr.To("c")}
	f := FactsOf(wl, Options{AllDevices: true, Shares: true, ClaimTemplate: func(string) *resourcev1.ResourceClaimSpec { panic("read") }})
	if got := *f.PodSets[0].Share; got != unknownClaim {
		t.Errorf("share %+v", got)
	}
	if got := ClaimTemplates(&wl.Spec.PodSets[0].Template.Spec); got != nil {
		t.Errorf("templates %v", got)
	}
}

// FuzzShareOfClaim checks that no quantity makes a share negative, or smaller than requested.
func FuzzShareOfClaim(f *testing.F) {
	for _, q := range [][2]string{{"10Gi", "30"}, {"9223372036854775807", "9223372036854775807"}, {"8E", "1e30"}, {"-1", "-9223372036854775808"}, {"1n", "0.5"}, {"0", ""}, {"0", "-2001201017000000000"}, {"1E99999", "5000000000n"}} {
		f.Add(q[0], q[1])
	}
	hangs := regexp.MustCompile(`[eE][+-]?\d{6}`) // in ParseQuantity, also of the API server
	f.Fuzz(func(t *testing.T, memory, cores string) {
		if hangs.MatchString(memory + " " + cores) {
			return
		}
		m, errM := resource.ParseQuantity(memory)
		c, errC := resource.ParseQuantity(cores)
		if errM != nil || errC != nil {
			return // the API server refuses it
		}
		s, _ := shareOfCapacity(&resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{"memory": m, "cores": c}})
		for _, row := range []struct {
			got, limit int64
			q          resource.Quantity
		}{{s.Memory, maxRequest << 20, m}, {s.CorePercent, maxRequest, c}} {
			if row.got < 0 || row.got > row.limit || float64(row.got) < math.Min(float64(row.limit), row.q.AsApproximateFloat64())*(1-1e-9)-1e-6 {
				t.Errorf("%s is %d", row.q.String(), row.got)
			}
		}
		if (s.Memory > 0) == (s.MemoryPercent > 0) {
			t.Errorf("%s is %+v", memory, s)
		}
	})
}
