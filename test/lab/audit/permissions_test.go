package audit

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// request is an audit event at the level Metadata.
func request(t *testing.T, verb, group, resource, decision string, code int, message string) []byte {
	t.Helper()
	name, subresource, _ := strings.Cut(resource, "/")
	out, err := json.Marshal(map[string]any{
		"verb": verb, "requestReceivedTimestamp": "2026-01-01T00:00:00.000000Z", "user": map[string]any{"username": operator},
		"objectRef":      map[string]any{"apiGroup": group, "resource": name, "subresource": subresource, "name": "x"},
		"responseStatus": map[string]any{"code": code, "message": message},
		"annotations":    map[string]any{"authorization.k8s.io/decision": decision},
	})
	if err != nil {
		t.Fatal(err)
	}
	return append(out, '\n')
}

func TestPermissions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "role.yaml")
	text := `kind: ClusterRole
rules:
- {apiGroups: [kueue.x-k8s.io], resources: [workloads], verbs: [list, watch]}
- {apiGroups: [plimsoll.dev], resources: [placementgates], verbs: [list]}
- {apiGroups: [kueue.x-k8s.io], resources: [admissionchecks/status], verbs: [patch]}
---
kind: Role
rules:
- {apiGroups: [""], resources: [secrets], verbs: [get]}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	granted, err := ReadPermissions(file, file)
	if err != nil {
		t.Fatal(err)
	}
	l, err := Read(bytes.NewReader(bytes.Join([][]byte{
		request(t, "watch", "kueue.x-k8s.io", "workloads", "allow", 200, ""),
		request(t, "get", "", "secrets", "forbid", 403, "cannot get secrets"),
		request(t, "patch", "kueue.x-k8s.io", "workloads/status", "allow", 422, "ValidatingAdmissionPolicy 'plimsoll-guard-workloads' denied request"),
		request(t, "patch", "kueue.x-k8s.io", "workloads/status", "allow", 409, "the object has been modified"),
	}, nil)))
	if err != nil {
		t.Fatal(err)
	}
	var unused []string
	for _, p := range l.Unused(operator, granted) {
		unused = append(unused, p.String())
	}
	if d := cmp.Diff([]string{"get secrets", "list plimsoll.dev/placementgates", "patch kueue.x-k8s.io/admissionchecks/status"}, unused); d != "" {
		t.Errorf("unused (-want +got):\n%s", d)
	}
	problems := CheckReasons(granted, l.Unused(operator, granted), map[string]string{
		"get secrets": "only in tests of the source", "list plimsoll.dev/placementgates": "see above", "delete pods": "no longer granted",
	})
	wantProblems := []string{
		"patch kueue.x-k8s.io/admissionchecks/status is granted, and no request used it: remove it from the roles, or state why the tests do not use it",
		"delete pods has a reason for being unused, and no role grants it: remove the reason",
	}
	if d := cmp.Diff(wantProblems, problems); d != "" {
		t.Errorf("problems (-want +got):\n%s", d)
	}
	want := []string{
		"get secrets /x at 00:00:00.000: cannot get secrets",
		"patch kueue.x-k8s.io/workloads/status /x at 00:00:00.000: ValidatingAdmissionPolicy 'plimsoll-guard-workloads' denied request",
	}
	if d := cmp.Diff(want, l.Denied(operator)); d != "" {
		t.Errorf("denied (-want +got):\n%s", d)
	}
	if got := l.Refused[operator]; got[409] != 1 {
		t.Errorf("refused writes %v", got)
	}
}
