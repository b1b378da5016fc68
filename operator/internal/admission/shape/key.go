package shape

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// EquivalenceKey returns the same key for workloads that the same clusters can take: equal Vars
// for all pod sets, equal Remote, Preempts and Reclaims, and the same References.
func (f Facts) EquivalenceKey() string {
	key := make([]byte, 0, 256)
	for _, s := range []string{f.Namespace, f.Queue, f.ClusterQueue} {
		key = strconv.AppendQuote(key, s)
	}
	for _, b := range []bool{f.Remote, f.Preempts, f.Reclaims} {
		key = strconv.AppendBool(key, b)
	}
	for _, p := range f.PodSets {
		key = append(key, '/')
		for _, s := range []string{p.Flavor, p.Resource, p.Model, p.RequiredTopology} {
			key = strconv.AppendQuote(key, s)
		}
		key = strconv.AppendInt(key, p.DevicesPerPod, 10)
		key = strconv.AppendInt(append(key, 'x'), p.Pods, 10)
		key = strconv.AppendInt(append(key, '>'), p.MinPods, 10)
		key = strconv.AppendInt(append(key, 'c'), p.Requests.MilliCPU, 10)
		key = strconv.AppendInt(append(key, 'm'), p.Requests.Memory, 10)
		for _, l := range p.NodeLabels {
			key = fmt.Appendf(key, "l%q%q", l.Key, l.Values)
		}
		for _, t := range p.Tolerations {
			key = fmt.Appendf(key, "t%q%q%q%t", t.Key, t.Value, t.Effect, t.AnyValue)
		}
		key = p.Profile.appendKey(p.Share.appendKey(key))
		key = appendLabels(append(key, 'f'), p.FlavorLabels)
		key = appendLabels(append(key, 'n'), p.NodeSelector)
		key = appendLabels(append(key, 'a'), p.Labels)
	}
	for _, r := range f.References {
		key = strconv.AppendQuote(strconv.AppendQuote(append(key, 'r'), string(r.Kind)), r.Name)
	}
	return string(key)
}

func appendLabels(key []byte, labels map[string]string) []byte {
	if len(labels) == 0 {
		return key
	}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		key = strconv.AppendQuote(strconv.AppendQuote(key, name), labels[name])
	}
	return key
}
