package shape

const h100 = "NVIDIA-H100-80GB-HBM3"

func job(uid string, devices, pods int64) Facts {
	return Facts{UID: uid, Namespace: "team-a", Name: uid, Queue: "gpu",
		PodSets: []PodSet{{Name: "main", Resource: "nvidia.com/gpu", Model: h100, DevicesPerPod: devices, Pods: pods}}}
}
