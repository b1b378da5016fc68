package cli

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/yaml"
)

// A user with the ClusterRole plimsoll-explainer, bound in every namespace, and the Role of the same name may
// read all that these commands read.
func TestExplainerRoleCoversItsCommands(t *testing.T) {
	everywhere, operator := explainerRules(t)
	isGranted := func(group, resource, verb, namespace string) bool {
		granted := grants(everywhere, group, resource, verb) || namespace == "plimsoll-system" && grants(operator, group, resource, verb)
		if !granted {
			t.Errorf("the roles do not grant %s %s.%s in namespace %q", verb, resource, group, namespace)
		}
		return granted
	}
	for script, commands := range map[string][]string{
		"explain_waiting.txtar": {"explain workload job/train-1", "explain policy fleet", "explain cluster cluster1", "top --prometheus URL", "quota", "profile", "waste --reclaim"},
		"fit.txtar":             {"fit -f DIR/one.yaml --prometheus URL", "preview -f DIR/gate.yaml --waiting --prometheus URL"},
	} {
		kubeconfig := startGuardedHub(t, script, isGranted)
		prometheus := httptest.NewServer(prometheusHandler(filepath.Dir(kubeconfig)))
		defer prometheus.Close()
		for _, command := range commands {
			t.Run(command, func(t *testing.T) {
				var out bytes.Buffer
				args := strings.Fields(strings.NewReplacer("DIR", filepath.Dir(kubeconfig), "URL", prometheus.URL).Replace(command))
				run(t.Context(), append(args, "--kubeconfig", kubeconfig), genericclioptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out}, func() time.Time { return now })
				if out.Len() == 0 {
					t.Error("no output")
				}
			})
		}
	}
}

// A user with a RoleBinding to plimsoll-explainer gets the operator's explanation of a workload in the
// namespace, although the user may not read cluster-scoped objects, such as AdmissionChecks.
func TestExplainWorkloadWithARoleBinding(t *testing.T) {
	everywhere, operator := explainerRules(t)
	kubeconfig := startGuardedHub(t, "explain_operator.txtar", func(group, resource, verb, namespace string) bool {
		return namespace == "team-a" && grants(everywhere, group, resource, verb) || namespace == "plimsoll-system" && grants(operator, group, resource, verb)
	})
	server := httptest.NewTLSServer(http.HandlerFunc(serveOperator))
	defer server.Close()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("right\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, workload string
		wants          []string
	}{
		{"explained by the operator", "job-train-1-5c2e1", []string{"Gate: +gpu", "Waits for: +its nomination", "Check: +plimsoll Pending", "cluster2 +rejected +0"}},
		{"not explained by the operator", "served-by-follower", []string{"Check: +ours Pending: as the check says", "Not shown: +each candidate's room"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out, failures bytes.Buffer
			streams := genericclioptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &failures}
			args := []string{"explain", "workload", tc.workload, "--kubeconfig", kubeconfig, "--operator-url", server.URL, "--operator-insecure", "--token-file", token}
			if code := run(t.Context(), args, streams, func() time.Time { return now }); code != 0 {
				t.Fatalf("exit code %d: %s", code, failures.String())
			}
			for _, want := range append(tc.wants, "Not shown: +read hub: get AdmissionCheck .*bind your user to the ClusterRole") {
				if !regexp.MustCompile(want).MatchString(out.String()) {
					t.Errorf("no %q in\n%s", want, out.String())
				}
			}
		})
	}
}

// startGuardedHub starts an API server with the objects of a script. It rejects requests that isGranted
// does not grant; namespace is "" for a request to all namespaces, or for a cluster-scoped object. It
// returns the path of a kubeconfig.
func startGuardedHub(t *testing.T, script string, isGranted func(group, resource, verb, namespace string) bool) string {
	t.Helper()
	files, err := txtar.ParseFile(filepath.Join("testdata", "script", script))
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
		group, resource, verb, namespace := requestedResource(req)
		if !isGranted(group, resource, verb, namespace) {
			writeStatus(w, http.StatusForbidden, "Forbidden", resource+"."+group+` is forbidden: User "me" cannot `+verb+" resource", "")
			return
		}
		hub.ServeHTTP(w, req)
	}))
	t.Cleanup(server.Close)
	kubeconfig := filepath.Join(dir, "kubeconfig")
	text := `{apiVersion: v1, kind: Config, current-context: hub, clusters: [{name: hub, cluster: {server: "` + server.URL + `"}}], contexts: [{name: hub, context: {cluster: hub, namespace: team-a}}]}`
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// grants reports whether one of the rules grants the request.
func grants(rules []rbacv1.PolicyRule, group, resource, verb string) bool {
	return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, verb)
	})
}

// requestedResource returns the API group, the resource, the verb and the namespace of a request to read
// objects.
func requestedResource(req *http.Request) (group, resource, verb, namespace string) {
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	rest := parts[2:] // after api/VERSION
	if parts[0] == "apis" {
		group, rest = parts[1], parts[3:]
	}
	if rest[0] == "namespaces" && len(rest) > 2 {
		namespace, rest = rest[1], rest[2:]
	}
	if len(rest) > 1 {
		return group, rest[0], "get", namespace
	}
	return group, rest[0], "list", namespace
}

// explainerRules returns the rules of the ClusterRole plimsoll-explainer in config/rbac/users.yaml, and those
// of the Role of the same name in the operator's namespace.
func explainerRules(t *testing.T) (clusterRole, role []rbacv1.PolicyRule) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "..", "config", "rbac", "users.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for text := range strings.SplitSeq(string(content), "\n---\n") {
		var r rbacv1.ClusterRole // a Role has the same fields
		if err := yaml.Unmarshal([]byte(text), &r); err != nil {
			t.Fatal(err)
		}
		switch {
		case r.Name != "plimsoll-explainer":
		case r.Namespace == "":
			clusterRole = append(clusterRole, r.Rules...)
		default:
			role = append(role, r.Rules...)
		}
	}
	if len(clusterRole) == 0 || len(role) == 0 {
		t.Fatal("no rules")
	}
	return clusterRole, role
}
