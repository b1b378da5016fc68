package lifecycle

import (
	"maps"
	"slices"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// A job with kueue.x-k8s.io/job-min-parallelism may request any number of pods and run with one. Kueue
// on the worker admits as many as it has quota for, and MultiKueue does not write the number on the hub.
// The gate derives it from the quota with which it decided.

// admittedPods returns for each cluster of a decision with how many pods Kueue there admits the
// workload. A cluster is missing if its quota is not known. The result is nil for a workload that
// starts all pods.
func (r Request) admittedPods(d gate.Decision) map[string]int64 {
	i := slices.IndexFunc(r.Facts.PodSets, permitsPart)
	if i < 0 {
		return nil
	}
	pods := map[string]int64{}
	for _, v := range d.Verdicts {
		if n, ok := v.AdmittedPods(r.Facts.PodSets[i]); ok {
			pods[v.Cluster] = n
		}
	}
	return pods
}

func permitsPart(p shape.PodSet) bool { return p.MinPods > 0 }

// withPods returns pod sets of which the one that permits a part starts n pods.
func withPods(sets []shape.PodSet, n int64) []shape.PodSet {
	sets = slices.Clone(sets)
	for i := range sets {
		if permitsPart(sets[i]) {
			sets[i].Pods = min(max(n, sets[i].MinPods), sets[i].Pods)
		}
	}
	return sets
}

// entryOf a decision reserves the pods that the cluster admits, or all of them if their number is not
// known.
func entryOf(s *Situation, d gate.Decision, cluster string) ledger.Entry {
	e := s.Entry(cluster, s.Now)
	if n, ok := s.Request.admittedPods(d)[cluster]; ok {
		e.PodSets = withPods(e.PodSets, n)
	}
	return e
}

// AdmittedEntry is the entry of the ledger for a workload that a cluster has admitted. If the number of
// its pods is not known, it has the minimum: samples show the pods soon, and the workload certainly
// returns no more devices than these.
func (s *Situation) AdmittedEntry(cluster string, at time.Time) ledger.Entry {
	e := s.Entry(cluster, at)
	e.PodSets = withPods(e.PodSets, s.History.admittedPods[cluster])
	return e
}

// withAdmittedPods adds what a decision showed for each cluster, which replaces that of earlier ones.
func (h History) withAdmittedPods(pods map[string]int64) History {
	if len(pods) > 0 {
		h.admittedPods = maps.Clone(h.admittedPods)
		if h.admittedPods == nil {
			h.admittedPods = map[string]int64{}
		}
		maps.Copy(h.admittedPods, pods)
	}
	return h
}
