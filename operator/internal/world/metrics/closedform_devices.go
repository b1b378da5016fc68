package metrics

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

const (
	// idleUtilization is the utilization below which a device is idle.
	idleUtilization = 0.01
	// unmeasuredAge is the age of a report in seconds after which idle times begin again.
	unmeasuredAge = 600
)

// deviceData is what the exporter of a node exports about one device.
type deviceData struct {
	uuid        string
	utilization float64
	// holder is the pod that has the device; nil = none.
	holder *podData
}

// podData is a pod that holds devices. The exporter may know its topmost controller.
type podData struct {
	namespace, name      string
	ownerKind, ownerName string // empty = the exporter runs without owners
}

type podName struct{ namespace, name string }

// owner are the labels of a pod's topmost controller.
type podOwner struct{ kind, name string }

// heldDevice is a device with the pod that has it.
type heldDevice struct {
	node, model, uuid string
	pod               podName
	owner             podOwner
}

func (d *heldDevice) labels() []string {
	return []string{"node", d.node, "model", d.model, "uuid", d.uuid, "namespace", d.pod.namespace, "pod", d.pod.name, "owner_kind", d.owner.kind, "owner_name", d.owner.name}
}

func compareHeld(a, b heldDevice) int {
	return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.uuid, b.uuid), cmp.Compare(a.pod.namespace, b.pod.namespace), cmp.Compare(a.pod.name, b.pod.name))
}

// devicesOf are the devices of a node with their holders, in the order in which exportNode assigns them.
func (s *Store) devicesOf(snap *Snapshot, n *Node, pods []*Pod) []deviceData {
	ids := s.deviceIDs(snap.Cluster, n.Name, max(n.Devices, 0))
	list := make([]deviceData, len(ids))
	for i, id := range ids {
		list[i].uuid = id
	}
	next := 0
	for _, p := range pods {
		if !p.holdsDevices() || n.KubeletDown {
			continue
		}
		holder := &podData{namespace: p.Namespace, name: p.Name}
		if !n.NoOwners {
			holder.ownerKind, holder.ownerName = owner(p)
		}
		for range p.Devices {
			if next < len(list) {
				list[next].holder, list[next].utilization = holder, reportedUtilization(n, p.Utilization)
				next++
			}
		}
	}
	return list
}

// reportedUtilization is what the rules record. The metric of NVIDIA's devices has whole percents.
func reportedUtilization(n *Node, utilization float64) float64 {
	if !isNVIDIA(n) {
		return utilization
	}
	return math.Round(100*utilization) / 100
}

// ownerModel are the devices of one model that the pods of an owner hold.
type ownerModel struct {
	namespace, model string
	owner            podOwner
}

func compareOwnerModels(a, b ownerModel) int {
	return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.owner.kind, b.owner.kind), cmp.Compare(a.owner.name, b.owner.name), cmp.Compare(a.model, b.model))
}

// use is the number of devices, and the sum of their utilizations.
type use struct{ devices, utilization float64 }

// evaluateDevices records the results of the rules about single devices and owners that ReclaimPolicies and JobProfiles read.
func (c *clusterState) evaluateDevices(e *export, exporters map[string]exporterData) {
	kube := c.kube.visible(e.at).data
	if e.at-c.evaluatedAt >= lookback {
		c.idleSince = nil
	}
	before := c.idleSince
	c.idleSince = map[heldDevice]float64{}
	measured := map[[2]string]bool{} // devices by node and uuid
	used := map[ownerModel]*use{}
	for _, node := range slices.Sorted(maps.Keys(exporters)) {
		x := exporters[node]
		if x.hasDevices {
			e.add("node_resource_model_state:plimsoll_devices:min", x.unhealthy, "node", node, "resource", x.resource, "model", x.model, "state", "unhealthy")
		}
		for i := range x.devices {
			d := &x.devices[i]
			measured[[2]string{node, d.uuid}] = true
			e.add("device:plimsoll_utilization:ratio", d.utilization, "node", node, "model", x.model, "uuid", d.uuid)
			if d.holder == nil {
				continue
			}
			held := heldDevice{node, x.model, d.uuid, podName{d.holder.namespace, d.holder.name}, kube.ownerOf(d.holder)}
			e.add("device:plimsoll_allocation:info", 1, held.labels()...)
			key := ownerModel{d.holder.namespace, x.model, held.owner}
			if used[key] == nil {
				used[key] = &use{}
			}
			used[key].devices, used[key].utilization = used[key].devices+1, used[key].utilization+d.utilization
			if d.utilization < idleUtilization {
				held, since := continued(before, held, seconds(e.at))
				c.idleSince[held] = since
			}
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(used), compareOwnerModels) {
		e.add("owner_model:plimsoll_utilization:avg", used[key].utilization/used[key].devices, "namespace", key.namespace, "model", key.model, "owner_kind", key.owner.kind, "owner_name", key.owner.name)
	}
	for held, since := range before {
		if _, isKnown := c.reports[held.node]; !measured[[2]string{held.node, held.uuid}] && isKnown {
			c.idleSince[held] = since
		}
	}
	maps.DeleteFunc(c.idleSince, func(held heldDevice, _ float64) bool {
		report, ok := c.reports[held.node]
		return ok && report < seconds(e.at)-unmeasuredAge
	})
	for _, held := range slices.SortedFunc(maps.Keys(c.idleSince), compareHeld) {
		e.add("device:plimsoll_idle_since_timestamp_seconds:min", c.idleSince[held], held.labels()...)
	}
}

// continued is the device as it was recorded while the same pod held it before, and since when it is idle.
func continued(before map[heldDevice]float64, held heldDevice, now float64) (was heldDevice, since float64) {
	for d, at := range before {
		if d.node == held.node && d.uuid == held.uuid && d.pod == held.pod {
			return d, at
		}
	}
	return held, now
}

// ownerOf is the owner by the exporter, otherwise by kube-state-metrics, otherwise the pod itself.
func (k *kubeData) ownerOf(p *podData) podOwner {
	if p.ownerKind != "" {
		return podOwner{p.ownerKind, p.ownerName}
	}
	if o, ok := k.owners[podName{p.namespace, p.name}]; ok {
		return o
	}
	return podOwner{"Pod", p.name}
}
