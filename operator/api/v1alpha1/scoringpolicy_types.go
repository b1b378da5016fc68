package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ScoringPolicySpec describes the queries of a policy and how their results become
// scores.
// +kubebuilder:validation:XValidation:rule="!has(self.total) || self.scores.all(s, s.name != self.total.name)",message="total.name must differ from every scores[].name"
// +kubebuilder:validation:XValidation:rule="self.scores.all(s, !has(s.nameFrom) || self.scores.all(o, !o.name.startsWith(s.name + '-')))",message="no score may begin with the name of a score with nameFrom and a hyphen"
// +kubebuilder:validation:XValidation:rule="!has(self.total) || self.scores.all(s, !has(s.nameFrom) || !self.total.name.startsWith(s.name + '-'))",message="total.name must not begin with the name of a score with nameFrom and a hyphen"
type ScoringPolicySpec struct {
	// MetricsSource that the policy queries. Required.
	SourceRef LocalReference `json:"sourceRef"`
	// Labels of the ManagedClusters that the policy scores. By default, the policy
	// scores every accepted ManagedCluster.
	// +optional
	ClusterSelector *metav1.LabelSelector `json:"clusterSelector,omitempty"`
	// Time between rounds in seconds. Each round queries the source and updates the
	// scores. Policies with the same source and period run at the same times, and a
	// query that several of them contain is sent once. Default 30, from 1 to 86400.
	// +kubebuilder:default=30
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	// +optional
	PeriodSeconds int32 `json:"periodSeconds,omitempty"`
	// Validity of published scores, in periods. A score that is not renewed within
	// this time expires. Default 3, from 2 to 100.
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=100
	// +optional
	ValidForPeriods int32 `json:"validForPeriods,omitempty"`
	// Enforce writes AddOnPlacementScores. Shadow evaluates and reports the scores in
	// status and metrics, and deletes the AddOnPlacementScores of the policy. Default
	// Enforce.
	// +kubebuilder:default=Enforce
	// +optional
	Mode Mode `json:"mode,omitempty"`
	// Limit of the age of samples. Without a query, it applies to the scores that read a series
	// of the shipped recording rules (LEVEL:plimsoll_...), by the sample time that the rules
	// record. A query of its own applies to all scores. By default, the limit is 120 seconds
	// without a query.
	// +optional
	Freshness *Freshness `json:"freshness,omitempty"`
	// Share of the recently healthy clusters that must have fresh values, in percent.
	// A cluster is recently healthy if it had a fresh value within 24 hours. If fewer
	// have one, the fresh values are delayed: the last scores are kept for
	// missing.keepLastSeconds, and then the fresh values count. The limit does not apply
	// below 3 recently healthy clusters, nor in the first round. Default 50, from 0 to
	// 100.
	// +kubebuilder:default=50
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +optional
	MinHealthyPercent *int32 `json:"minHealthyPercent,omitempty"`
	// Scores of the policy, from 1 to 32. Required.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Scores []ScoreSpec `json:"scores"`
	// Additional score: the weighted mean of all scores with a weight above 0, or an
	// expression over the scores. By default, no total is published.
	// +optional
	Total *TotalSpec `json:"total,omitempty"`
	// Location of the published scores.
	// +optional
	Publish PublishSpec `json:"publish,omitempty"`
}

// DefaultFreshnessQuery is the age of the samples of devices from which the shipped rules record their
// series. last_over_time keeps the series of a silent cluster for an hour, so that its age grows and it
// does not disappear.
const DefaultFreshnessQuery = `time() - max by ($cluster_label) (last_over_time(cluster:plimsoll_sample_timestamp_seconds:min[1h]))`

// Freshness limits the age of samples.
type Freshness struct {
	// PromQL query that returns the age of the oldest trusted sample of each cluster, in
	// seconds. $cluster_label stands for the name of the cluster label. Compute the age from
	// a sample value that is a timestamp, or from timestamp() of a scraped series. The function
	// timestamp() of a recorded series is always recent. At most 4096 characters. Default: the
	// age of the sample time that the shipped rules record.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Query string `json:"query,omitempty"`
	// Age in seconds above which the values of a cluster count as missing. A cluster of
	// unknown age counts as too old. Default 120, from 1 to 86400.
	// +kubebuilder:default=120
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	// +optional
	MaxAgeSeconds int32 `json:"maxAgeSeconds,omitempty"`
}

// ScoreRange is the range of a published score.
// +kubebuilder:validation:Enum=ZeroTo100;Full
type ScoreRange string

const (
	// RangeZeroTo100 is 0 to 100. OCM reads a missing score as 0, which ties with the
	// worst score of this range.
	RangeZeroTo100 ScoreRange = "ZeroTo100"
	// RangeFull is -100 to 100.
	RangeFull ScoreRange = "Full"
)

