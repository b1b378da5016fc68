package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PolicyMode says what becomes of the scores.
// +kubebuilder:validation:Enum=Publish;Shadow
type PolicyMode string

const (
	// ModePublish writes AddOnPlacementScores.
	ModePublish PolicyMode = "Publish"
	// ModeShadow evaluates and reports, and writes nothing.
	ModeShadow PolicyMode = "Shadow"
)

// ScoringPolicySpec says what to ask and how an answer becomes a score.
// +kubebuilder:validation:XValidation:rule="!has(self.total) || self.scores.all(s, s.name != self.total.name)",message="total.name must differ from every scores[].name"
type ScoringPolicySpec struct {
	SourceRef LocalReference `json:"sourceRef"`
	// ClusterSelector picks ManagedClusters by label; absent = all.
	// +optional
	ClusterSelector *metav1.LabelSelector `json:"clusterSelector,omitempty"`
	// PeriodSeconds between rounds; jittered.
	// +kubebuilder:default=30
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	// +optional
	PeriodSeconds int32 `json:"periodSeconds,omitempty"`
	// ValidForPeriods is how many periods a published score stays valid.
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=100
	// +optional
	ValidForPeriods int32 `json:"validForPeriods,omitempty"`
	// +kubebuilder:default=Publish
	// +optional
	Mode PolicyMode `json:"mode,omitempty"`
	// +optional
	Freshness *Freshness `json:"freshness,omitempty"`
	// MinHealthyPercent of the clusters that answered this policy within 24 h
	// must answer fresh now, else the round is held. Not applied below 3 such
	// clusters, nor in the first round.
	// +kubebuilder:default=50
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +optional
	MinHealthyPercent *int32 `json:"minHealthyPercent,omitempty"`
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Scores []ScoreSpec `json:"scores"`
	// Total publishes the weighted mean of the scores whose weight is above 0.
	// +optional
	Total *TotalSpec `json:"total,omitempty"`
	// +optional
	Publish PublishSpec `json:"publish,omitempty"`
}

// Freshness judges how old a cluster's samples are.
type Freshness struct {
	// Query answers the age in seconds of each cluster's newest trusted sample.
	// Take it from a timestamp value, never from timestamp() of a recorded series.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Query string `json:"query"`
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
	// RangeZeroTo100 publishes 0..100: an absent score, which OCM reads as 0, ties with the worst.
	RangeZeroTo100 ScoreRange = "ZeroTo100"
	// RangeFull publishes -100..100.
	RangeFull ScoreRange = "Full"
)

// ScoreSpec is one score of a policy.
type ScoreSpec struct {
	// +kubebuilder:validation:Pattern=`^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Query is PromQL that answers at most one sample per cluster.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Query string `json:"query"`
	// Weight in the total; 0 leaves the score out of it.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	// +optional
	Weight *int32 `json:"weight,omitempty"`
	// Minimum vetoes: a cluster below it, in normalized points after damping,
	// publishes -100 for this score and for the total.
	// +optional
	// +kubebuilder:validation:Minimum=-100
	// +kubebuilder:validation:Maximum=100
	Minimum *int32 `json:"minimum,omitempty"`
	// +kubebuilder:default=ZeroTo100
	// +optional
	Range     ScoreRange `json:"range,omitempty"`
	Normalize Normalize  `json:"normalize"`
	// +optional
	Missing Missing `json:"missing,omitempty"`
	// +optional
	Damping Damping `json:"damping,omitempty"`
}

// NormalizeType names one way from a raw value to points.
// +kubebuilder:validation:Enum=Linear;Steps;Fleet;Identity
type NormalizeType string

// The ways to points.
const (
	NormalizeLinear   NormalizeType = "Linear"
	NormalizeSteps    NormalizeType = "Steps"
	NormalizeFleet    NormalizeType = "Fleet"
	NormalizeIdentity NormalizeType = "Identity"
)

// Normalize turns a raw value into points.
// +kubebuilder:validation:XValidation:rule="(self.type == 'Linear') == has(self.linear)",message="linear must be set exactly when type is Linear"
// +kubebuilder:validation:XValidation:rule="(self.type == 'Steps') == has(self.steps)",message="steps must be set exactly when type is Steps"
// +kubebuilder:validation:XValidation:rule="(self.type == 'Fleet') == has(self.fleet)",message="fleet must be set exactly when type is Fleet"
type Normalize struct {
	Type NormalizeType `json:"type"`
	// +optional
	Linear *Linear `json:"linear,omitempty"`
	// Steps in ascending order of from; a value takes the points of the last
	// step that it reaches, and the lowest of the range below the first.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Steps []Step `json:"steps,omitempty"`
	// +optional
	Fleet *Fleet `json:"fleet,omitempty"`
}

// Linear maps from..to on the score's range, reversed when from > to, clamped.
type Linear struct {
	From resource.Quantity `json:"from"`
	To   resource.Quantity `json:"to"`
}

// Step gives points from a value on.
type Step struct {
	From resource.Quantity `json:"from"`
	// +kubebuilder:validation:Minimum=-100
	// +kubebuilder:validation:Maximum=100
	Points int32 `json:"points"`
}

// FleetMethod compares a cluster with the others of the round.
// +kubebuilder:validation:Enum=MinMax;Rank
type FleetMethod string

