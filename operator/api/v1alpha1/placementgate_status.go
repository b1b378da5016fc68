package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Condition types of a PlacementGate, beside ConditionReady and ConditionQueriesValid. True
// is the good state of each.
const (
	// ConditionPlacementFound: the Placement exists and has decisions.
	ConditionPlacementFound = "PlacementFound"
	// ConditionConfigured: the MultiKueueConfig is as the gate wants it.
	ConditionConfigured = "Configured"
	// ConditionScoresFound: every score that the gate names is published for some cluster.
	ConditionScoresFound = "ScoresFound"
	// ConditionQueriesSucceeding: the source returns complete results for the gate's queries.
	// False names the failing queries and since when they fail.
	ConditionQueriesSucceeding = "QueriesSucceeding"
	// ConditionRequirementsMeetable is False if a requirement of the gate excludes every cluster.
	ConditionRequirementsMeetable = "RequirementsMeetable"
	// ConditionMultipleCandidates: the Placement decides more than one cluster. With a single
	// candidate the gate has no choice.
	ConditionMultipleCandidates = "MultipleCandidates"
	// ConditionDispatcherMatches: Kueue's multiKueue.dispatcherName matches the operator's
	// --multikueue-dispatch. True as long as the operator has no evidence of a mismatch.
	ConditionDispatcherMatches = "DispatcherMatches"
	// ConditionPreemptionGated: no queue with the gate's check preempts running workloads before the gate
	// has decided whether the new one fits. False names a queue that preempts and whose quota does not
	// exceed the devices of the gate's clusters, unless the gate decides first in all its LocalQueues.
	ConditionPreemptionGated = "PreemptionGated"
	// ConditionClustersStart: the gate's clusters start what they admit. False names those where workloads of a namespace,
	// or of two, did not start since the last one that did.
	ConditionClustersStart = "ClustersStart"
)

// Reasons of a PlacementGate's conditions that are False.
const (
	// ReasonInvalidQuery of Ready and QueriesValid: a query does not parse.
	ReasonInvalidQuery = "InvalidQuery"
	// ReasonPlacementNotFound of Ready and PlacementFound: the Placement does not exist.
	ReasonPlacementNotFound = "PlacementNotFound"
	// ReasonSourceNotFound of Ready: the MetricsSource does not exist.
	ReasonSourceNotFound = "SourceNotFound"
	// ReasonNotOurs of Ready and Configured: the MultiKueueConfig that the gate names belongs
	// to another gate, or no gate created it.
	ReasonNotOurs = "NotOurs"
	// ReasonNoDecisions of Ready, PlacementFound, MultipleCandidates and Configured: the
	// Placement has decided no cluster.
	ReasonNoDecisions = "NoDecisions"
	// ReasonOneCluster of MultipleCandidates: the Placement decides a single cluster.
	ReasonOneCluster = "OneCluster"
	// ReasonQueriesFailing of QueriesSucceeding: queries fail or return partial results.
	ReasonQueriesFailing = "QueriesFailing"
	// ReasonClustersTruncated of Configured: more clusters are decided than a
	// MultiKueueConfig may contain.
	ReasonClustersTruncated = "ClustersTruncated"
	// ReasonWriteFailed of Configured: a write to the API server failed.
	ReasonWriteFailed = "WriteFailed"
	// ReasonNoSuchScore of ScoresFound: no decided cluster has a score that the gate names.
	ReasonNoSuchScore = "NoSuchScore"
	// ReasonNoneEligible is set if a requirement of the gate excludes every cluster.
	ReasonNoneEligible = "NoneEligible"
	// ReasonAnotherDispatcher of DispatcherMatches: another component nominates clusters, too.
	ReasonAnotherDispatcher = "AnotherDispatcher"
	// ReasonNoDispatcher of DispatcherMatches: no component nominates clusters.
	ReasonNoDispatcher = "NoDispatcher"
	// ReasonQuotaBelowDevices of PreemptionGated: the quota is used up before the devices are.
	ReasonQuotaBelowDevices = "QuotaBelowDevices"
	// ReasonClusterDoubted of ClustersStart: a cluster does not start what it admits.
	ReasonClusterDoubted = "ClusterDoubted"
)

