package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ReasonQueueNotFound is the reason of ConditionReady of a ReclaimPolicy if one of its
// ClusterQueues does not exist. The others are considered.
const ReasonQueueNotFound = "QueueNotFound"

// ReclaimPolicyStatus is the state of the last round. The next round continues from it, also
// after a restart of the operator.
type ReclaimPolicyStatus struct {
	// Conditions of the policy: Ready, QueriesValid and Measured. True is the good state of
	// each. If Measured is False with the reason Stale, no workload is reclaimed on the
	// clusters in its message. With any other reason, no workload is reclaimed at all.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Generation of the spec that the status refers to.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Time of the last round.
	// +optional
	LastRoundTime *metav1.Time `json:"lastRoundTime,omitempty"`
	// Number of admitted workloads of the queues that agreed to be reclaimed.
	// +optional
	Reclaimable int32 `json:"reclaimable"`
	// Number of these workloads whose devices have all been idle for idleSeconds.
	// +optional
	Idle int32 `json:"idle"`
	// Devices that the idle workloads hold.
	// +optional
	IdleDevices int64 `json:"idleDevices"`
	// Idle workloads in the order in which they would be reclaimed, at most 50. At most one
	// workload of each ClusterQueue or Cohort has the state Selected.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	IdleWorkloads []IdleWorkload `json:"idleWorkloads,omitempty"`
	// Clusters that gates hold for waiting workloads and where workloads run that may be moved, and
	// what the last round decided about each, at most 50. Empty without spec.rebalance.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	Moves []Move `json:"moves,omitempty"`
	// Reclaimed workloads, the latest last, at most 100. In mode Shadow, the workloads that would
	// have been reclaimed, once per admission. Those of the last hour in the present mode count for
	// maxPerHour.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	History []ReclaimRecord `json:"history,omitempty"`
	// Running workloads whose deactivation the API server refused, the latest last, at most 100.
	// They are not selected within an hour, and come last after that.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Refused []RefusedWrite `json:"refused,omitempty"`
}

// IdleState states what a round decided about an idle workload.
// +kubebuilder:validation:Enum=Selected;Recorded;Limited;NotNeeded;Starting;Protected
type IdleState string

const (
	// IdleSelected is a workload that the round reclaims, or would reclaim in mode Shadow.
	IdleSelected IdleState = "Selected"
	// IdleRecorded is a workload that mode Shadow recorded in an earlier round.
	IdleRecorded IdleState = "Recorded"
	// IdleLimited is a workload that a later round may reclaim: another workload of its
	// ClusterQueue or Cohort comes first or still returns, maxPerHour is reached, or the
	// write failed.
	IdleLimited IdleState = "Limited"
	// IdleNotNeeded is a workload for whose devices no other workload of its ClusterQueue or
	// Cohort waits.
	IdleNotNeeded IdleState = "NotNeeded"
	// IdleStarting is a workload within minRunSeconds.
	IdleStarting IdleState = "Starting"
	// IdleProtected is a workload that is never reclaimed in its present state.
	IdleProtected IdleState = "Protected"
)

// IdleWorkload is a workload whose devices are idle, and what the round decided about it.
type IdleWorkload struct {
	// Namespace of the Workload.
	Namespace string `json:"namespace"`
	// Name of the Workload.
	Name string `json:"name"`
	// ClusterQueue of the Workload.
	ClusterQueue string `json:"clusterQueue"`
	// Cluster on which the workload runs.
	Cluster string `json:"cluster"`
	// Devices that the workload holds.
	Devices int64 `json:"devices"`
	// Time in seconds for which all of them have been idle.
	IdleSeconds int64 `json:"idleSeconds"`
	// Decision of the round.
	State IdleState `json:"state"`
	// Reason of the decision.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// ReclaimRecord is a workload that was, or would have been, returned to its queue.
type ReclaimRecord struct {
	// Time of the decision.
	Time metav1.Time `json:"time"`
	// Mode of the policy at that time. Shadow changed nothing.
	Mode Mode `json:"mode"`
	// Namespace of the Workload.
	Namespace string `json:"namespace"`
	// Name of the Workload.
	Name string `json:"name"`
	// UID of the Workload.
	UID string `json:"uid"`
	// Time since which the workload ran.
	RunningSince metav1.Time `json:"runningSince"`
	// Cluster on which the workload ran.
	Cluster string `json:"cluster"`
	// Devices that the workload held.
	Devices int64 `json:"devices"`
	// Time in seconds for which all of them had been idle. 0 for a workload that was moved.
	IdleSeconds int64 `json:"idleSeconds"`
	// Move that was the reason. Unset for an idle workload.
	// +optional
	Move *MoveRecord `json:"move,omitempty"`
}

// RefusedWrite is a workload whose deactivation the API server refused, for example by an admission
// policy.
type RefusedWrite struct {
	// Time of the last refused write.
	Time metav1.Time `json:"time"`
	// Namespace of the Workload.
	Namespace string `json:"namespace"`
	// Name of the Workload.
	Name string `json:"name"`
	// UID of the Workload.
	UID string `json:"uid"`
}

// MoveRecord states why a workload was, or would have been, moved.
type MoveRecord struct {
	// Waiting workload that the move made room for, as namespace/name.
	For string `json:"for"`
	// UID of the waiting workload.
	ForUID string `json:"forUID"`
	// Cluster on which the moved workload fitted.
	To string `json:"to"`
	// Time by which the pods of the moved workload have ended.
	PodsEndBy metav1.Time `json:"podsEndBy"`
}

// MoveState states what a round decided about a waiting workload for which a cluster is held.
// +kubebuilder:validation:Enum=Selected;Recorded;Settling;Limited;None
type MoveState string

const (
	// MoveSelected is a move that the round makes, or would make in mode Shadow.
	MoveSelected MoveState = "Selected"
	// MoveRecorded is a waiting workload for which mode Shadow recorded a move in an earlier round.
	MoveRecorded MoveState = "Recorded"
	// MoveSettling is a waiting workload for which a workload was moved, and samples do not show
	// the effect yet.
	MoveSettling MoveState = "Settling"
	// MoveLimited is a move that a later round may make: another workload of the ClusterQueue or
	// Cohort comes first or still returns, maxPerHour is reached, or the write failed.
	MoveLimited MoveState = "Limited"
	// MoveNone is a waiting workload for which no single workload can be moved.
	MoveNone MoveState = "None"
)

// Move is a waiting workload for which a gate holds a cluster, and the workload that would make room
// for it there.
type Move struct {
	// Waiting workload, as namespace/name.
	For string `json:"for"`
	// Cluster that is held for it.
	Cluster string `json:"cluster"`
	// Workload on the cluster that is or would be moved, as namespace/name. Empty if there is none.
	// +optional
	Workload string `json:"workload,omitempty"`
	// Cluster on which that workload fits.
	// +optional
	To string `json:"to,omitempty"`
	// Devices that it holds.
	// +optional
	Devices int64 `json:"devices,omitempty"`
	// Decision of the round.
	State MoveState `json:"state"`
	// Reason of the decision.
	// +optional
	Reason string `json:"reason,omitempty"`
}