// The ways to compare.
const (
	FleetMinMax FleetMethod = "MinMax"
	FleetRank   FleetMethod = "Rank"
)

// Fleet normalizes against the other clusters of the same round.
type Fleet struct {
	Method FleetMethod `json:"method"`
	// Descending makes the lowest raw value the best.
	// +optional
	Descending bool `json:"descending,omitempty"`
}

// MissingOutcome is what a missing value becomes after its hold.
// +kubebuilder:validation:Enum=Worst;Omit;Fixed
type MissingOutcome string

// The outcomes of a missing value.
const (
	MissingWorst MissingOutcome = "Worst"
	MissingOmit  MissingOutcome = "Omit"
	MissingFixed MissingOutcome = "Fixed"
)

// Missing says what happens when a cluster has no trusted value.
// +kubebuilder:validation:XValidation:rule="!has(self.then) || (self.then == 'Fixed') == has(self.fixedValue)",message="fixedValue must be set exactly when then is Fixed"
type Missing struct {
	// HoldSeconds keeps the last good value this long after its sample.
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	// +optional
	HoldSeconds *int32 `json:"holdSeconds,omitempty"`
	// Then Worst publishes -100 whatever the range, Omit leaves the score out,
	// Fixed publishes fixedValue.
	// +kubebuilder:default=Worst
	// +optional
	Then MissingOutcome `json:"then,omitempty"`
	// +optional
	// +kubebuilder:validation:Minimum=-100
	// +kubebuilder:validation:Maximum=100
	FixedValue *int32 `json:"fixedValue,omitempty"`
}

// Damping keeps noise from moving placements.
type Damping struct {
	// HalfLifeSeconds of an exponentially weighted mean; 0 = none.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	HalfLifeSeconds int32 `json:"halfLifeSeconds,omitempty"`
	// Deadband in points, below which no write happens.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Deadband int32 `json:"deadband,omitempty"`
	// RiseSeconds a better value must last before it is published; worse applies at once.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	RiseSeconds int32 `json:"riseSeconds,omitempty"`
}

// TotalSpec names the weighted mean.
type TotalSpec struct {
	// +kubebuilder:default=total
	// +kubebuilder:validation:Pattern=`^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Name string `json:"name,omitempty"`
	// +kubebuilder:default=ZeroTo100
	// +optional
	Range ScoreRange `json:"range,omitempty"`
}

// PublishSpec says where scores go.
type PublishSpec struct {
	// Name of the AddOnPlacementScore in each cluster's namespace; the policy's name by default.
	// +optional
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// Condition types of a ScoringPolicy.
const (
	// ConditionReady: the other conditions, in one.
	ConditionReady = "Ready"
	// ConditionQueriesValid: every expression parses, and where is said if not.
	ConditionQueriesValid = "QueriesValid"
	// ConditionDataFresh: also on each AddOnPlacementScore; False with Held, Stale or Missing.
	ConditionDataFresh = "DataFresh"
	// ConditionPublished: what was decided stands in the AddOnPlacementScores.
	ConditionPublished = "Published"
)

// Reasons of conditions.
const (
	ReasonHeld       = "Held"
	ReasonStale      = "Stale"
	ReasonMissing    = "Missing"
	ReasonNameTaken  = "NameTaken"
	ReasonShadow     = "Shadow"
	ReasonParseError = "ParseError"
	ReasonNotFound   = "NotFound"
)

// ScoringPolicyStatus sums up the last round; per-cluster values are metrics.
type ScoringPolicyStatus struct {
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// +optional
	LastRound *RoundStatus `json:"lastRound,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=33
	Scores []ScoreStatus `json:"scores,omitempty"`
}

// RoundStatus counts the clusters of a round by what became of them.
type RoundStatus struct {
	Time     metav1.Time     `json:"time"`
	Duration metav1.Duration `json:"duration"`
	Clusters int32           `json:"clusters"`
	Scored   int32           `json:"scored"`
	Held     int32           `json:"held"`
	Worst    int32           `json:"worst"`
	Omitted  int32           `json:"omitted"`
}

// ScoreStatus is what one query did in the last round.
type ScoreStatus struct {
	Name string `json:"name"`
	// Query as it was sent.
	// +optional
	// +kubebuilder:validation:MaxLength=8192
	Query string `json:"query,omitempty"`
	// +optional
	Duration *metav1.Duration `json:"duration,omitempty"`
	// +optional
	Series int32 `json:"series,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=512
	Warnings []string `json:"warnings,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Error string `json:"error,omitempty"`
}

// ScoringPolicy turns PromQL answers into AddOnPlacementScores.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=spol,categories=plimsoll
// +kubebuilder:printcolumn:name="Source",type=string,JSONPath=`.spec.sourceRef.name`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Scored",type=integer,JSONPath=`.status.lastRound.scored`
// +kubebuilder:printcolumn:name="Held",type=integer,JSONPath=`.status.lastRound.held`
// +kubebuilder:printcolumn:name="Last round",type=date,JSONPath=`.status.lastRound.time`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ScoringPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              ScoringPolicySpec   `json:"spec"`
	Status            ScoringPolicyStatus `json:"status,omitempty"`
}

// ScoringPolicyList is a list of ScoringPolicies.
// +kubebuilder:object:root=true
type ScoringPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ScoringPolicy `json:"items"`
}
