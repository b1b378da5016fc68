package world

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// LastPlanned is the time of the last arrival, fault, or end of one.
func (s *Spec) LastPlanned() time.Duration {
	last := time.Duration(0)
	for _, j := range s.Jobs {
		last = max(last, j.At)
	}
	for _, f := range s.Faults {
		last = max(last, f.At+f.Lasts)
	}
	return last
}

// complete sets the defaults of a spec.
func complete(spec Spec) Spec {
	spec.Clusters, spec.Queues, spec.Jobs = slices.Clone(spec.Clusters), slices.Clone(spec.Queues), slices.Clone(spec.Jobs)
	s := &spec.Settings
	s.ScrapeInterval = cmp.Or(s.ScrapeInterval, 15*time.Second)
	s.WatchDelay = cmp.Or(s.WatchDelay, 400*time.Millisecond)
	s.WorkerQPS = cmp.Or(s.WorkerQPS, 5)
	s.WorkerLostTimeout = cmp.Or(s.WorkerLostTimeout, 15*time.Minute)
	s.HubPodsReadyTimeout = cmp.Or(s.HubPodsReadyTimeout, 30*time.Minute)
	s.QueryTime = cmp.Or(s.QueryTime, 50*time.Millisecond)
	s.OtherCheckDelay = cmp.Or(s.OtherCheckDelay, 5*time.Second)
	s.Length = cmp.Or(s.Length, 4*time.Hour)
	s.CheckInterval = cmp.Or(s.CheckInterval, checkInterval)
	total := map[string]int64{}
	for i := range spec.Clusters {
		c := &spec.Clusters[i]
		c.PodsReadyTimeout = cmp.Or(c.PodsReadyTimeout, 30*time.Minute)
		c.Pools = slices.Clone(c.Pools)
		for k := range c.Pools {
			p := &c.Pools[k]
			p.Resource, p.Model = cmp.Or(p.Resource, defaultResource), cmp.Or(p.Model, defaultModel)
			total[p.Model] += p.Devices * int64(max(p.Nodes, p.Max))
		}
	}
	if len(spec.Queues) == 0 {
		spec.Queues = []Queue{{Name: gateName}}
	}
	for i := range spec.Queues {
		if spec.Queues[i].Nominal == nil {
			spec.Queues[i].Nominal = maps.Clone(total)
		}
	}
	for i := range spec.Jobs {
		j := &spec.Jobs[i]
		j.Namespace, j.Queue, j.Kind = cmp.Or(j.Namespace, defaultTenant), cmp.Or(j.Queue, gateName), cmp.Or(j.Kind, KindJob)
		j.Resource, j.Pods, j.Devices = cmp.Or(j.Resource, defaultResource), cmp.Or(j.Pods, 1), cmp.Or(j.Devices, 1)
	}
	return spec
}

// Defaults of pools and jobs.
const (
	defaultResource = "nvidia.com/gpu"
	defaultModel    = "NVIDIA-H100-80GB-HBM3"
)
