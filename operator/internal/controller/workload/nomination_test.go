package workload

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const workloadStatus = `{
  "admission": {"clusterQueue": "gpu", "podSetAssignments": [{"name": "main", "count": 2}]},
  "admissionChecks": [{"name": "multikueue", "state": "Pending", "message": ""}, {"name": "plimsoll", "state": "Ready", "message": "ours"}],
  "conditions": [{"type": "QuotaReserved", "status": "True"}, {"type": "Finished", "status": "False"}],
  "reclaimablePods": [{"name": "main", "count": 1}],
  "nominatedClusterNames": ["cluster1"]
}`

// ownedFields is an entry of managedFields for the status.
func ownedFields(manager string, op metav1.ManagedFieldsOperationType, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: manager, Operation: op, Subresource: "status", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields)}
}

func TestNominationKeepsFieldsOfKueue(t *testing.T) {
	for _, tc := range []struct {
		name    string
		entries []metav1.ManagedFieldsEntry
		want    string
	}{
		{"whole fields and parts of fields, but no other manager's", []metav1.ManagedFieldsEntry{
			ownedFields("kueue-admission", metav1.ManagedFieldsOperationApply, `{"f:status": {"f:admission": {"f:clusterQueue": {}, "f:podSetAssignments": {"k:{\"name\":\"main\"}": {".": {}, "f:name": {}, "f:count": {}}}},
				"f:admissionChecks": {"k:{\"name\":\"multikueue\"}": {".": {}, "f:name": {}, "f:state": {}}},
				"f:conditions": {"k:{\"type\":\"QuotaReserved\"}": {".": {}, "f:status": {}, "f:type": {}}}, "f:nominatedClusterNames": {}}}`),
			ownedFields("plimsoll-gate", metav1.ManagedFieldsOperationApply, `{"f:status": {"f:admissionChecks": {"k:{\"name\":\"plimsoll\"}": {".": {}, "f:state": {}}}}}`),
			ownedFields("kueue-reclaimable-pods", metav1.ManagedFieldsOperationApply, `{"f:status": {"f:reclaimablePods": {}}}`),
		}, `{"admission": {"clusterQueue": "gpu", "podSetAssignments": [{"name": "main", "count": 2}]},
			"admissionChecks": [{"name": "multikueue", "state": "Pending"}],
			"conditions": [{"type": "QuotaReserved", "status": "True"}], "nominatedClusterNames": ["cluster1", "cluster2"]}`},
		{"fields that no longer exist", []metav1.ManagedFieldsEntry{
			ownedFields("kueue-admission", metav1.ManagedFieldsOperationApply, `{"f:status": {"f:clusterName": {}, "f:conditions": {"k:{\"type\":\"Evicted\"}": {".": {}, "f:type": {}}}}}`),
		}, `{"conditions": [], "nominatedClusterNames": ["cluster1", "cluster2"]}`},
		{"fields written by an update instead of an apply", []metav1.ManagedFieldsEntry{
			ownedFields("kueue-admission", metav1.ManagedFieldsOperationUpdate, `{"f:status": {"f:admission": {}}}`),
		}, `{"nominatedClusterNames": ["cluster1", "cluster2"]}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			live := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "job", "namespace": "team-a", "resourceVersion": "7"}}}
			live.Object["status"] = parse(t, workloadStatus)
			live.SetManagedFields(tc.entries)
			u, err := nomination(live, []string{"cluster1", "cluster2"})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(parse(t, tc.want), u.Object["status"]); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if u.GetResourceVersion() != "7" || u.GetName() != "job" {
				t.Errorf("the apply must have the resourceVersion and the name of the object: %v", u.Object["metadata"])
			}
		})
	}
}

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	var value map[string]any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	return value
}
