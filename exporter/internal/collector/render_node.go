package collector

import (
	"errors"
	"slices"
	"strings"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// renderNode counts the node's devices by resource and model. Without the
// kubelet's word nothing is known to be free, and the counts are absent.
func (c *Collector) renderNode(p page, devices []device.Device, pods podmap.Map, held map[string][]podmap.Holder, podErr error) {
	if podErr != nil {
		p.own(mappedDevices, 0, c.cfg.Node)
		reason := "kubelet does not answer"
		if errors.Is(podErr, podmap.ErrNotAsked) {
			reason = "kubelet is not asked"
		}
		p.own(unmapped, float64(len(devices)), c.cfg.Node, reason)
		return
	}
	if pods.Uncounted {
		p.own(mappedDevices, float64(len(held)), c.cfg.Node)
		p.own(unmapped, float64(len(devices)-len(held)), c.cfg.Node, "kubelet does not tell what is allocatable")
		return
	}
	n := newCensus()
	for _, d := range devices {
		n.count(c.known[d.UUID], pods, len(held[d.UUID]) > 0)
	}
	missing := n.miss(pods, devices)
	for g, states := range n.counts {
		for state, count := range states {
			p.own(nodeDevices, count, c.cfg.Node, g.resource, g.model, state)
		}
		if n.linked[g] {
			p.own(largestFree, float64(largestGroup(n.free[g])), c.cfg.Node, g.resource, g.model)
		}
	}
	for s, count := range n.slices {
		p.own(freeSlices, count, c.cfg.Node, s.model, s.profile)
	}
	for _, name := range []string{nodeDevices.name, largestFree.name, freeSlices.name} {
		if f := p[name]; f != nil {
			slices.SortFunc(f.series, func(a, b series) int { return strings.Compare(string(a.labels), string(b.labels)) })
		}
	}
	p.own(mappedDevices, n.mapped, c.cfg.Node)
	if n.absent > 0 {
		p.own(unmapped, n.absent, c.cfg.Node, "not allocatable by the kubelet")
	}
	if missing > 0 {
		p.own(unmapped, missing, c.cfg.Node, "allocatable, but not there")
	}
	if gone := strangers(pods, devices); gone > 0 {
		p.own(unmapped, gone, c.cfg.Node, "held, but not there")
	}
	for reason, count := range pods.Unmapped {
		p.own(unmapped, float64(count), c.cfg.Node, reason)
	}
}
