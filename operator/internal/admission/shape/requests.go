package shape

import (
	"math"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Requests are what a pod needs of a node beside devices, as kube-scheduler counts it: the containers or the
// largest init container, sidecars and overhead. The zero value needs nothing.
type Requests struct {
	// MilliCPU in thousandths of a core.
	MilliCPU int64 `json:"milliCPU,omitempty"`
	// Memory in bytes.
	Memory int64 `json:"memory,omitempty"`
}

// Names of the variables with the requests of a pod: cores and bytes.
const (
	varCPU    = "cpu_per_pod"
	varMemory = "memory_per_pod"
)

// fitsRequests reports whether a gate's fit query reads the requests of a pod. The default query does.
func fitsRequests(fit string) bool {
	return fit == "" || strings.Contains(fit, "$"+varCPU) || strings.Contains(fit, "$"+varMemory)
}

// requestsOf returns the requests of a pod.
func requestsOf(spec *corev1.PodSpec) Requests {
	sum := sumOfPod(spec, isRequest)
	if spec.Resources != nil { // of the pod as a whole: limits count if nothing else is stated
		for name, quantity := range spec.Resources.Limits {
			if isRequest(name) && sum[name] == 0 {
				sum[name] = amountOf(name, quantity)
			}
		}
		for name, quantity := range spec.Resources.Requests {
			if isRequest(name) {
				sum[name] = amountOf(name, quantity)
			}
		}
	}
	addRequests(sum, &corev1.ResourceRequirements{Requests: spec.Overhead}, isRequest)
	return Requests{MilliCPU: sum[corev1.ResourceCPU], Memory: sum[corev1.ResourceMemory]}
}

func isRequest(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory
}

// addVars adds the values of the variables.
func (r Requests) addVars(vars map[string]string) {
	vars[varCPU] = strconv.FormatFloat(float64(r.MilliCPU)/1000, 'f', -1, 64)
	vars[varMemory] = strconv.FormatInt(r.Memory, 10)
}

// String lists the requests: 8 CPU and 64Gi. It is empty if the pod needs nothing.
func (r Requests) String() string {
	var parts []string
	if r.MilliCPU > 0 {
		parts = append(parts, strconv.FormatFloat(float64(r.MilliCPU)/1000, 'f', -1, 64)+" CPU")
	}
	if r.Memory > 0 {
		parts = append(parts, resource.NewQuantity(r.Memory, resource.BinarySI).String())
	}
	return strings.Join(parts, " and ")
}

// SlotsTaken returns how many pods with the requests r the other requests displace.
func (r Requests) SlotsTaken(other Requests) int64 {
	return max(slotsOf(other.MilliCPU, r.MilliCPU), slotsOf(other.Memory, r.Memory))
}

// slotsOf is amount / perPod, rounded up; 0 if a pod needs nothing.
func slotsOf(amount, perPod int64) int64 {
	if perPod == 0 {
		return 0
	}
	return ceilDiv(amount, perPod)
}

// Plus returns the requests with those of more pods. A sum that an int64 can't hold becomes the largest that it can.
func (r Requests) Plus(other Requests, pods int64) Requests {
	return Requests{plus(r.MilliCPU, other.MilliCPU, pods), plus(r.Memory, other.Memory, pods)}
}

func plus(sum, perPod, pods int64) int64 {
	if perPod > 0 && pods > (math.MaxInt64-sum)/perPod {
		return math.MaxInt64
	}
	return sum + perPod*pods
}

// BesideDevices states what each pod needs of its node beside devices: 8 CPU and 64Gi, node label zone. It is empty if
// the gate does not fit it, or if the pod needs nothing.
func (p PodSet) BesideDevices() string {
	var parts []string
	if requests := p.Requests.String(); requests != "" {
		parts = append(parts, requests)
	}
	for _, l := range p.NodeLabels {
		parts = append(parts, l.String())
	}
	return strings.Join(parts, ", ")
}
