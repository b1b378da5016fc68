package dispatch

import (
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// Preference is for or against sending the workload to a cluster.
type Preference struct {
	Cluster string `json:"cluster"`
	// Avoid: the workload does not go there. Otherwise it was sent there, so that a copy of it may be there.
	Avoid bool `json:"avoid,omitempty"`
	// IfOther limits Avoid to the time while another cluster could hold the workload.
	IfOther bool `json:"ifOther,omitempty"`
	// Until is when the preference ends. Zero means never.
	Until time.Time `json:"until,omitzero"`
	// Why the cluster is avoided, as in "was left for team-a/big".
	Why string `json:"why,omitempty"`
}

// maxAvoidance is the longest time for which a workload avoids a cluster. Users may write the record.
const maxAvoidance = timing.StartAvoidance + timing.MaxClockSkew

// isActive reports whether the preference applies now.
func (p Preference) isActive(now time.Time) bool {
	return !p.Avoid || now.Before(p.Until) && p.Until.Sub(now) <= maxAvoidance
}

// Sent are the clusters that any attempt was sent to.
func (r Record) Sent() []string {
	var clusters []string
	for _, p := range r.Preferences {
		if !p.Avoid {
			clusters = append(clusters, p.Cluster)
		}
	}
	return clusters
}

// Avoided are the clusters that the workload avoids now, with the reasons.
func (r Record) Avoided(now time.Time) []Preference {
	return slices.DeleteFunc(slices.Clone(r.Preferences), func(p Preference) bool { return !p.Avoid || !p.isActive(now) })
}

// withSent returns the preferences with clusters that the workload is sent to.
func (r Record) withSent(clusters []string) []Preference {
	list := slices.Clone(r.Preferences)
	for _, c := range without(clusters, r.Sent()) {
		list = append(list, Preference{Cluster: c})
	}
	return list
}

// Avoid records that the workload avoids a cluster. It replaces an earlier record of that.
func (r Record) Avoid(cluster string, until time.Time, why string) Record {
	return r.avoid(Preference{Cluster: cluster, Until: until, Why: why})
}

// AvoidIfOther records that the workload avoids a cluster while another one could hold it. It replaces an earlier
// record of that.
func (r Record) AvoidIfOther(cluster string, until time.Time, why string) Record {
	return r.avoid(Preference{Cluster: cluster, Until: until, Why: why, IfOther: true})
}

func (r Record) avoid(p Preference) Record {
	p.Avoid, p.Until = true, timestamp(p.Until)
	r.Preferences = slices.DeleteFunc(slices.Clone(r.Preferences), func(other Preference) bool {
		return other.Avoid && other.Cluster == p.Cluster && other.IfOther == p.IfOther
	})
	r.Preferences = append(r.Preferences, p)
	return r
}

// active are the preferences that apply now.
func active(list []Preference, now time.Time) []Preference {
	return slices.DeleteFunc(list, func(p Preference) bool { return !p.isActive(now) })
}
