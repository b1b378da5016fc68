package cli

import (
	_ "embed"
)

// connectManager is the field manager and the label of the objects that connect writes.
const connectManager = "kubectl-plimsoll"

// managedByLabel is the label of the Secrets that connect wrote and may replace.
const managedByLabel = "app.kubernetes.io/managed-by"

//go:embed worker.yaml
var workerManifests string

// workerAccount is the name of all objects in worker.yaml.
const workerAccount = "plimsoll-multikueue"
