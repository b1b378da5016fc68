package ledger

import (
	"time"

	"plimsoll.dev/plimsoll/operator/internal/shape"
)

var t0 = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

const h100 = "NVIDIA-H100-80GB-HBM3"

func job(uid string, devices, pods int64) shape.Facts {
	return shape.Facts{UID: uid, Namespace: "team-a", Name: uid, Queue: "gpu",
		PodSets: []shape.PodSet{{Name: "main", Resource: "nvidia.com/gpu", Model: h100, DevicesPerPod: devices, Pods: pods}}}
}
