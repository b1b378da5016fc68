package capacity

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// ResourceGroups returns the resource groups of a Cohort with the given quotas. Kueue
// allows each flavor and each resource in one group only, and each flavor of a group must
// have every resource of it: quotas that share a flavor or a resource form one group, and
// combinations without a quota get 0. The order is that of the quotas.
func ResourceGroups(quotas []v1alpha1.QuotaStatus) []kueue.ResourceGroup {
	var groups []kueue.ResourceGroup
	for rest := quotas; len(rest) > 0; {
		var group []v1alpha1.QuotaStatus
		group, rest = connected(rest)
		groups = append(groups, resourceGroup(group))
	}
	return groups
}

// connected splits quotas into those that are connected to the first one by shared flavors
// or resources, and the others.
func connected(quotas []v1alpha1.QuotaStatus) (group, rest []v1alpha1.QuotaStatus) {
	member := make([]bool, len(quotas))
	member[0] = true
	for grown := true; grown; {
		grown = false
		for i := range quotas {
			for j := range quotas {
				if member[j] && !member[i] && (quotas[i].Flavor == quotas[j].Flavor || quotas[i].Resource == quotas[j].Resource) {
					member[i], grown = true, true
				}
			}
		}
	}
	for i := range quotas {
		if member[i] {
			group = append(group, quotas[i])
		} else {
			rest = append(rest, quotas[i])
		}
	}
	return group, rest
}

func resourceGroup(quotas []v1alpha1.QuotaStatus) kueue.ResourceGroup {
	group := kueue.ResourceGroup{}
	var flavors []string
	for i := range quotas {
		if name := corev1.ResourceName(quotas[i].Resource); !slices.Contains(group.CoveredResources, name) {
			group.CoveredResources = append(group.CoveredResources, name)
		}
		if !slices.Contains(flavors, quotas[i].Flavor) {
			flavors = append(flavors, quotas[i].Flavor)
		}
	}
	for _, flavor := range flavors {
		f := kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(flavor)}
		for _, name := range group.CoveredResources {
			var devices int64
			if i := slices.IndexFunc(quotas, func(q v1alpha1.QuotaStatus) bool { return q.Flavor == flavor && q.Resource == string(name) }); i >= 0 {
				devices = CohortQuota(&quotas[i])
			}
			f.Resources = append(f.Resources, kueue.ResourceQuota{Name: name, NominalQuota: *resource.NewQuantity(devices, resource.DecimalSI)})
		}
		group.Flavors = append(group.Flavors, f)
	}
	return group
}
