package shape

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// modelOf returns the device model from the node labels in opts.ModelFrom: first from the pod's
// node selector, then from required affinity, then from the flavor. Empty means any model.
func modelOf(spec *corev1.PodSpec, flavorLabels map[string]string, opts Options) string {
	affinity := requiredLabels(spec.Affinity)
	for _, labels := range []map[string]string{spec.NodeSelector, affinity, flavorLabels} {
		for _, key := range opts.ModelFrom {
			if value := labels[key]; value != "" {
				if alias, ok := opts.Aliases[value]; ok {
					value = alias
				}
				return NormalizeModel(value)
			}
		}
	}
	return ""
}

// withMIGProfile appends the MIG profile to a model if the resource is a MIG instance, or the
// partition mode if it is a partition of an AMD GPU. Nodes are labeled with the model of the
// whole device, whereas metrics include the profile. The resource mig-1g.10gb.me has the
// profile 1g.10gbme in metrics, and the resource cpx_nps4 the mode CPX-NPS4.
func withMIGProfile(model, resource string) string {
	if mode, ok := strings.CutPrefix(resource, "amd.com/"); ok && mode != "gpu" && isAMD(mode) && model != "" {
		return model + "-" + strings.ToUpper(strings.ReplaceAll(mode, "_", "-"))
	}
	profile, ok := strings.CutPrefix(strings.TrimSuffix(resource, sharedResourceSuffix), migResourcePrefix)
	if !ok || model == "" || strings.Contains(model, "-MIG-") {
		return model
	}
	return model + "-MIG-" + strings.Replace(profile, "gb.", "gb", 1)
}

// NormalizeModel replaces blanks in a model by dashes, as GPU feature discovery does.
func NormalizeModel(model string) string {
	return strings.Join(strings.Fields(model), "-")
}

// requiredLabels returns the labels that every term of the required node affinity restricts
// to the same single value.
func requiredLabels(affinity *corev1.Affinity) map[string]string {
	single := map[string]string{}
	labels, _ := affinityLabels(affinity)
	for _, l := range labels {
		if len(l.Values) == 1 {
			single[l.Key] = l.Values[0]
		}
	}
	return single
}
