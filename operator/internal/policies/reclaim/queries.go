package reclaim

import (
	"cmp"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// Labels of the samples of the idle query.
const (
	LabelNamespace = "namespace"
	LabelOwnerKind = "owner_kind"
	LabelOwnerName = "owner_name"
	LabelNode      = "node"
	LabelUUID      = "uuid"
)

// DeviceLabels returns the labels that a sample of the idle query must have, in addition to that of the
// cluster.
func DeviceLabels() []string {
	return []string{LabelNamespace, LabelOwnerKind, LabelOwnerName, LabelNode, LabelUUID}
}

// Default queries, over the shipped recording rules. The rule for idle devices keeps the last
// value while an exporter is silent, so the query also demands a low utilization now. An exporter
// whose collections fail may serve the utilization of an earlier one, so the node must be trusted,
// too. The query returns one sample per device: replicas of Prometheus may return several series for
// one device.
const (
	defaultIdleQuery = `min by ($cluster_label, namespace, owner_kind, owner_name, node, uuid) (` +
		`(time() - device:plimsoll_idle_since_timestamp_seconds:min)` +
		` and on ($cluster_label, node, uuid) (max by ($cluster_label, node, uuid) (device:plimsoll_utilization:ratio) < 0.01)` +
		` and on ($cluster_label, node) node:plimsoll_sample_timestamp_seconds:trusted)`
	defaultFreshnessQuery = `time() - min by ($cluster_label) (cluster:plimsoll_device_sample_timestamp_seconds:min)`

	// The time of the samples passes through the groups plimsoll-nodes, plimsoll-holders or
	// plimsoll-devices, and plimsoll-device-jobs, each of which may read a result that is one
	// interval old: three of Prometheus' default of 1m, and 60 s for the samples.
	defaultMaxAgeSeconds = 240
	// That of a query of the policy's own, as in the CRD.
	maxAgeSecondsOfQuery = 120
)

// IdleQueryOf returns the query for the idle time of devices.
func IdleQueryOf(spec *v1alpha1.ReclaimPolicySpec) string {
	return cmp.Or(spec.IdleQuery, defaultIdleQuery)
}

// FreshnessOf returns the limit of the age of samples.
func FreshnessOf(spec *v1alpha1.ReclaimPolicySpec) v1alpha1.Freshness {
	var f v1alpha1.Freshness
	if spec.Freshness != nil {
		f = *spec.Freshness
	}
	if f.Query == "" {
		return v1alpha1.Freshness{Query: defaultFreshnessQuery, MaxAgeSeconds: cmp.Or(f.MaxAgeSeconds, defaultMaxAgeSeconds)}
	}
	return v1alpha1.Freshness{Query: f.Query, MaxAgeSeconds: cmp.Or(f.MaxAgeSeconds, maxAgeSecondsOfQuery)}
}
