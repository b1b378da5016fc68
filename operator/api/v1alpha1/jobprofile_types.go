package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ProfileLabel on a Workload, or on the pods of its templates, names the profile that the
// job belongs to. Kueue copies the label from a job to its Workload if
// integrations.labelKeysToCopy in Kueue's configuration lists it.
const ProfileLabel = "plimsoll.dev/profile"

// GateProfiles states how runs of the gate's workloads are profiled.
type GateProfiles struct {
	// Hours after which a run counts half as much as a new one. Default 720, from 1 to 8760.
	// +kubebuilder:default=720
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=8760
	// +optional
	HalfLifeHours int32 `json:"halfLifeHours,omitempty"`
	// Number of JobProfiles that a namespace may have. If a run needs another one, the
	// JobProfile whose last run is the oldest is deleted. If gates differ, the largest
	// number counts. Default 100, from 1 to 500.
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=500
	// +optional
	MaxPerNamespace int32 `json:"maxPerNamespace,omitempty"`
}

// ProfileKeySource states how the jobs of a profile are recognized.
// +kubebuilder:validation:Enum=Label;Hash
type ProfileKeySource string

// Sources of the key of a profile.
const (
	// ProfileFromLabel recognizes jobs by the label plimsoll.dev/profile.
	ProfileFromLabel ProfileKeySource = "Label"
	// ProfileFromHash recognizes jobs by a hash of the images, the commands with their
	// arguments, and the devices per pod.
	ProfileFromHash ProfileKeySource = "Hash"
)

// JobClass is the kind of work that a job does, as far as its averages show it.
// +kubebuilder:validation:Enum=Training;Inference;Interactive;Idle;Unknown
type JobClass string

// Classes of jobs. The thresholds are in operator/docs/profiles.md.
const (
	// ClassTraining keeps its devices busy, and computes on tensor cores or exchanges data
	// between devices.
	ClassTraining JobClass = "Training"
	// ClassInference uses its devices moderately, or reads memory more than it computes.
	ClassInference JobClass = "Inference"
	// ClassInteractive uses its devices now and then.
	ClassInteractive JobClass = "Interactive"
	// ClassIdle hardly uses its devices.
	ClassIdle JobClass = "Idle"
	// ClassUnknown has no measured utilization.
	ClassUnknown JobClass = "Unknown"
)

// Bottleneck is what limits a job, as far as its averages show it.
// +kubebuilder:validation:Enum=Compute;MemoryBandwidth;Communication;Host;None;Unknown
type Bottleneck string

// Bottlenecks of jobs. The thresholds are in operator/docs/profiles.md.
const (
	// BottleneckCompute is limited by the tensor cores.
	BottleneckCompute Bottleneck = "Compute"
	// BottleneckMemoryBandwidth is limited by the bandwidth of the device's memory.
	BottleneckMemoryBandwidth Bottleneck = "MemoryBandwidth"
	// BottleneckCommunication is limited by the links between devices.
	BottleneckCommunication Bottleneck = "Communication"
	// BottleneckHost waits for the host: for input, CPU or PCIe.
	BottleneckHost Bottleneck = "Host"
	// BottleneckNone is busy, and below every threshold.
	BottleneckNone Bottleneck = "None"
	// BottleneckUnknown lacks the metrics that would show it.
	BottleneckUnknown Bottleneck = "Unknown"
)

// ProfileQuantity is a measured quantity of a run.
// +kubebuilder:validation:Enum=Duration;MemoryPeak;Utilization;TensorActive;DRAMActive;NVLink;PCIe;Energy;Throughput
type ProfileQuantity string

// Quantities of a run.
const (
	// QuantityDuration is the time from admission to the end, in seconds.
	QuantityDuration ProfileQuantity = "Duration"
	// QuantityMemoryPeak is the largest used memory of a device, in bytes.
	QuantityMemoryPeak ProfileQuantity = "MemoryPeak"
	// QuantityUtilization is the mean utilization of the devices, 0 to 1.
	QuantityUtilization ProfileQuantity = "Utilization"
	// QuantityTensorActive is the mean activity of the tensor cores, 0 to 1.
	QuantityTensorActive ProfileQuantity = "TensorActive"
	// QuantityDRAMActive is the mean activity of the memory interface, 0 to 1.
	QuantityDRAMActive ProfileQuantity = "DRAMActive"
	// QuantityNVLink is the mean traffic of a device over NVLink, in bytes per second.
	QuantityNVLink ProfileQuantity = "NVLink"
	// QuantityPCIe is the mean traffic of a device over PCIe, in bytes per second.
	QuantityPCIe ProfileQuantity = "PCIe"
	// QuantityEnergy is the energy of all devices, in joules.
	QuantityEnergy ProfileQuantity = "Energy"
	// QuantityThroughput is the result of the throughputQuery of a TrialPolicy, in its own unit.
	QuantityThroughput ProfileQuantity = "Throughput"
)

