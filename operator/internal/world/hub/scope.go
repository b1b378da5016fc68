package hub

import "k8s.io/apimachinery/pkg/runtime/schema"

// clusterScoped lists the kinds without a namespace, by group. A scheme does not have the scope.
var clusterScoped = map[string][]string{
	"":                                   {"ComponentStatus", "Namespace", "Node", "PersistentVolume"},
	"admissionregistration.k8s.io":       {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "MutatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration"},
	"cluster.open-cluster-management.io": {"ClusterClaim", "ManagedCluster", "ManagedClusterSet"},
	"kueue.x-k8s.io":                     {"AdmissionCheck", "ClusterQueue", "Cohort", "MultiKueueCluster", "MultiKueueConfig", "ProvisioningRequestConfig", "ResourceFlavor", "Topology", "WorkloadPriorityClass"},
	"plimsoll.dev":                       {"CapacityPolicy", "MetricsSource", "PlacementGate", "ReclaimPolicy", "ScoringPolicy", "TrialPolicy"},
	"rbac.authorization.k8s.io":          {"ClusterRole", "ClusterRoleBinding"},
	"resource.k8s.io":                    {"DeviceClass", "ResourceSlice"},
	"scheduling.k8s.io":                  {"PriorityClass"},
	"storage.k8s.io":                     {"CSIDriver", "CSINode", "StorageClass", "VolumeAttachment"},
}

func isClusterScoped(kind schema.GroupKind) bool {
	for _, name := range clusterScoped[kind.Group] {
		if name == kind.Kind {
			return true
		}
	}
	return false
}
