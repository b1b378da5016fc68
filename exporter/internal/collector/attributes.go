package collector

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// Pods are what the API server says of the node's pods.
type Pods interface {
	// Pod by its name; false where it is not known.
	Pod(namespace, name string) (podmap.Meta, bool)
	// Reachable tells whether the API server answered when it was last asked.
	Reachable() bool
}

var notInLabel = regexp.MustCompile(`[^a-zA-Z0-9_]`)

// seat is what one series of a device is of: one holder, one replica and one job, as
// far as there are such.
type seat struct {
	holder    *podmap.Holder
	vgpu, job string
	claim     []label // through which the holder has it
}

// seats of a device. Replicas have one each where virtual GPUs are asked for, and a
// job outside of Kubernetes has one beside every holder.
func (c *Collector) seats(d device.Device, whom []podmap.Holder, pods podmap.Map) []seat {
	var out []seat
	for _, h := range whom {
		var replicas []string
		for _, name := range d.Names() {
			replicas = append(replicas, pods.Replicas[name][h]...)
		}
		if !c.cfg.Labels.VirtualGPUs || len(replicas) == 0 {
			replicas = []string{""}
		}
		slices.Sort(replicas)
		for _, vgpu := range replicas {
			out = append(out, seat{holder: &h, vgpu: vgpu, claim: claimLabels(d, h, pods)})
		}
	}
	var jobs []string
	if c.cfg.Jobs != nil {
		jobs = c.cfg.Jobs(d)
	}
	if len(jobs) == 0 {
		return out
	}
	if len(out) == 0 {
		out = []seat{{}}
	}
	var both []seat
	for _, s := range out {
		for _, job := range jobs {
			both = append(both, seat{s.holder, s.vgpu, job, s.claim})
		}
	}
	return both
}

// claimLabels are dcgm-exporter's of the claim through which a holder has a device.
func claimLabels(d device.Device, h podmap.Holder, pods podmap.Map) []label {
	for _, name := range d.Names() {
		c, ok := pods.Claimed[name][h]
		if !ok {
			continue
		}
		labels := []label{{"dra_claim_name", c.Name}, {"dra_claim_namespace", c.Namespace}, {"dra_driver_name", c.Driver}, {"dra_pool_name", c.Pool}, {"dra_device_name", c.Device}}
		if i := d.Instance; i != nil {
			labels = append(labels, label{"dra_mig_profile", i.Profile}, label{"dra_mig_device_uuid", d.UUID})
		}
		return labels
	}
	return nil
}

// common to all seats of a device: what stands once is of the pod, container and job
// that they share, as far as they do.
func common(seats []seat) seat {
	all := seats[0]
	for _, s := range seats[1:] {
		if s.vgpu != all.vgpu {
			all.vgpu = ""
		}
		if s.job != all.job {
			all.job = ""
		}
		if !slices.Equal(s.claim, all.claim) {
			all.claim = nil
		}
		switch {
		case all.holder == nil || s.holder == nil || all.holder.Namespace != s.holder.Namespace || all.holder.Pod != s.holder.Pod:
			all.holder = nil
		case all.holder.Container != s.holder.Container:
			all.holder = &podmap.Holder{Namespace: s.holder.Namespace, Pod: s.holder.Pod}
		}
	}
	return all
}

// attributes of a series with those of its metric, sorted by name as dcgm-exporter's are. A pod label whose
// name is taken already is left out.
func (c *Collector) attributes(s seat, more []label) []label {
	values := map[string]string{}
	for _, l := range slices.Concat(more, s.claim) {
		values[l.name] = l.value
	}
	if s.vgpu != "" {
		values["vgpu"] = s.vgpu
	}
	if s.job != "" {
		values["hpc_job"] = s.job
	}
	if h := s.holder; h != nil {
		names := []string{"container", "namespace", "pod"}
		if c.cfg.Labels.OldNamespace {
			names = []string{"container_name", "pod_namespace", "pod_name"}
		}
		for i, value := range []string{h.Container, h.Namespace, h.Pod} {
			if value != "" {
				values[names[i]] = value
			}
		}
		if c.cfg.Pods != nil {
			c.describe(values, *h)
		}
	}
	var out []label
	for _, name := range slices.Sorted(maps.Keys(values)) {
		out = append(out, label{name, values[name]})
	}
	return out
}

// describe adds what was asked for of the pod's metadata.
func (c *Collector) describe(values map[string]string, h podmap.Holder) {
	meta, ok := c.cfg.Pods.Pod(h.Namespace, h.Pod)
	if !ok {
		return
	}
	if c.cfg.Labels.PodUID {
		values["pod_uid"] = meta.UID
	}
	if c.cfg.Labels.PodLabel == nil {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(meta.Labels)) {
		name := notInLabel.ReplaceAllString(key, "_")
		if name[0] >= '0' && name[0] <= '9' {
			name = "_" + name
		}
		_, taken := values[name]
		if !taken && !reserved(name) && c.cfg.Labels.PodLabel(key) {
			values[name] = meta.Labels[key]
		}
	}
}

// reserved names are those of labels that some series has by itself: Prometheus
// refuses a scrape in which a series has a label twice.
func reserved(name string) bool {
	return slices.Contains(instanceLabels, name) || slices.Contains([]string{"hostname", "uuid", "err_code", "err_msg", "window_size_in_ms"}, name) ||
		slices.ContainsFunc(labelFields, func(l labelField) bool { return l.name == name }) ||
		slices.ContainsFunc(countedEvents, func(e counted) bool { return e.label == name })
}

// renderPods names the owner of each pod that holds a device.
func (c *Collector) renderPods(p page, held map[string][]podmap.Holder) {
	if c.cfg.Pods == nil {
		return
	}
	p.own(apiReachable, flag(c.cfg.Pods.Reachable()), c.cfg.Node)
	if !c.cfg.Owners {
		return
	}
	holding := map[pod]bool{}
	for _, holders := range held {
		for _, h := range holders {
			holding[pod{h.Namespace, h.Pod}] = true
		}
	}
	for _, one := range slices.SortedFunc(maps.Keys(holding), pod.compare) {
		if meta, ok := c.cfg.Pods.Pod(one.namespace, one.name); ok && meta.OwnerKind != "" {
			p.own(podOwner, 1, c.cfg.Node, one.namespace, one.name, meta.UID, meta.OwnerKind, meta.OwnerName)
		}
	}
}

// Allowlist of pod labels by patterns, any of which must be found in a label's key;
// without a pattern every label is on it.
func Allowlist(patterns []string) (func(key string) bool, error) {
	var all []*regexp.Regexp
	for _, pattern := range patterns {
		if strings.TrimSpace(pattern) == "" {
			continue
		}
		r, err := regexp.Compile(pattern)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return func(key string) bool {
		return len(all) == 0 || slices.ContainsFunc(all, func(r *regexp.Regexp) bool { return r.MatchString(key) })
	}, nil
}
