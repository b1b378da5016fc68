package v1alpha1

import "k8s.io/apimachinery/pkg/api/resource"

// NormalizeType selects a conversion of raw values to points.
// +kubebuilder:validation:Enum=Linear;Steps;Fleet;Identity
type NormalizeType string

const (
	// NormalizeLinear interpolates between two raw values.
	NormalizeLinear NormalizeType = "Linear"
	// NormalizeSteps assigns fixed points to intervals of raw values.
	NormalizeSteps NormalizeType = "Steps"
	// NormalizeFleet compares a cluster with the other clusters of the round.
	NormalizeFleet NormalizeType = "Fleet"
	// NormalizeIdentity uses the raw value as points, limited to the range.
	NormalizeIdentity NormalizeType = "Identity"
)

// Normalize converts raw values to points.
// +kubebuilder:validation:XValidation:rule="(self.type == 'Linear') == has(self.linear)",message="linear must be set exactly when type is Linear"
// +kubebuilder:validation:XValidation:rule="(self.type == 'Steps') == has(self.steps)",message="steps must be set exactly when type is Steps"
// +kubebuilder:validation:XValidation:rule="(self.type == 'Fleet') == has(self.fleet)",message="fleet must be set exactly when type is Fleet"
type Normalize struct {
	// Conversion: Linear, Steps, Fleet or Identity. Identity uses the raw value as
	// points, limited to the range of the score. Required.
	Type NormalizeType `json:"type"`
	// Parameters of the conversion Linear. Required exactly if type is Linear.
	// +optional
	Linear *Linear `json:"linear,omitempty"`
	// Steps in ascending order of from, between 1 and 32. A value gets the points of
	// the last step whose from is not above the value. Below the first step, a value
	// gets the lowest points of the range. Required exactly if type is Steps.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Steps []Step `json:"steps,omitempty"`
	// Parameters of the comparison with the fleet. Required exactly if type is Fleet.
	// +optional
	Fleet *Fleet `json:"fleet,omitempty"`
}

// Linear maps the interval from..to linearly to the range of the score. Values outside
// the interval get the nearest end of the range. The mapping is reversed if from is
// greater than to.
type Linear struct {
	// Raw value that gets the lowest points of the range. Required.
	From resource.Quantity `json:"from"`
	// Raw value that gets the highest points of the range. Required.
	To resource.Quantity `json:"to"`
}

// Step assigns points to raw values from a threshold on.
type Step struct {
	// Lowest raw value of the step. Required.
	From resource.Quantity `json:"from"`
	// Points of the step, limited to the range of the score. From -100 to 100. Required.
	// +kubebuilder:validation:Minimum=-100
	// +kubebuilder:validation:Maximum=100
	Points int32 `json:"points"`
}

// FleetMethod selects how a cluster is compared with the fleet.
// +kubebuilder:validation:Enum=MinMax;Rank
type FleetMethod string

const (
	// FleetMinMax interpolates between the lowest and the highest raw value.
	FleetMinMax FleetMethod = "MinMax"
	// FleetRank spreads the clusters evenly over the range, in the order of their raw
	// values.
	FleetRank FleetMethod = "Rank"
)

// Fleet compares a cluster with the other clusters of the same round.
type Fleet struct {
	// MinMax interpolates between the lowest and the highest raw value of the round.
	// Rank spreads the clusters evenly over the range, in the order of their raw
	// values. Required.
	Method FleetMethod `json:"method"`
	// Give the highest points to the lowest raw value. Default false.
	// +optional
	Descending bool `json:"descending,omitempty"`
}
