package shape

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Toleration of taints that keep pods off a node, as kube-scheduler reads it.
type Toleration struct {
	// Key of the taint. Empty means each taint.
	Key string `json:"key,omitempty"`
	// Value of the taint, unless AnyValue.
	Value    string `json:"value,omitempty"`
	AnyValue bool   `json:"anyValue,omitempty"`
	// Effect of the taint: NoSchedule or NoExecute. Empty means both.
	Effect corev1.TaintEffect `json:"effect,omitempty"`
}

// tolerationsOf returns the tolerations that pods state or get: from the flavors that Kueue assigned, and from the gate
// if it pins them to a cluster. Taints that Kubernetes sets by the state of a node are left out, because the rules don't
// count such nodes. What the gate's own fit query measures is not known, so the result is empty for such a gate.
func tolerationsOf(spec *corev1.PodSpec, assigned *kueue.PodSetAssignment, opts Options) []Toleration {
	if opts.AllDevices {
		return nil
	}
	all := slices.Concat(spec.Tolerations, opts.OwnTolerations)
	if assigned != nil && opts.Flavor != nil {
		for _, name := range assigned.Flavors {
			all = append(all, opts.Flavor(string(name)).Tolerations...)
		}
	}
	var list []Toleration
	for _, t := range all {
		if t.Effect == corev1.TaintEffectPreferNoSchedule || strings.HasPrefix(t.Key, "node.kubernetes.io/") {
			continue
		}
		own := Toleration{Key: t.Key, Value: t.Value, Effect: t.Effect}
		if t.Operator != corev1.TolerationOpEqual && t.Operator != "" {
			own.Value, own.AnyValue = "", true
		}
		list = append(list, own)
	}
	slices.SortFunc(list, func(a, b Toleration) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Value, b.Value), cmp.Compare(a.Effect, b.Effect),
			cmp.Compare(strconv.FormatBool(a.AnyValue), strconv.FormatBool(b.AnyValue)))
	})
	return slices.Compact(list)
}
