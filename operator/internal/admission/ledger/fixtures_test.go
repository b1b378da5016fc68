package ledger

import (
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

var t0 = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

const h100 = "NVIDIA-H100-80GB-HBM3"

// podSet requests devices H100s for each of pods pods.
func podSet(devices, pods int64) shape.PodSet {
	return shape.PodSet{Name: "main", Resource: "nvidia.com/gpu", Model: h100, DevicesPerPod: devices, Pods: pods}
}

// entry reserves one pod with eight devices from t0 on.
func entry(uid, cluster string) Entry {
	return Entry{UID: uid, Cluster: cluster, PodSets: []shape.PodSet{podSet(8, 1)}, DebitedAt: t0}
}

func after(seconds int) time.Time { return t0.Add(time.Duration(seconds) * time.Second) }
