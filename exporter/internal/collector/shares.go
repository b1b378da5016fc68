package collector

import (
	"math"
	"slices"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// share is the part of a device that a series describes: a holder, a replica and a job.
// Each is empty if the device has none.
type share struct {
	holder    *podmap.Holder
	vgpu, job string
	claim     []label // labels of the resource claim of the holder
}

// sharesOf returns the shares of a device, at least one. Each replica has its own share
// if virtual GPUs are enabled. Each job outside of Kubernetes is combined with each
// holder. Shares above the limit of the device are left out.
func (r *renderer) sharesOf(d *deviceSnapshot, holders []podmap.Holder) []share {
	var shares []share
	for _, h := range holders {
		var replicas []string
		for _, name := range d.device.Names() {
			replicas = append(replicas, r.snapshot.pods.Replicas[name][h]...)
		}
		if !r.labels.VirtualGPUs || len(replicas) == 0 {
			replicas = []string{""}
		}
		slices.Sort(replicas)
		for _, vgpu := range replicas {
			shares = append(shares, share{holder: &h, vgpu: vgpu, claim: claimLabels(d.device, h, r.snapshot.pods)})
		}
	}
	if len(shares) == 0 {
		shares = []share{{}}
	}
	if len(d.jobs) > 0 {
		var withJobs []share
		for _, s := range shares {
			for _, job := range d.jobs {
				withJobs = append(withJobs, share{s.holder, s.vgpu, job, s.claim})
			}
		}
		shares = withJobs
	}
	if d.shareLimit > 0 && len(shares) > d.shareLimit {
		shares = shares[:d.shareLimit]
	}
	return shares
}

// portionsByProcess returns the portions of a field that the processes of each pod use. It is
// nil unless virtual GPUs are enabled, the processes are known, and dcgm-exporter divides the
// field: used memory and utilization.
func (r *renderer) portionsByProcess(d *deviceSnapshot, f device.Field) map[podName]float64 {
	switch {
	case !r.labels.VirtualGPUs:
		return nil
	case f == device.FBUsed:
		return d.usage.byProcess.memory
	case f == device.GPUUtil:
		return d.usage.byProcess.time
	}
	return nil
}

// renderVirtual writes a field whose value the pods of a device divide, as dcgm-exporter does
// since 4.8.2: a series of the device without a pod, and one for each share with the value of
// its pod, which is 0 for an idle pod. They have the UID of the pod.
func (r *renderer) renderVirtual(d *deviceSnapshot, f dcgmField, v float64, shares []share, portions map[podName]float64) {
	r.families.addSeries(f.name, f.kind, f.help, formatLabels(r.dcgmLabels(d, nil, nil)), f.export(v))
	for _, s := range shares {
		pod := podName{s.holder.Namespace, s.holder.Pod}
		var uid []label
		if meta, ok := r.snapshot.podMeta[pod]; ok {
			uid = []label{{"pod_uid", meta.UID}}
		}
		labels := formatLabels(r.dcgmLabels(d, nil, r.attributes(s, uid)))
		value := math.Round(v*portions[pod]*1e6) / 1e6 // a whole number of MiB must not become less
		r.families.addSeries(f.name, f.kind, f.help, labels, f.export(value))
	}
}

// combineHolders returns a share for each job, with the fields that all holders of the
// device have in common. Quantities have a series for each of these shares: like
// dcgm-exporter, the exporter repeats every metric for each job. If shares were left out,
// their holders are not known here, so no holder is common to all.
func combineHolders(shares []share, isComplete bool) (combined []share) {
	byJob := map[string][]share{}
	for _, s := range shares {
		byJob[s.job] = append(byJob[s.job], s)
	}
	for _, job := range sortedKeys(byJob) {
		common := share{job: job}
		if isComplete {
			common = commonShare(byJob[job])
		}
		combined = append(combined, common)
	}
	return combined
}

// commonShare returns the fields that all shares have in common. There is at least one.
func commonShare(shares []share) share {
	common := shares[0]
	for _, s := range shares[1:] {
		if s.vgpu != common.vgpu {
			common.vgpu = ""
		}
		if !slices.Equal(s.claim, common.claim) {
			common.claim = nil
		}
		switch {
		case common.holder == nil || s.holder == nil || common.holder.Namespace != s.holder.Namespace || common.holder.Pod != s.holder.Pod:
			common.holder = nil
		case common.holder.Container != s.holder.Container:
			common.holder = &podmap.Holder{Namespace: s.holder.Namespace, Pod: s.holder.Pod}
		}
	}
	return common
}

// claimLabels returns dcgm-exporter's labels of the claim through which a container
// holds a device.
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

// holdersOf returns the distinct holders of the parts of a GPU instance.
func holdersOf(parts []*deviceSnapshot) (holders []podmap.Holder) {
	for _, part := range parts {
		for _, h := range part.holders {
			if !slices.Contains(holders, h) {
				holders = append(holders, h)
			}
		}
	}
	return holders
}
