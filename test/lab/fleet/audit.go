package fleet

import (
	"errors"
	"os"
	"path/filepath"
)

// auditPolicy records each write of the hub's Workloads with its user and the
// resulting object. Sorted by resourceVersion, these objects are all states of a
// Workload. Of the operator's other requests it records the metadata.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: RequestResponse
  verbs: [create, update, patch, delete, deletecollection]
  resources: [{group: kueue.x-k8s.io, resources: [workloads, workloads/status]}]
- level: Metadata
  users: ["` + OperatorUser + `"]
- level: None
`

// AuditLog returns the path of the hub's audit log: one JSON event per line.
func (f *Fleet) AuditLog() string { return filepath.Join(f.opts.Dir, "logs", "hub-audit.jsonl") }

// auditArgs writes the audit policy to dir and returns the kube-apiserver's flags.
func (f *Fleet) auditArgs(dir string) ([]string, error) {
	policy := filepath.Join(dir, "audit-policy.yaml")
	err := errors.Join(os.MkdirAll(filepath.Dir(f.AuditLog()), 0o755), os.WriteFile(policy, []byte(auditPolicy), 0o600))
	return []string{"--audit-policy-file=" + policy, "--audit-log-path=" + f.AuditLog(), "--audit-log-maxsize=100000"}, err
}