// ScoreSpec describes one score of a policy, or several that a query returns together.
// +kubebuilder:validation:XValidation:rule="!has(self.nameFrom) || (has(self.weight) && self.weight == 0)",message="weight must be 0 with nameFrom: the number of scores varies"
// +kubebuilder:validation:XValidation:rule="!has(self.nameFrom) || !(has(self.minimum) || has(self.maximum))",message="minimum and maximum must not be set with nameFrom"
// +kubebuilder:validation:XValidation:rule="!has(self.nameFrom) || (has(self.missing) && has(self.missing.absent) && self.missing.absent != 'Unknown')",message="missing.absent must be Worst, Omit or Fixed with nameFrom: not every cluster has every score"
type ScoreSpec struct {
	// Name of the score in AddOnPlacementScores: letters, digits and hyphens, starting
	// with a letter, at most 63 characters. With nameFrom, the first part of the names.
	// Required.
	// +kubebuilder:validation:Pattern=`^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Several scores from one query: one for each value of a label. By default, the
	// query returns one score.
	// +optional
	NameFrom *NameFrom `json:"nameFrom,omitempty"`
	// PromQL query that returns at most one sample per cluster, with the cluster label
	// of the source. With nameFrom, at most one sample per cluster and value of the
	// label. $cluster_label stands for the name of the cluster label. At most 4096
	// characters. Required.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Query string `json:"query"`
	// Weight of the score in the total. 0 excludes the score. Default 1, from 0 to
	// 1000.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	// +optional
	Weight *int32 `json:"weight,omitempty"`
	// Lowest acceptable value of the query, before normalization and damping. A cluster below it is
	// vetoed: this score and the total are published as -100, whatever the weight. If the score is
	// missing after keepLastSeconds, the total is -100, too; the outcome of missing.absent is not
	// vetoed. By default, no value is too low.
	// +optional
	Minimum *resource.Quantity `json:"minimum,omitempty"`
	// Highest acceptable value of the query, such as "0.8" for a utilization of at most 80%. A cluster
	// above it is vetoed as one below minimum. By default, no value is too high.
	// +optional
	Maximum *resource.Quantity `json:"maximum,omitempty"`
	// Range of the score: ZeroTo100 (0 to 100) or Full (-100 to 100). Default
	// ZeroTo100.
	// +kubebuilder:default=ZeroTo100
	// +optional
	Range ScoreRange `json:"range,omitempty"`
	// Conversion of raw values to points. Required.
	Normalize Normalize `json:"normalize"`
	// Treatment of clusters without a usable value. By default, the last value is kept
	// for 300 seconds, and then the worst score is published.
	// +optional
	Missing Missing `json:"missing,omitempty"`
	// Smoothing of changes. By default, changes apply at once.
	// +optional
	Damping Damping `json:"damping,omitempty"`
}

// NameFrom makes several scores of one query.
type NameFrom struct {
	// Label of the query's result. Each value gives one score: its name is the name of
	// the score, a hyphen and the value. In the value, each group of characters other than
	// letters and digits becomes one hyphen. A value whose name would be longer than 63
	// characters gives no score. Required.
	// +kubebuilder:validation:Pattern=`^[a-zA-Z_][a-zA-Z0-9_]*$`
	// +kubebuilder:validation:MaxLength=128
	Label string `json:"label"`
	// Largest number of scores. If the result has more values, those that are published
	// already stay, others follow in alphabetical order, and QueriesValid is False. Default
	// 16, from 1 to 64.
	// +kubebuilder:default=16
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	// +optional
	Limit int32 `json:"limit,omitempty"`
}

// MissingOutcome states what is published for a missing value after keepLastSeconds.
// +kubebuilder:validation:Enum=Worst;Omit
type MissingOutcome string

const (
	// MissingWorst publishes -100.
	MissingWorst MissingOutcome = "Worst"
	// MissingOmit publishes no score.
	MissingOmit MissingOutcome = "Omit"
)

// AbsentOutcome states what is published for a cluster that has none of what the query
// measures.
// +kubebuilder:validation:Enum=Unknown;Worst;Omit;Fixed
type AbsentOutcome string

// Outcomes beside those that have the name of a MissingOutcome.
const (
	// AbsentUnknown treats an absent value as every other missing value.
	AbsentUnknown AbsentOutcome = "Unknown"
	// AbsentFixed publishes a fixed value.
	AbsentFixed AbsentOutcome = "Fixed"
)

