package profile

import "plimsoll.dev/plimsoll/operator/api/v1alpha1"

// Thresholds of the characterization, which operator/docs/profiles.md has, too. Ratios are 0
// to 1, traffic is in bytes per second and device.
const (
	idleUtilization        = 0.05
	interactiveUtilization = 0.2
	trainingUtilization    = 0.6
	trainingTensor         = 0.15
	trainingNVLink         = 1e9

	computeTensor      = 0.4
	bandwidthDRAM      = 0.5
	communicationLinks = 20e9
	hostPCIe           = 10e9
	hostUtilization    = 0.5
)

// averages are the medians of a job. A quantity that was not measured has no key.
type averages map[v1alpha1.ProfileQuantity]float64

func (a averages) has(q v1alpha1.ProfileQuantity) bool {
	_, ok := a[q]
	return ok
}

// classOf returns the class of a job.
func classOf(a averages) v1alpha1.JobClass {
	utilization := a[v1alpha1.QuantityUtilization]
	exchangesOrComputes := a[v1alpha1.QuantityTensorActive] >= trainingTensor || a[v1alpha1.QuantityNVLink] >= trainingNVLink
	switch {
	case !a.has(v1alpha1.QuantityUtilization):
		return v1alpha1.ClassUnknown
	case utilization < idleUtilization:
		return v1alpha1.ClassIdle
	case utilization < interactiveUtilization:
		return v1alpha1.ClassInteractive
	case utilization >= trainingUtilization && exchangesOrComputes:
		return v1alpha1.ClassTraining
	case utilization >= trainingUtilization && !a.has(v1alpha1.QuantityTensorActive) && !a.has(v1alpha1.QuantityNVLink):
		return v1alpha1.ClassUnknown // busy, and nothing distinguishes training from inference
	default:
		return v1alpha1.ClassInference
	}
}

// bottleneckOf returns the first limit that a job reaches.
func bottleneckOf(a averages) v1alpha1.Bottleneck {
	switch {
	case a[v1alpha1.QuantityTensorActive] >= computeTensor:
		return v1alpha1.BottleneckCompute
	case a[v1alpha1.QuantityDRAMActive] >= bandwidthDRAM:
		return v1alpha1.BottleneckMemoryBandwidth
	case a[v1alpha1.QuantityNVLink] >= communicationLinks:
		return v1alpha1.BottleneckCommunication
	case a[v1alpha1.QuantityPCIe] >= hostPCIe:
		return v1alpha1.BottleneckHost
	case a.has(v1alpha1.QuantityUtilization) && a[v1alpha1.QuantityUtilization] < hostUtilization:
		return v1alpha1.BottleneckHost
	case a.has(v1alpha1.QuantityUtilization) && a.has(v1alpha1.QuantityTensorActive) && a.has(v1alpha1.QuantityDRAMActive):
		return v1alpha1.BottleneckNone
	default:
		return v1alpha1.BottleneckUnknown
	}
}
