package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/user"
)

func TestExplanationsRequireReadAccessToTheirObject(t *testing.T) {
	type access struct {
		verb, group, resource, namespace, name, path string
	}
	for path, want := range map[string]access{
		"/metrics":                         {verb: "get", path: "/metrics"},
		"/explain/":                        {verb: "get", path: "/explain/"},
		"/explain/workload/team-a/job-1":   {verb: "get", group: "kueue.x-k8s.io", resource: "workloads", namespace: "team-a", name: "job-1"},
		"/explain/workload/team-a":         {verb: "get", group: "kueue.x-k8s.io", resource: "workloads", namespace: "team-a"},
		"/explain/workload/team-a/x/y":     {verb: "get", group: "kueue.x-k8s.io", resource: "workloads", namespace: "team-a", name: "x/y"},
		"/explain/policy/fleet":            {verb: "get", group: "plimsoll.dev", resource: "scoringpolicies", name: "fleet"},
		"/explain/cluster/cluster1":        {verb: "list", group: "cluster.open-cluster-management.io", resource: "addonplacementscores", namespace: "cluster1"},
		"/explain/workloads/team-a/job-1":  {verb: "get", path: "/explain/workloads/team-a/job-1"},
		"/explain/policy/fleet?user=other": {verb: "get", group: "plimsoll.dev", resource: "scoringpolicies", name: "fleet"},
	} {
		t.Run(path, func(t *testing.T) {
			a := attributesOf(&user.DefaultInfo{Name: "viewer"}, httptest.NewRequest(http.MethodGet, path, nil))
			got := access{verb: a.GetVerb(), group: a.GetAPIGroup(), resource: a.GetResource(), namespace: a.GetNamespace(), name: a.GetName()}
			if !a.IsResourceRequest() {
				got.path = a.GetPath()
			}
			if d := cmp.Diff(want, got, cmp.AllowUnexported(access{})); d != "" || a.GetUser().GetName() != "viewer" {
				t.Error(d, a.GetUser())
			}
		})
	}
}
