package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ScoreConditionPrefix precedes the name of a score in the type of its condition on an
// AddOnPlacementScore. The reason of the condition is the state of the score. A score without a
// condition had a fresh value when the object was written.
const ScoreConditionPrefix = "score.plimsoll.dev/"

// Condition types of a ScoringPolicy, beside ConditionReady and ConditionQueriesValid.
// True is the good state of each.
const (
	// ConditionDataFresh is True if every cluster has a fresh value in every score. The
	// AddOnPlacementScore of each cluster has this condition, too. Its reasons are
	// ReasonKept, ReasonStale and ReasonMissing if it is False.
	ConditionDataFresh = "DataFresh"
	// ConditionPublished is True if the AddOnPlacementScores contain the scores of the
	// last round.
	ConditionPublished = "Published"
)

// Reasons of conditions.
const (
	ReasonKept       = "Kept"
	ReasonStale      = "Stale"
	ReasonMissing    = "Missing"
	ReasonNameTaken  = "NameTaken"
	ReasonShadow     = "Shadow"
	ReasonParseError = "ParseError"
	ReasonNotFound   = "NotFound"
	// ReasonNoClusterMatches is the reason of ConditionQueriesValid if a query has matched
	// no cluster yet.
	ReasonNoClusterMatches = "NoClusterMatches"
	// ReasonCollidingNames is the reason of ConditionQueriesValid if several values of
	// nameFrom.label give the same name.
	ReasonCollidingNames = "CollidingNames"
	// ReasonTooManyNames is the reason of ConditionQueriesValid if a result has more names
	// than nameFrom.limit.
	ReasonTooManyNames = "TooManyNames"
)

// ScoringPolicyStatus summarizes the last round. The values of each cluster are
// available as metrics and in AddOnPlacementScores.
type ScoringPolicyStatus struct {
	// Conditions of the policy: Ready, QueriesValid, DataFresh and Published. True is
	// the good state of each.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Generation of the spec that the status refers to.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Source of the last round: the name of the MetricsSource, and a hash of its settings
	// that change responses. After a change, the queries must match a cluster again. At
	// most 320 characters.
	// +optional
	// +kubebuilder:validation:MaxLength=320
	Source string `json:"source,omitempty"`
	// Label of series that holds the cluster, as the source of the last round had it. It
	// replaces $cluster_label in the queries while the source does not exist. At most 253
	// characters.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ClusterLabel string `json:"clusterLabel,omitempty"`
	// Settings that probably have an unwanted effect. At most 8, each of at most 512
	// characters.
	// +optional
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=512
	Warnings []string `json:"warnings,omitempty"`
	// Summary of the last round.
	// +optional
	LastRound *RoundStatus `json:"lastRound,omitempty"`
	// Queries of the last round, one entry per score, and one named "(freshness)" if
	// the policy has a freshness query.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=33
	Scores []ScoreStatus `json:"scores,omitempty"`
}

// RoundStatus counts the clusters of a round. Each cluster counts once, by its worst
// score. Clusters with a fixed value count in clusters only.
type RoundStatus struct {
	// Time at which the round started.
	Time metav1.Time `json:"time"`
	// Duration of the round in milliseconds, from the first query to the last write.
	DurationMilliseconds int64 `json:"durationMilliseconds"`
	// Number of clusters that the policy selects.
	Clusters int32 `json:"clusters"`
	// Number of clusters with a fresh value in every score.
	Scored int32 `json:"scored"`
	// Number of clusters with a kept score, and none worse.
	Kept int32 `json:"kept"`
	// Number of clusters with a missing value that is published as -100.
	Worst int32 `json:"worst"`
	// Number of clusters with a missing value that is not published.
	Omitted int32 `json:"omitted"`
	// Number of clusters without a series for some score, which missing.absent accepts,
	// and with a fresh value in every other score.
	// +optional
	Absent int32 `json:"absent"`
}

// ScoreStatus describes one query of the last round.
type ScoreStatus struct {
	// Name of the score, or "(freshness)".
	Name string `json:"name"`
	// Names of the scores, if nameFrom makes them from the result.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	Names []string `json:"names,omitempty"`
	// PromQL query as sent. At most 8192 characters.
	// +optional
	// +kubebuilder:validation:MaxLength=8192
	Query string `json:"query,omitempty"`
	// True if the query has not matched any cluster of the source yet. Nothing is
	// published for it.
	// +optional
	Unmatched bool `json:"unmatched,omitempty"`
	// Duration of the query in milliseconds, including retries.
	// +optional
	DurationMilliseconds int64 `json:"durationMilliseconds,omitempty"`
	// Number of series in the response.
	// +optional
	Series int32 `json:"series,omitempty"`
	// Warnings of the source and of the mapping to clusters. At most 8, each of at most
	// 512 characters.
	// +optional
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=512
	Warnings []string `json:"warnings,omitempty"`
	// Parse error or failure of the query. Empty if the query succeeded. At most 1024
	// characters.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Error string `json:"error,omitempty"`
}
