package podmap

// Meta is what the API server says of a pod.
type Meta struct {
	UID    string
	Labels map[string]string
	// Owner at the top of the pod's controllers: a Job, JobSet, RayJob, PyTorchJob,
	// or the pod itself. Its kind is empty while it is not known.
	OwnerKind, OwnerName string
}
