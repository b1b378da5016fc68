package audit

import (
	"encoding/json"
	"testing"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

const operator = "system:serviceaccount:plimsoll-system:plimsoll-operator"

var rules = Rules{
	User:              operator,
	IsGateCheck:       func(c string) bool { return c == "plimsoll" },
	IsTrialCheck:      func(c string) bool { return c == "trial" },
	IsMultiKueueCheck: func(c string) bool { return c == "multikueue" },
}

func auditLine(t *testing.T, user, verb, subresource, manager string, after *kueue.Workload) []byte {
	t.Helper()
	uri := "/apis/kueue.x-k8s.io/v1beta2/namespaces/team-a/workloads/job"
	out, err := json.Marshal(map[string]any{
		"verb": verb, "requestURI": uri + "?fieldManager=" + manager, "requestReceivedTimestamp": at.UTC().Format("2006-01-02T15:04:05.000000Z"),
		"user": map[string]any{"username": user}, "objectRef": map[string]any{"resource": "workloads", "subresource": subresource},
		"responseStatus": map[string]any{"code": 200}, "responseObject": after})
	if err != nil {
		t.Fatal(err)
	}
	return append(out, '\n')
}
