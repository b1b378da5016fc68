package fleet

import (
	"errors"
	"os"
	"path/filepath"
)

// auditPolicy records who wrote what to the hub's Workloads, with the object
// that came of it: in the order of their resourceVersions these are all the
// states that a Workload ever had.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: RequestResponse
  verbs: [create, update, patch, delete, deletecollection]
  resources: [{group: kueue.x-k8s.io, resources: [workloads, workloads/status]}]
- level: None
`

// AuditLog is the file of the hub's audit events, one JSON object a line.
func (f *Fleet) AuditLog() string { return filepath.Join(f.opts.Dir, "logs", "hub-audit.jsonl") }

func (f *Fleet) auditArgs(dir string) ([]string, error) {
	policy := filepath.Join(dir, "audit-policy.yaml")
	err := errors.Join(os.MkdirAll(filepath.Dir(f.AuditLog()), 0o755), os.WriteFile(policy, []byte(auditPolicy), 0o600))
	return []string{"--audit-policy-file=" + policy, "--audit-log-path=" + f.AuditLog(), "--audit-log-maxsize=100000"}, err
}
