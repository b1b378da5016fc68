package v1alpha1

// UnplaceableMode is the behavior of a workload that no cluster can take.
// +kubebuilder:validation:Enum=Wait;Yield
type UnplaceableMode string

// Modes of a workload that no cluster can take.
const (
	// UnplaceableWait keeps the quota until a cluster has room.
	UnplaceableWait UnplaceableMode = "Wait"
	// UnplaceableYield returns the quota if another workload needs it.
	UnplaceableYield UnplaceableMode = "Yield"
)

// WhenUnplaceable is the behavior of a gate while no cluster can take a workload.
type WhenUnplaceable struct {
	// Wait: the workload keeps its quota. Yield: it returns its quota after
	// yieldAfterSeconds if another workload of the same queue or cohort is pending, and
	// queues again. A workload whose pods Kueue found not ready in time five times keeps its
	// quota, because Kueue would forget its count of retries. Default Wait.
	// +kubebuilder:default=Wait
	// +optional
	Mode UnplaceableMode `json:"mode,omitempty"`
	// Seconds for which the workload keeps its quota before the first yield. Later yields
	// are 5 to 30 minutes apart. Default 300, from 1 to 86400.
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	// +optional
	YieldAfterSeconds int32 `json:"yieldAfterSeconds,omitempty"`
	// Seconds without room after which the gate rejects the workload, which Kueue then
	// deactivates. Only the time counts in which the workload holds quota and every cluster
	// was measured and has no room. Failing queries, requirements, scores or a broken gate
	// never count. From 1 to 2592000. Absent: the gate never rejects a workload.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2592000
	GiveUpAfterSeconds *int32 `json:"giveUpAfterSeconds,omitempty"`
	// Behavior for a workload that no cluster of the gate could start, even if it were empty. The
	// check says so at once, whatever the mode.
	// +kubebuilder:default={}
	// +optional
	Never WhenNever `json:"never,omitempty"`
}

// NeverMode is the behavior of a workload that no cluster could start, even if it were empty.
// +kubebuilder:validation:Enum=Park;Wait;Reject
type NeverMode string

// Modes of a workload that no cluster could start.
const (
	// NeverPark returns the quota until a cluster could start the workload.
	NeverPark NeverMode = "Park"
	// NeverWait treats the workload like all others without room.
	NeverWait NeverMode = "Wait"
	// NeverReject rejects the workload.
	NeverReject NeverMode = "Reject"
)

// WhenNever is the behavior of a gate for a workload that no cluster could start.
type WhenNever struct {
	// Park: the workload returns its quota after afterSeconds, and queues again when a node or
	// quota that could hold it appears. Wait: as any other workload without room. Reject: the gate
	// rejects the workload after afterSeconds, and Kueue deactivates it. The components of a job of
	// several workloads follow component 0. Default Park.
	// +kubebuilder:default=Park
	// +optional
	Mode NeverMode `json:"mode,omitempty"`
	// Seconds for which fresh and complete metrics must prove it. Default 600, from 1 to 86400.
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	// +optional
	AfterSeconds int32 `json:"afterSeconds,omitempty"`
}