// JobProfileStatus is what the operator learned from the runs of similar jobs.
type JobProfileStatus struct {
	// How the jobs of this profile are recognized: by Label or by Hash.
	// +optional
	KeySource ProfileKeySource `json:"keySource,omitempty"`
	// Value of the label plimsoll.dev/profile. Absent if keySource is Hash.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Label string `json:"label,omitempty"`
	// Number of successful runs on all models.
	// +optional
	Runs int64 `json:"runs,omitempty"`
	// Time at which the latest run ended.
	// +optional
	LastRunTime *metav1.Time `json:"lastRunTime,omitempty"`
	// What was measured, by device model. At most 8 models: the one whose last run is the
	// oldest gives way to another one.
	// +optional
	// +listType=map
	// +listMapKey=model
	// +kubebuilder:validation:MaxItems=8
	Models []ModelProfile `json:"models,omitempty"`
	// The latest runs that are counted, at most 64, in the order of their ends. They keep a
	// run from counting twice.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	RecentRuns []ProfiledRun `json:"recentRuns,omitempty"`
}

// ProfiledRun is a run that is counted in a profile.
type ProfiledRun struct {
	// UID of the Workload.
	// +kubebuilder:validation:MaxLength=63
	UID string `json:"uid"`
	// Time at which the run ended.
	EndTime metav1.Time `json:"endTime"`
}

// ModelProfile is what was measured on one device model. A quantity that no run measured is
// absent. A percentile is the upper bound of its bucket: 5 to 25% above the exact value.
type ModelProfile struct {
	// Model of the devices, as in the metrics.
	// +kubebuilder:validation:MaxLength=253
	Model string `json:"model"`
	// Number of successful runs.
	Runs int64 `json:"runs"`
	// Number of trial runs: copies of a job with one pod. They count in all values but the
	// durations and the energy.
	// +optional
	Trials int64 `json:"trials,omitempty"`
	// Time at which the latest run on this model ended.
	LastRunTime metav1.Time `json:"lastRunTime"`
	// Median of the time from admission to the end, in seconds.
	// +optional
	DurationP50Seconds *int64 `json:"durationP50Seconds,omitempty"`
	// 90th percentile of the time from admission to the end, in seconds.
	// +optional
	DurationP90Seconds *int64 `json:"durationP90Seconds,omitempty"`
	// 90th percentile of the largest used memory of a device, in bytes.
	// +optional
	MemoryPeakP90Bytes *int64 `json:"memoryPeakP90Bytes,omitempty"`
	// Median of the mean utilization of the devices, in percent.
	// +optional
	UtilizationP50Percent *int64 `json:"utilizationP50Percent,omitempty"`
	// Median of the mean activity of the tensor cores, in percent.
	// +optional
	TensorActiveP50Percent *int64 `json:"tensorActiveP50Percent,omitempty"`
	// Median of the mean activity of the memory interface, in percent.
	// +optional
	DRAMActiveP50Percent *int64 `json:"dramActiveP50Percent,omitempty"`
	// Median of the mean traffic of a device over NVLink, in bytes per second.
	// +optional
	NVLinkP50BytesPerSecond *int64 `json:"nvlinkP50BytesPerSecond,omitempty"`
	// Median of the mean traffic of a device over PCIe, in bytes per second.
	// +optional
	PCIeP50BytesPerSecond *int64 `json:"pcieP50BytesPerSecond,omitempty"`
	// Median of the energy of all devices of a run, in joules.
	// +optional
	EnergyP50Joules *int64 `json:"energyP50Joules,omitempty"`
	// Median of the throughput of trial runs, by the throughputQuery of the TrialPolicy, as a
	// decimal number in the unit of the query.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	ThroughputP50 string `json:"throughputP50,omitempty"`
	// Kind of work, from the medians: Training, Inference, Interactive, Idle or Unknown.
	Class JobClass `json:"class"`
	// What limits the job, from the medians: Compute, MemoryBandwidth, Communication, Host,
	// None or Unknown.
	Bottleneck Bottleneck `json:"bottleneck"`
	// Histograms from which the percentiles are computed. For the operator only.
	// +optional
	// +listType=map
	// +listMapKey=quantity
	// +kubebuilder:validation:MaxItems=16
	Histograms []ProfileHistogram `json:"histograms,omitempty"`
}

// ProfileHistogram is a histogram whose weights decay. A run has the weight 2^(t/h) at the
// time t after the reference time, with the half-life h.
type ProfileHistogram struct {
	// Measured quantity.
	Quantity ProfileQuantity `json:"quantity"`
	// Time at which a run has the weight 1.
	ReferenceTime metav1.Time `json:"referenceTime"`
	// Hours of the half-life of the weights. If halfLifeHours of the gate or TrialPolicy is another one,
	// the weights decay to the time of the next run with this one, and then with the other one.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=8760
	HalfLifeHours int32 `json:"halfLifeHours,omitempty"`
	// Weight of each bucket that is not empty, in thousandths, by number of the bucket.
	// +kubebuilder:validation:MaxProperties=512
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 3)",message="weights must have keys of at most 3 digits"
	Weights map[string]int64 `json:"weights"`
}

// JobProfile is what the operator learned from the runs of similar jobs of one namespace.
// The operator creates it if a PlacementGate has the section profiles. It has no spec.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=jprof,categories=plimsoll
// +kubebuilder:printcolumn:name="Key",type=string,JSONPath=`.status.keySource`
// +kubebuilder:printcolumn:name="Runs",type=integer,JSONPath=`.status.runs`
// +kubebuilder:printcolumn:name="Last run",type=date,JSONPath=`.status.lastRunTime`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type JobProfile struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Observed state.
	// +optional
	Status JobProfileStatus `json:"status,omitempty"`
}

// JobProfileList is a list of JobProfiles.
// +kubebuilder:object:root=true
type JobProfileList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Profiles of the list.
	Items []JobProfile `json:"items"`
}
