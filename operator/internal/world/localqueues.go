package world

import (
	"math/rand/v2"
	"slices"

	"plimsoll.dev/plimsoll/operator/internal/world/metrics"
)

// reportedQueues are the LocalQueues of a worker that kube-state-metrics reports, in the namespaces of all jobs.
func (c *Cluster) reportedQueues(s *Spec) (list []metrics.Object) {
	if len(c.LocalQueues) == 0 {
		return nil
	}
	namespaces := map[string]bool{}
	for i := range s.Jobs {
		if namespace := s.Jobs[i].Namespace; !namespaces[namespace] {
			namespaces[namespace] = true
			for k := range s.Queues {
				name := s.Queues[k].Name
				list = append(list, metrics.Object{Kind: metrics.KindLocalQueue, Namespace: namespace, Name: name, ClusterQueue: (&quota{localQueues: c.LocalQueues}).of(name)})
			}
		}
	}
	return list
}

// makeLocalQueues gives some workers ClusterQueues with other names than the hub's: one for each queue of the hub, or
// one for all.
func makeLocalQueues(s *Spec) {
	g := generator{rand.New(rand.NewPCG(s.Seed, 0x6c6f6361))} // of its own, so that the rest of a seed's world stays the same
	if !g.chance(.1) {
		return
	}
	for i := range s.Clusters {
		c := &s.Clusters[i]
		if !g.chance(.7) {
			continue
		}
		isOne := g.chance(.5) && !slices.ContainsFunc(s.Queues, func(q Queue) bool { return q.AnyModel })
		c.LocalQueues = map[string]string{}
		for k := range s.Queues {
			if c.LocalQueues[s.Queues[k].Name] = "devices"; !isOne {
				c.LocalQueues[s.Queues[k].Name] += "-" + s.Queues[k].Name
			}
		}
	}
}
