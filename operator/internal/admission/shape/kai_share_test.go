package shape

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

func kaiTemplate(annotations map[string]string, containers ...corev1.Container) corev1.PodTemplateSpec {
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: containers}}
	template.Annotations = annotations
	return template
}

// The share of a pod of KAI Scheduler is in its annotations. A request that KAI Scheduler refuses is
// no share: the pod passes, and the message names the annotation.
func TestShareOfKAI(t *testing.T) {
	for _, tc := range []struct {
		name        string
		annotations map[string]string
		want        *Share // nil if there is none
		devices     int64
		vars        [2]string // memory, ratio
		named       []string
	}{
		{"a fraction", map[string]string{"gpu-fraction": "0.125"}, &Share{MemoryRatio: 0.125}, 1, [2]string{"0", "0.125"}, nil},
		{"a fraction that is no percentage", map[string]string{"gpu-fraction": "0.333"}, &Share{MemoryRatio: 0.333}, 1, [2]string{"0", "0.333"}, nil},
		{"memory", map[string]string{"gpu-memory": "2000"}, &Share{Memory: 2000 << 20}, 1, [2]string{"2097152000", "0"}, nil},
		{"two devices", map[string]string{"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}, &Share{MemoryRatio: 0.5}, 2, [2]string{"0", "0.5"}, nil},
		{"more than int64 has bytes", map[string]string{"gpu-memory": "9223372036854775807", "gpu-fraction-num-devices": "9223372036854775807"}, &Share{Memory: maxRequest << 20}, maxRequest, [2]string{"1125899906842624", "0"}, nil},
		{"both", map[string]string{"gpu-fraction": "0.5", "gpu-memory": "2000"}, nil, 0, [2]string{}, []string{"annotation gpu-fraction", "annotation gpu-memory"}},
		{"no number", map[string]string{"gpu-fraction": "NaN"}, nil, 0, [2]string{}, []string{"annotation gpu-fraction"}},
		{"infinite", map[string]string{"gpu-fraction": "+Inf"}, nil, 0, [2]string{}, []string{"annotation gpu-fraction"}},
		{"more than a device", map[string]string{"gpu-fraction": "1.5"}, nil, 0, [2]string{}, []string{"annotation gpu-fraction"}},
		{"nothing", map[string]string{"gpu-fraction": "0"}, nil, 0, [2]string{}, []string{"annotation gpu-fraction"}},
		{"negative", map[string]string{"gpu-memory": "-1"}, nil, 0, [2]string{}, []string{"annotation gpu-memory"}},
		{"too long for int64", map[string]string{"gpu-memory": "9223372036854775808"}, nil, 0, [2]string{}, []string{"annotation gpu-memory"}},
		{"no devices", map[string]string{"gpu-fraction": "0.5", "gpu-fraction-num-devices": "0"}, nil, 0, [2]string{}, []string{"annotation gpu-fraction"}},
		{"no request", map[string]string{"gpu-fraction-num-devices": "2"}, nil, 0, [2]string{}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wl := workloadOf(kaiTemplate(tc.annotations, container("cpu", "1")))
			spec := v1alpha1.PlacementGateSpec{}
			spec.Queries.Fit = "sum by (cluster) (free / $share_memory)"
			f := FactsOf(wl, OptionsOf(&spec, nil))
			var got *Share
			var devices int64
			var vars [2]string
			if len(f.PodSets) > 0 {
				all := f.Vars(f.PodSets[0])
				got, devices, vars = f.PodSets[0].Share, f.PodSets[0].DevicesPerPod, [2]string{all["share_memory"], all["share_memory_ratio"]}
				if f.PodSets[0].Resource != "nvidia.com/gpu" {
					t.Errorf("resource %s", f.PodSets[0].Resource)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || devices != tc.devices || vars != tc.vars {
				t.Errorf("%d devices, variables %q; share (-want +got):\n%s", devices, vars, diff)
			}
			if diff := cmp.Diff(tc.named, f.Unmeasured); diff != "" {
				t.Errorf("unmeasured (-want +got):\n%s", diff)
			}
			if _, _, ok := WholeDevices(wl); ok {
				t.Error("the pod holds whole devices")
			}
		})
	}
}

// A pod of KAI Scheduler can have a claim on something that is no device, such as a network card.
func TestAnnotationsOfKAIBesideAClaim(t *testing.T) {
	const ofCard = 1 << 20 // bytes that the claim requests
	for name, annotations := range map[string]map[string]string{"a fraction": {"gpu-fraction": "0.5"}, "memory": {"gpu-memory": "2000"}} {
		t.Run(name, func(t *testing.T) {
			template := kaiTemplate(annotations, container("cpu", "1"))
			template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "nic", ResourceClaimTemplateName: ptr.To("t")}}
			card := &resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Exactly: &resourcev1.ExactDeviceRequest{
				Capacity: &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{"memory": *resource.NewQuantity(ofCard, resource.BinarySI)}}}}}}}
			f := FactsOf(workloadOf(template), Options{AllDevices: true, Shares: true, ClaimTemplate: func(string) *resourcev1.ResourceClaimSpec { return card }})
			want, _, _ := shareOfKAI(&template)
			if diff := cmp.Diff([]string{"claim nic"}, f.Unmeasured); diff != "" || *f.PodSets[0].Share != want {
				t.Errorf("%+v, unmeasured (-want +got):\n%s", f.PodSets[0].Share, diff)
			}
		})
	}
}

