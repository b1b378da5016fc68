package installation

import _ "embed" // the manifests of a worker's account

// FieldManager is the field manager and the label of the objects that connect writes.
const FieldManager = "kubectl-plimsoll"

// ManagedByLabel is the label of the Secrets that connect wrote and may replace.
const ManagedByLabel = "app.kubernetes.io/managed-by"

// WorkerManifests are the objects of the account for Kueue on a worker.
//
//go:embed worker.yaml
var WorkerManifests string

// WorkerAccount is the name of all objects in worker.yaml.
const WorkerAccount = "plimsoll-multikueue"
