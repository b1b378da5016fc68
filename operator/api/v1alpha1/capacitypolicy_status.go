package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Condition types of a CapacityPolicy, beside ConditionReady and ConditionQueriesValid.
// True is the good state of each.
const (
	// ConditionMeasured is True if the source responded to every query of the last round,
	// and every cluster has a fresh number. Otherwise, quotas stay, or clusters are kept or
	// count 0.
	ConditionMeasured = "Measured"
	// ConditionApplied is True if the Cohort has the quotas of the policy.
	ConditionApplied = "Applied"
)

// Reasons of conditions of a CapacityPolicy.
const (
	// ReasonQuotaAutomation is the reason of ConditionApplied if Kueue itself, or an
	// orchestrator of quotas, sets the quota of a ClusterQueue or Cohort in the Cohort.
	ReasonQuotaAutomation = "QuotaAutomation"
	// ReasonTooManyClusters is the reason of ConditionMeasured if the policy selects more
	// clusters than the status can hold.
	ReasonTooManyClusters = "TooManyClusters"
)

// CapacityPolicyLabel marks a Cohort that a CapacityPolicy created. Its value is the name of
// the policy. The Cohort has no ownerReference: without it, a deleted policy would take the
// quota from every queue.
const CapacityPolicyLabel = "plimsoll.dev/capacity-policy"

// CapacityPolicyStatus is the state of the last round. The next round continues from it,
// also after a restart of the operator.
type CapacityPolicyStatus struct {
	// Conditions of the policy: Ready, QueriesValid, Measured and Applied. True is the good
	// state of each.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Generation of the spec that the status refers to.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Time of the last round that was not early: rounds less than half a period later, such as
	// when keepLastSeconds of a cluster is over, do not change it. After a gap of more than 3 periods, pending
	// changes end and keepLastSeconds begins again.
	// +optional
	LastRoundTime *metav1.Time `json:"lastRoundTime,omitempty"`
	// Quotas in the order of the spec.
	// +optional
	// +listType=map
	// +listMapKey=flavor
	// +listMapKey=resource
	// +kubebuilder:validation:MaxItems=16
	Quotas []QuotaStatus `json:"quotas,omitempty"`
}

// QuotaStatus is one quota and how it came about.
type QuotaStatus struct {
	// Name of the ResourceFlavor.
	Flavor string `json:"flavor"`
	// Name of the resource.
	Resource string `json:"resource"`
	// Quota in devices of the Cohort and its ClusterQueues together. In mode Enforce, the
	// Cohort has this quota less queueQuota. Absent before the first round.
	// +optional
	Quota *int64 `json:"quota,omitempty"`
	// Devices of all clusters after rounding, before minimum and maximum.
	// +optional
	Measured int64 `json:"measured"`
	// Devices that the clusters report as broken, as far as the numbers are known.
	// +optional
	Unhealthy int64 `json:"unhealthy"`
	// Devices that workloads have reserved in the ClusterQueues of the Cohort.
	// +optional
	Reserved int64 `json:"reserved"`
	// Sum of the nominal quotas of the ClusterQueues of the Cohort, and of the Cohorts below
	// it. The policy does not write them.
	// +optional
	QueueQuota int64 `json:"queueQuota"`
	// Raise that waits for further rounds to agree. Absent if none does.
	// +optional
	Raise *PendingRaise `json:"raise,omitempty"`
	// Decrease that waits for lowerAfterSeconds, or for workloads to return what they have reserved.
	// Absent if none does.
	// +optional
	Lower *PendingLower `json:"lower,omitempty"`
	// Devices of each cluster, by name. At most 500 clusters, and with more than 6 quotas at most 3000
	// divided by their number: a policy that selects more changes no quota.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=500
	Clusters []ClusterCapacity `json:"clusters,omitempty"`
}

// PendingRaise is a raise on which not enough rounds agreed yet.
type PendingRaise struct {
	// Quota after the raise: the smallest of the rounds that agreed.
	To int64 `json:"to"`
	// Number of rounds that agreed.
	Rounds int32 `json:"rounds"`
}

// PendingLower is a decrease that was not measured for long enough yet, or that reservations stop.
type PendingLower struct {
	// Quota after the decrease: the largest since then.
	To int64 `json:"to"`
	// Time from which on lowerAfterSeconds counts: the first round of the decrease. The decrease is
	// due at the end of that time, and then follows reservations in every round.
	Since metav1.Time `json:"since"`
}

// CapacityState states whether the number of a cluster is known.
// +kubebuilder:validation:Enum=Fresh;Kept;Missing
type CapacityState string

const (
	// CapacityFresh is a measured number.
	CapacityFresh CapacityState = "Fresh"
	// CapacityKept is the last number, during keepLastSeconds.
	CapacityKept CapacityState = "Kept"
	// CapacityMissing is an unknown number. The cluster counts 0.
	CapacityMissing CapacityState = "Missing"
)

// ClusterCapacity is the part of one cluster.
type ClusterCapacity struct {
	// Name of the ManagedCluster.
	Name string `json:"name"`
	// Devices that count, after rounding.
	Devices int64 `json:"devices"`
	// Devices that the cluster reports as broken, or last reported if the state is Kept. Absent if
	// the number is unknown, or the quota has no unhealthyQuery.
	// +optional
	Unhealthy *int64 `json:"unhealthy,omitempty"`
	// Fresh: measured. Kept: the last number. Missing: unknown, so that the cluster counts
	// 0.
	State CapacityState `json:"state"`
	// Cause if the state is not Fresh: Disconnected, NoSample, QueryFailed, Stale, SharedLabel,
	// SeveralSamples or NotANumber.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Time from which on the number is not fresh. Absent if it is.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}