// A pod that requests devices is no pod of KAI Scheduler's shares, and names the annotation.
func TestAnnotationsOfKAIBesideDevices(t *testing.T) {
	wl := workloadOf(kaiTemplate(map[string]string{"gpu-fraction": "0.5"}, container("nvidia.com/gpu", "2")))
	f := FactsOf(wl, Options{AllDevices: true, Shares: true})
	if diff := cmp.Diff([]string{"annotation gpu-fraction"}, f.Unmeasured); diff != "" || *f.PodSets[0].Share != wholeDevice || f.PodSets[0].DevicesPerPod != 2 {
		t.Errorf("%+v, unmeasured (-want +got):\n%s", f.PodSets[0], diff)
	}
}

// FuzzShareOfKAI checks that no annotation makes a share without an amount, or a number of devices
// that overflows.
func FuzzShareOfKAI(f *testing.F) {
	for _, seed := range [][3]string{{"0.5", "", ""}, {"", "2000", "2"}, {"1e-400", "", ""}, {"0x1p-2", "", "+1"}, {"NaN", "-9223372036854775808", "9223372036854775807"}, {"1e-308", "", ""}} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, fraction, memory, devices string) {
		annotations := map[string]string{kaiFraction: fraction, kaiMemory: memory}
		if devices != "" {
			annotations[kaiNumDevices] = devices
		}
		facts := FactsOf(&kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "main", Count: 1, Template: kaiTemplate(annotations)}}}}, Options{AllDevices: true, Shares: true})
		for _, p := range facts.PodSets {
			s := *p.Share
			if s.Memory < 0 || s.MemoryRatio < 0 || s.MemoryRatio > 1 || (s.Memory > 0) == (s.MemoryRatio > 0) || p.DevicesPerPod <= 0 || p.Devices() <= 0 {
				t.Errorf("%v is %+v", annotations, p)
			}
			for _, other := range []Share{s, {MemoryRatio: 1}, {MemoryRatio: 1e-300}, {Memory: 1}, {MemoryPercent: 100, CorePercent: 100}} {
				if slots, ok := s.SlotsTaken(other); ok && slots < 1 || s.SlotsReturned(other) < 0 {
					t.Errorf("%+v takes %d slots of %+v", other, slots, s)
				}
			}
		}
	})
}