// ReasonDevicesNotMeasured of PreemptionGated, which is Unknown: no decision has measured all devices for which
// a queue that preempts has quota.
const ReasonDevicesNotMeasured = "DevicesNotMeasured"

// Reasons of a PlacementGate's conditions that are True.
const (
	// ReasonDeciding of Ready.
	ReasonDeciding = "Deciding"
	// ReasonValid of QueriesValid.
	ReasonValid = "Valid"
	// ReasonSucceeding of QueriesSucceeding.
	ReasonSucceeding = "Succeeding"
	// ReasonMeetable is set if no requirement of the gate excludes every cluster.
	ReasonMeetable = "Meetable"
	// ReasonDecided of PlacementFound.
	ReasonDecided = "Decided"
	// ReasonSeveralClusters of MultipleCandidates.
	ReasonSeveralClusters = "SeveralClusters"
	// ReasonFound of ScoresFound.
	ReasonFound = "Found"
	// ReasonWritten of Configured: the MultiKueueConfig contains every decided cluster.
	ReasonWritten = "Written"
	// ReasonNotWanted of Configured: spec.multiKueue is not set.
	ReasonNotWanted = "NotWanted"
	// ReasonOnlyDispatcher of DispatcherMatches: only the operator nominates clusters.
	ReasonOnlyDispatcher = "OnlyDispatcher"
	// ReasonDispatchOff of DispatcherMatches: Kueue's built-in dispatcher nominates clusters.
	ReasonDispatchOff = "DispatchOff"
	// ReasonNoPreemption of PreemptionGated: no queue with the gate's check preempts before the gate decides.
	ReasonNoPreemption = "NoPreemption"
	// ReasonQuotaAboveDevices of PreemptionGated: the quota of each queue that preempts exceeds the devices.
	ReasonQuotaAboveDevices = "QuotaAboveDevices"
	// ReasonStarting of ClustersStart: the gate doubts no cluster.
	ReasonStarting = "Starting"
)

// Reasons of the condition Active of an AdmissionCheck that names a PlacementGate. If a gate
// stops its queues, the reason is the one of the gate's condition Ready.
const (
	// ReasonActive: the gate decides.
	ReasonActive = "Active"
	// ReasonBadParameters: spec.parameters of the check names no PlacementGate.
	ReasonBadParameters = "BadParameters"
	// ReasonGateNotFound: the PlacementGate does not exist.
	ReasonGateNotFound = "GateNotFound"
)

// PlacementGateStatus is the observed state of a gate.
type PlacementGateStatus struct {
	// Conditions of the gate. Ready sums up the others.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Generation of the spec that the status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Number of clusters that the Placement decided.
	// +optional
	Candidates int32 `json:"candidates,omitempty"`
	// Number of workloads that hold quota and wait for the gate.
	// +optional
	Waiting int32 `json:"waiting,omitempty"`
	// Clusters that the gate holds for waiting workloads.
	// +optional
	// +listType=map
	// +listMapKey=workload
	Holds []HeldCluster `json:"holds,omitempty"`
	// What the gate would have done in mode Shadow.
	// +optional
	Shadow *GateShadow `json:"shadow,omitempty"`
}

// GateShadow compares what a gate in mode Shadow would have done with what happened. It begins anew with
// each change of the spec.
type GateShadow struct {
	// Generation of the spec that decided.
	Generation int64 `json:"generation"`
	// Time from which workloads are counted.
	Since metav1.Time `json:"since"`
	// Numbers of workloads whose pods have been ready, or that have ended, by what the gate would have done.
	// +optional
	// +listType=map
	// +listMapKey=outcome
	Outcomes []ShadowOutcome `json:"outcomes,omitempty"`
	// Workloads for which the gate would have made a difference, or whose pods did not start where they
	// went. The latest last, at most 100.
	// +optional
	// +listType=atomic
	Workloads []ShadowWorkload `json:"workloads,omitempty"`
	// Workloads that a cluster admitted more than 5 minutes ago, and whose pods are not ready yet. The
	// oldest first, at most 100. The numbers do not include them.
	// +optional
	// +listType=atomic
	Hanging []ShadowWorkload `json:"hanging,omitempty"`
}