// Missing describes the treatment of clusters without a usable value.
// +kubebuilder:validation:XValidation:rule="(has(self.absent) && self.absent == 'Fixed') == has(self.fixedValue)",message="fixedValue must be set exactly when absent is Fixed"
type Missing struct {
	// Time in seconds, from the last usable sample, during which the last score is kept.
	// Afterwards, then applies. Default: 300, or two periods and freshness.maxAgeSeconds if that is
	// longer. From 0 to 86400.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	// +optional
	KeepLastSeconds *int32 `json:"keepLastSeconds,omitempty"`
	// Score after keepLastSeconds. Worst publishes -100 in every range, and Omit publishes
	// no score. Default Worst.
	// +kubebuilder:default=Worst
	// +optional
	Then MissingOutcome `json:"then,omitempty"`
	// Score of a cluster for which the response has no series, as a cluster without
	// GPUs in a fleet where others have some. Unknown: the value is missing like every
	// other one, and the policy is not Ready. Worst publishes -100, Omit publishes no
	// score, and Fixed publishes fixedValue; the policy can be Ready. If the cluster had
	// a value before, the last score is kept first. While the query fails, this
	// outcome is kept for keepLastSeconds. Afterwards, then applies. Default Unknown.
	// +kubebuilder:default=Unknown
	// +optional
	Absent AbsentOutcome `json:"absent,omitempty"`
	// Score if absent is Fixed. Required exactly in this case. From -100 to 100.
	// +optional
	// +kubebuilder:validation:Minimum=-100
	// +kubebuilder:validation:Maximum=100
	FixedValue *int32 `json:"fixedValue,omitempty"`
}

// Damping reduces changes of placements by noise.
type Damping struct {
	// Half-life in seconds of the exponentially weighted mean of the points. After this
	// time, half of a step change has taken effect. 0 disables the mean. Default 0, at
	// most 86400.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	HalfLifeSeconds int32 `json:"halfLifeSeconds,omitempty"`
	// Smallest change in points that is published. The published score stays as long
	// as the change is smaller. The lowest points of the range are always published.
	// Default 0, at most 100.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Deadband int32 `json:"deadband,omitempty"`
}

// TotalSpec describes the total of the scores.
type TotalSpec struct {
	// Name of the total in AddOnPlacementScores. It must differ from every other score:
	// letters, digits and hyphens, starting with a letter, at most 63 characters.
	// Default "total".
	// +kubebuilder:default=total
	// +kubebuilder:validation:Pattern=`^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Name string `json:"name,omitempty"`
	// Range of the total: ZeroTo100 (0 to 100) or Full (-100 to 100). For the weighted
	// mean, each score is converted from its own range first. Default ZeroTo100.
	// +kubebuilder:default=ZeroTo100
	// +optional
	Range ScoreRange `json:"range,omitempty"`
	// CEL expression that computes the total from the points of the scores, instead of
	// the weighted mean, such as min(scores.headroom, scores.power). scores is a map of
	// numbers by name; a name with a hyphen needs brackets, as in scores["fit-a100"].
	// min and max take two or three numbers, or a list. The result is limited to the
	// range. If a score that the expression names is missing, so is the total. A score
	// that a cluster may lack is read by scores[?"fit-a100"].orValue(0.0). Weights do not
	// apply. At most 1024 characters.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Expression string `json:"expression,omitempty"`
}

// ExistingObjects states what happens to AddOnPlacementScores of other writers.
// +kubebuilder:validation:Enum=Keep;Adopt
type ExistingObjects string

const (
	// ExistingKeep never changes them.
	ExistingKeep ExistingObjects = "Keep"
	// ExistingAdopt takes over those that no object controls.
	ExistingAdopt ExistingObjects = "Adopt"
)

// PublishSpec describes where scores are published.
type PublishSpec struct {
	// Name of the AddOnPlacementScore in the namespace of each cluster. Two policies
	// must not use the same name: the second one publishes nothing. Default: the name
	// of the policy. At most 253 characters.
	// +optional
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// Treatment of AddOnPlacementScores with this name that another component wrote. Keep
	// leaves them unchanged, and the condition Published is False with the reason
	// NameTaken. Adopt takes over those that no object controls, such as the objects of
	// OCM's resource-usage-collect: the policy becomes their owner, and scores that the
	// policy does not publish are removed. Stop the other component first. Objects with a
	// controller are never adopted. Default Keep.
	// +kubebuilder:default=Keep
	// +optional
	Existing ExistingObjects `json:"existing,omitempty"`
}

// ScoringPolicy turns the results of PromQL queries into AddOnPlacementScores.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=spol,categories=plimsoll
// +kubebuilder:printcolumn:name="Source",type=string,JSONPath=`.spec.sourceRef.name`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Scored",type=integer,JSONPath=`.status.lastRound.scored`
// +kubebuilder:printcolumn:name="Kept",type=integer,JSONPath=`.status.lastRound.kept`
// +kubebuilder:printcolumn:name="Last round",type=date,JSONPath=`.status.lastRound.time`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ScoringPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Desired state of the policy.
	Spec ScoringPolicySpec `json:"spec"`
	// Observed state of the policy.
	Status ScoringPolicyStatus `json:"status,omitempty"`
}

// ScoringPolicyList is a list of ScoringPolicies.
// +kubebuilder:object:root=true
type ScoringPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ScoringPolicy `json:"items"`
}
