package cli

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/yaml"
)

// A user with the ClusterRole and the Role plimsoll-explainer may read all that these commands read.
func TestExplainerRoleCoversItsCommands(t *testing.T) {
	rules := explainerRules(t)
	files, err := txtar.ParseFile(filepath.Join("testdata", "script", "explain_waiting.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, f := range files.Files {
		path := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	hub := &fakeHub{dir: filepath.Join(dir, "hub")}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		group, resource, verb := requestedResource(req)
		granted := slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, verb)
		})
		if !granted {
			t.Errorf("the role does not grant %s %s.%s", verb, resource, group)
		}
		hub.ServeHTTP(w, req)
	}))
	defer server.Close()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	text := `{apiVersion: v1, kind: Config, current-context: hub, clusters: [{name: hub, cluster: {server: "` + server.URL + `"}}], contexts: [{name: hub, context: {cluster: hub, namespace: team-a}}]}`
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{
		"explain workload job/train-1", "explain policy fleet", "explain cluster cluster1", "top", "quota", "profile", "waste --reclaim",
	} {
		t.Run(command, func(t *testing.T) {
			var out bytes.Buffer
			streams := genericclioptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out}
			run(t.Context(), append(strings.Fields(command), "--kubeconfig", kubeconfig), streams, func() time.Time { return now })
			if out.Len() == 0 {
				t.Error("no output")
			}
		})
	}
}

// requestedResource returns the API group, the resource and the verb of a request to read objects.
func requestedResource(req *http.Request) (group, resource, verb string) {
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	rest := parts[2:] // after api/VERSION
	if parts[0] == "apis" {
		group, rest = parts[1], parts[3:]
	}
	if rest[0] == "namespaces" && len(rest) > 2 {
		rest = rest[2:]
	}
	if len(rest) > 1 {
		return group, rest[0], "get"
	}
	return group, rest[0], "list"
}

// explainerRules returns the rules of the roles plimsoll-explainer in config/rbac/users.yaml.
func explainerRules(t *testing.T) []rbacv1.PolicyRule {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "..", "config", "rbac", "users.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var rules []rbacv1.PolicyRule
	for text := range strings.SplitSeq(string(content), "\n---\n") {
		var role rbacv1.ClusterRole // a Role has the same fields
		if err := yaml.Unmarshal([]byte(text), &role); err != nil {
			t.Fatal(err)
		}
		if role.Name == "plimsoll-explainer" {
			rules = append(rules, role.Rules...)
		}
	}
	if len(rules) == 0 {
		t.Fatal("no rules")
	}
	return rules
}
