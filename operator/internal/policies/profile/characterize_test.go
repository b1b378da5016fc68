package profile

import (
	"testing"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

func TestCharacterize(t *testing.T) {
	const (
		util, tensor, dram = v1alpha1.QuantityUtilization, v1alpha1.QuantityTensorActive, v1alpha1.QuantityDRAMActive
		nvlink, pcie       = v1alpha1.QuantityNVLink, v1alpha1.QuantityPCIe
	)
	for _, tc := range []struct {
		name       string
		averages   averages
		class      v1alpha1.JobClass
		bottleneck v1alpha1.Bottleneck
	}{
		{"nothing measured", averages{}, v1alpha1.ClassUnknown, v1alpha1.BottleneckUnknown},
		{"idle", averages{util: 0.04}, v1alpha1.ClassIdle, v1alpha1.BottleneckHost},
		{"a notebook", averages{util: 0.1, tensor: 0.01, dram: 0.05}, v1alpha1.ClassInteractive, v1alpha1.BottleneckHost},
		{"dense training", averages{util: 0.95, tensor: 0.45, dram: 0.6}, v1alpha1.ClassTraining, v1alpha1.BottleneckCompute},
		{"training with a slow network", averages{util: 0.9, tensor: 0.2, dram: 0.3, nvlink: 25e9}, v1alpha1.ClassTraining, v1alpha1.BottleneckCommunication},
		{"training on FP32 cores of several devices", averages{util: 0.9, tensor: 0, dram: 0.3, nvlink: 2e9}, v1alpha1.ClassTraining, v1alpha1.BottleneckNone},
		{"training that waits for input", averages{util: 0.7, tensor: 0.2, dram: 0.2, pcie: 12e9}, v1alpha1.ClassTraining, v1alpha1.BottleneckHost},
		{"decoding of tokens", averages{util: 0.8, tensor: 0.1, dram: 0.6}, v1alpha1.ClassInference, v1alpha1.BottleneckMemoryBandwidth},
		{"a service with little load", averages{util: 0.3, tensor: 0.1, dram: 0.1}, v1alpha1.ClassInference, v1alpha1.BottleneckHost},
		{"busy, only utilization known", averages{util: 0.9}, v1alpha1.ClassUnknown, v1alpha1.BottleneckUnknown},
		{"busy, below every threshold", averages{util: 0.6, tensor: 0.15, dram: 0.49}, v1alpha1.ClassTraining, v1alpha1.BottleneckNone},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if class, bottleneck := classOf(tc.averages), bottleneckOf(tc.averages); class != tc.class || bottleneck != tc.bottleneck {
				t.Errorf("%s, %s; want %s, %s", class, bottleneck, tc.class, tc.bottleneck)
			}
		})
	}
}
