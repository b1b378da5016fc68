package reclaim

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// maxRefused is the number of refused writes that the status can hold.
const maxRefused = 100

// IsRefused reports whether the API server refused the last write to the workload within the hour.
// Without this pause, a workload that an admission policy protects would be the first of each round,
// and nothing else of its group would be reclaimed.
func (c *Candidate) IsRefused(now time.Time) bool {
	return !c.RefusedAt.IsZero() && now.Sub(c.RefusedAt) < Window
}

// ApplyRefused sets RefusedAt of the candidates, and returns the refused writes without those to other
// workloads.
func ApplyRefused(refused []v1alpha1.RefusedWrite, candidates []*Candidate) []v1alpha1.RefusedWrite {
	byUID := map[string]*Candidate{}
	for _, c := range candidates {
		byUID[c.UID] = c
	}
	var kept []v1alpha1.RefusedWrite
	for _, w := range refused {
		if c := byUID[w.UID]; c != nil {
			c.RefusedAt = w.Time.Time
			kept = append(kept, w)
		}
	}
	return kept
}

// AppendRefused returns the refused writes with one to a candidate. It replaces an earlier one, and the
// oldest if there are too many.
func AppendRefused(refused []v1alpha1.RefusedWrite, c *Candidate, now time.Time) []v1alpha1.RefusedWrite {
	refused = slices.DeleteFunc(slices.Clone(refused), func(w v1alpha1.RefusedWrite) bool { return w.UID == c.UID })
	refused = append(refused, v1alpha1.RefusedWrite{Time: metav1.NewTime(now).Rfc3339Copy(), Namespace: c.Namespace, Name: c.Name, UID: c.UID})
	return refused[max(0, len(refused)-maxRefused):]
}