// GateOutcome is what a gate in mode Shadow would have done with a workload that passed.
// +kubebuilder:validation:Enum=SameCluster;OtherCluster;Wait;Never;Undecided;Unplaced
type GateOutcome string

// Outcomes in the order of reports.
const (
	// OutcomeSameCluster: the gate would have sent it at once to the cluster that it went to.
	OutcomeSameCluster GateOutcome = "SameCluster"
	// OutcomeOtherCluster: the gate would have sent it at once to another cluster.
	OutcomeOtherCluster GateOutcome = "OtherCluster"
	// OutcomeWait: the gate would have kept it waiting.
	OutcomeWait GateOutcome = "Wait"
	// OutcomeNever: no cluster could have started it, even if it were empty.
	OutcomeNever GateOutcome = "Never"
	// OutcomeUndecided: the gate could not decide, such as without metrics. It would have kept it waiting.
	OutcomeUndecided GateOutcome = "Undecided"
	// OutcomeUnplaced: the gate would have sent it at once, but it ended before a cluster admitted it, or the
	// hub does not show where it ran.
	OutcomeUnplaced GateOutcome = "Unplaced"
)

// ShadowOutcome has the numbers of the workloads with one outcome.
type ShadowOutcome struct {
	// What the gate would have done.
	Outcome GateOutcome `json:"outcome"`
	// Number of times that a workload passed.
	Workloads int64 `json:"workloads"`
	// Seconds for which the gate would have kept them waiting, in all.
	// +optional
	WaitSeconds int64 `json:"waitSeconds,omitempty"`
	// Number of them whose pods were not ready 5 minutes after a cluster admitted them.
	// +optional
	Hung int64 `json:"hung,omitempty"`
	// Devices of these, times the seconds until their pods were ready or they ended, in all.
	// +optional
	HungDeviceSeconds int64 `json:"hungDeviceSeconds,omitempty"`
}

// ShadowWorkload is a workload that passed a gate in mode Shadow.
type ShadowWorkload struct {
	// Workload as namespace/name.
	Workload string `json:"workload"`
	// Time of the first decision about it, just after it passed.
	Time metav1.Time `json:"time"`
	// Number of devices that it requests.
	Devices int64 `json:"devices"`
	// What the gate would have done.
	Outcome GateOutcome `json:"outcome"`
	// Cluster to which the gate would have sent it in the end.
	// +optional
	Would string `json:"would,omitempty"`
	// Reason for which the gate would have kept it waiting at first.
	// +optional
	Message string `json:"message,omitempty"`
	// Cluster that admitted it.
	// +optional
	Cluster string `json:"cluster,omitempty"`
	// Seconds for which the gate would have kept it waiting.
	// +optional
	WaitSeconds int64 `json:"waitSeconds,omitempty"`
	// Seconds from its admission until its pods were ready, or it ended, if that took more than 5 minutes.
	// +optional
	HungSeconds int64 `json:"hungSeconds,omitempty"`
}

// HeldCluster is a cluster that a gate keeps free for a waiting workload.
type HeldCluster struct {
	// Workload that the cluster is held for, as namespace/name.
	Workload string `json:"workload"`
	// Name of the held cluster.
	Cluster string `json:"cluster"`
	// Time at which the hold began.
	Since metav1.Time `json:"since"`
	// Latest start of the workload, if the durations of the workloads on the cluster are known.
	// +optional
	StartsBy *metav1.Time `json:"startsBy,omitempty"`
	// True if spec.hold.mode is Shadow: the cluster is not kept free.
	// +optional
	Shadow bool `json:"shadow,omitempty"`
}
