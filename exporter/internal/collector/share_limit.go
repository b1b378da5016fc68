package collector

import (
	"slices"

	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// maxShares is the number of shares of all devices of a node that have series of their
// own. A share has about 30 series. A kubelet runs 110 pods by default.
const maxShares = 1000

// limitShares limits the shares with series of their own if the node has more than
// maxShares. Every device keeps the same number of shares, the first ones by name, so that
// the same shares keep their series. The accounting of a device covers all of its holders.
func (s *snapshot) limitShares(virtualGPUs bool) {
	total, shared := 0, 0
	for _, d := range s.devices {
		n := s.numberOfShares(d, virtualGPUs)
		total += n
		shared += int(boolValue(n > 0))
	}
	if total <= maxShares {
		return
	}
	limit := max(1, maxShares/shared)
	for _, d := range s.devices {
		omitted := s.numberOfShares(d, virtualGPUs) - limit
		if omitted <= 0 {
			continue
		}
		s.omittedShares += omitted
		d.shareLimit = limit
		d.holders = slices.SortedFunc(slices.Values(d.allHolders), podmap.Holder.Compare)
		d.holders = d.holders[:min(limit, len(d.holders))]
	}
}

// numberOfShares returns the number of shares of a device.
func (s *snapshot) numberOfShares(d *deviceSnapshot, virtualGPUs bool) (n int) {
	for _, h := range d.holders {
		replicas := 1
		for _, name := range d.device.Names() {
			if virtualGPUs {
				replicas = max(replicas, len(s.pods.Replicas[name][h]))
			}
		}
		n += replicas
	}
	if len(d.jobs) > 0 {
		return max(n, 1) * len(d.jobs)
	}
	return n
}

// podsWithSeries returns the pods of a GPU instance that have series of their own, or nil
// if every pod has.
func podsWithSeries(parts []*deviceSnapshot) map[podName]bool {
	if !slices.ContainsFunc(parts, func(d *deviceSnapshot) bool { return d.shareLimit > 0 }) {
		return nil
	}
	pods := map[podName]bool{}
	for _, h := range holdersOf(parts) {
		pods[podName{h.Namespace, h.Pod}] = true
	}
	return pods
}
