package config_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
)

// grant is one verb on one resource. namespace is empty for a ClusterRole.
type grant struct{ namespace, group, resource, verb string }

// operatorGrants returns what the roles of the operator grant.
func operatorGrants(t *testing.T) map[grant]bool {
	t.Helper()
	grants := map[grant]bool{}
	add := func(namespace string, rules []rbacv1.PolicyRule) {
		for _, r := range rules {
			for _, group := range r.APIGroups {
				for _, resource := range r.Resources {
					for _, verb := range r.Verbs {
						grants[grant{namespace, group, resource, verb}] = true
					}
				}
			}
		}
	}
	objects, _ := buildFolder(t, "rbac")
	for _, object := range objects {
		switch role := object.(type) {
		case *rbacv1.ClusterRole:
			if role.Name == "plimsoll-operator" {
				add("", role.Rules)
			}
		case *rbacv1.Role:
			if strings.HasPrefix(role.Name, "plimsoll-operator") {
				add(role.Namespace, role.Rules)
			}
		}
	}
	return grants
}

// documentedGrants returns the grants of the tables in rbac/README.md.
func documentedGrants(t *testing.T) map[grant]bool {
	t.Helper()
	text, err := os.ReadFile("rbac/README.md")
	if err != nil {
		t.Fatal(err)
	}
	grants, namespace, described := map[grant]bool{}, "", false
	for line := range strings.Lines(string(text)) {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			_, namespace, _ = strings.Cut(strings.TrimSpace(title), "In the namespace ")
			described = strings.HasPrefix(title, "In the ")
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !described || len(cells) != 4 || strings.Contains(cells[0], "API group") || strings.HasPrefix(cells[0], "-") {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if cells[3] == "" {
			t.Errorf("no reason for %s %s", cells[2], cells[1])
		}
		for resource := range strings.SplitSeq(cells[1], ", ") {
			for verb := range strings.SplitSeq(cells[2], ", ") {
				grants[grant{namespace, strings.Trim(cells[0], `"`), resource, verb}] = true
			}
		}
	}
	return grants
}

func TestEveryPermissionHasAReason(t *testing.T) {
	want, got := operatorGrants(t), documentedGrants(t)
	for g := range want {
		if !got[g] {
			t.Errorf("rbac/README.md has no reason for %+v", g)
		}
	}
	for g := range got {
		if !want[g] {
			t.Errorf("rbac/README.md describes %+v, which no role grants", g)
		}
	}
}

// The operator patches, and updates only its Lease: client-go's leader election can't
// patch. It reads no status subresource.
func TestOperatorOnlyPatches(t *testing.T) {
	var updates []grant
	for g := range operatorGrants(t) {
		if g.verb == "update" {
			updates = append(updates, g)
		}
		if strings.HasSuffix(g.resource, "/status") && g.verb != "patch" {
			t.Errorf("%s on %s is never called", g.verb, g.resource)
		}
	}
	if d := cmp.Diff([]grant{{"plimsoll-system", "coordination.k8s.io", "leases", "update"}}, updates, cmp.AllowUnexported(grant{})); d != "" {
		t.Error(d)
	}
}

// The permission to scrape the metrics does not include explanations.
func TestMetricsReaderReadsOnlyMetrics(t *testing.T) {
	objects, _ := buildFolder(t, "rbac")
	urls := map[string][]string{}
	for _, object := range objects {
		if role, ok := object.(*rbacv1.ClusterRole); ok {
			for _, r := range role.Rules {
				if len(r.NonResourceURLs) > 0 {
					urls[role.Name] = slices.Concat(urls[role.Name], r.NonResourceURLs)
				}
			}
		}
	}
	if !maps.EqualFunc(urls, map[string][]string{"plimsoll-metrics-reader": {"/metrics"}}, slices.Equal) {
		t.Errorf("paths by role: %v", urls)
	}
}
