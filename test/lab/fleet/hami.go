package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// hamiAnnotation is the annotation of a pod with the devices that HAMi's scheduler assigned.
const hamiAnnotation = "hami.io/vgpu-devices-allocated"

// hamiShare is the part of each device that a pod requests from HAMi. 0: not stated.
type hamiShare struct{ memoryMiB, cores int64 }

func hamiShareOf(pod *corev1.Pod) (share hamiShare) {
	for _, c := range pod.Spec.Containers {
		memory, cores := c.Resources.Limits[HAMiMemory], c.Resources.Limits[HAMiCores]
		share = hamiShare{share.memoryMiB + memory.Value(), share.cores + cores.Value()}
	}
	return share
}

// fullDevices returns the devices without room for the share. Only devices that HAMi shares can be
// full.
func (s *simulatedNode) fullDevices(share hamiShare) []bool {
	full := make([]bool, len(s.state.Devices))
	if !s.hami {
		return full
	}
	used := make([]hamiShare, len(s.state.Devices))
	for _, p := range s.pods {
		for _, units := range p.devices {
			for _, u := range units {
				used[u.device] = hamiShare{used[u.device].memoryMiB + p.share.memoryMiB, used[u.device].cores + p.share.cores}
			}
		}
	}
	for i, d := range s.state.Devices {
		full[i] = used[i].memoryMiB+share.memoryMiB > int64(d.MemoryMiB) || used[i].cores+share.cores > 100
	}
	return full
}

// hamiAssignment returns the value of HAMi's annotation for a pod of the node, or "" if it has no
// devices of HAMi.
func (s *simulatedNode) hamiAssignment(uid types.UID) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pods[uid]
	if !s.hami || p == nil {
		return ""
	}
	var b strings.Builder
	assigned := false
	for _, name := range p.containers {
		for _, u := range p.devices[name] {
			assigned = true
			fmt.Fprintf(&b, "%s,NVIDIA,%d,%d:", s.state.Devices[u.device].UUID, p.share.memoryMiB, p.share.cores)
		}
		b.WriteString(";")
	}
	if !assigned {
		return ""
	}
	return b.String()
}

// annotateHAMi writes what HAMi assigned to a pod into its annotation, as HAMi's scheduler does.
func (c *Cluster) annotateHAMi(ctx context.Context, node *simulatedNode, pod *corev1.Pod) error {
	text := node.hamiAssignment(pod.UID)
	if text == "" || pod.Annotations[hamiAnnotation] != "" {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{hamiAnnotation: text}}})
	if err != nil {
		return err
	}
	if err := client.IgnoreNotFound(c.Client.Patch(ctx, pod.DeepCopy(), client.RawPatch(types.MergePatchType, patch))); err != nil {
		return fmt.Errorf("annotate pod %s of %s: %w", pod.Name, c.Name, err)
	}
	return nil
}
