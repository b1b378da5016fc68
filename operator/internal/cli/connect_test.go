package cli

import (
	"bytes"
	"encoding/base64"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// startConnectServers starts a hub and a worker and returns them with a kubeconfig for both.
func startConnectServers(t *testing.T) (hub, worker *fakeHub, kubeconfig string, workerServer *httptest.Server) {
	t.Helper()
	object := func(text string) *fakeHub {
		dir := filepath.Join(t.TempDir(), "hub")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return &fakeHub{dir: dir}
	}
	hub = object("apiVersion: cluster.open-cluster-management.io/v1\nkind: ManagedCluster\nmetadata: {name: cluster1}\n")
	worker = object("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: default, namespace: kueue-system}\n")
	hubServer := httptest.NewServer(hub)
	workerServer = httptest.NewTLSServer(worker)
	t.Cleanup(hubServer.Close)
	t.Cleanup(workerServer.Close)
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	text := strings.NewReplacer("HUB", hubServer.URL, "WORKER", workerServer.URL, "CA", base64.StdEncoding.EncodeToString(certificatePEM(workerServer))).Replace(
		`{apiVersion: v1, kind: Config, current-context: hub, users: [{name: me, user: {password: own, username: ann}}],
clusters: [{name: hub, cluster: {server: "HUB"}}, {name: w, cluster: {server: "WORKER", certificate-authority-data: CA}}],
contexts: [{name: hub, context: {cluster: hub, user: me}}, {name: w, context: {cluster: w, user: me}}]}`)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return hub, worker, kubeconfig, workerServer
}

// The Secret on the hub has a kubeconfig that Kueue accepts: with the token of the new
// account, and without a credential of the user or a file.
func TestConnectWritesAKubeconfig(t *testing.T) {
	hub, worker, kubeconfig, server := startConnectServers(t)
	var out, errOut bytes.Buffer
	code := run(t.Context(), []string{"connect", "cluster1=w,https://w.example.com:6443", "--kubeconfig", kubeconfig},
		genericclioptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}, func() time.Time { return now })
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, &errOut)
	}
	for _, key := range []string{"serviceaccounts/kueue-system/plimsoll-multikueue", "secrets/kueue-system/plimsoll-multikueue", "clusterroles//plimsoll-multikueue", "clusterrolebindings//plimsoll-multikueue"} {
		if worker.objects[key] == nil {
			t.Errorf("the worker has no %s", key)
		}
	}
	secret := hub.objects["secrets/kueue-system/cluster1-kubeconfig"]
	if secret == nil {
		t.Fatal("the hub has no Secret")
	}
	if secret.GetLabels()[managedByLabel] != connectManager {
		t.Errorf("labels %v", secret.GetLabels())
	}
	encoded, _, err := unstructured.NestedString(secret.Object, "data", "kubeconfig")
	if err != nil {
		t.Fatal(err)
	}
	content, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		t.Fatal(err)
	}
	// Another run reads which tool wrote the Secret, and not its content.
	if err := os.WriteFile(filepath.Join(filepath.Dir(hub.dir), "hidden"), []byte("secrets"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code := run(t.Context(), []string{"connect", "cluster1=w,https://w.example.com:6443", "--kubeconfig", kubeconfig},
		genericclioptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}, func() time.Time { return now }); code != 0 {
		t.Fatalf("exit code %d: %s", code, &errOut)
	}
	config, err := clientcmd.Load(content)
	if err != nil {
		t.Fatal(err)
	}
	current := config.Contexts[config.CurrentContext]
	user, cluster := config.AuthInfos[current.AuthInfo], config.Clusters[current.Cluster]
	if user.Token != "right" || user.Username != "" || user.Password != "" || user.TokenFile != "" {
		t.Errorf("credentials %v", user)
	}
	if cluster.Server != "https://w.example.com:6443" || !bytes.Equal(cluster.CertificateAuthorityData, certificatePEM(server)) || cluster.CertificateAuthority != "" {
		t.Errorf("server %s with CA %s", cluster.Server, cluster.CertificateAuthorityData)
	}
}

// The commands of uninstall --check delete every object that connect creates on a worker.
func TestAccountStepNamesAllObjectsOfAWorker(t *testing.T) {
	step := (&doctor{kueue: "kueue-system"}).accountStep()
	_, global, _ := strings.Cut(step.Command, ";")
	for text := range strings.SplitSeq(workerManifests, "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		command := step.Command
		if u.GetNamespace() == "" {
			command = global
		}
		if words := strings.FieldsFunc(command, func(r rune) bool { return r == ' ' || r == ',' }); !slices.Contains(words, strings.ToLower(u.GetKind())) || !slices.Contains(words, u.GetName()) {
			t.Errorf("%s %s is not in %s", u.GetKind(), u.GetName(), command)
		}
	}
}

func TestSetDispatcher(t *testing.T) {
	const head = "# of the team\nkind: Configuration\n"
	for _, tc := range []struct{ name, text, want string }{
		{"no section", head + "webhook:\n  port: 9443 # fixed\n", head + "webhook:\n  port: 9443 # fixed\nmultiKueue:\n  dispatcherName: new\n"},
		{"empty section", head + "multiKueue:\n", head + "multiKueue:\n  dispatcherName: new\n"},
		{"another dispatcher", head + "multiKueue:\n  gcInterval: 1m\n  dispatcherName: old\n", head + "multiKueue:\n  gcInterval: 1m\n  dispatcherName: new\n"},
		{"the same", head + "multiKueue: {dispatcherName: new}\n", head + "multiKueue: {dispatcherName: new}\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := setDispatcher(tc.text, "new")
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Error(d)
			}
		})
	}
	for _, text := range []string{"kind: Other\n", "- a\n", ""} {
		if _, err := setDispatcher(text, "new"); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

// doctor and uninstall read the dispatcher as Kueue does, however the YAML is written.
func TestDispatcherIn(t *testing.T) {
	const head = "kind: Configuration\n"
	for _, tc := range []struct {
		name string
		data map[string]string
		want string
	}{
		{"block style", map[string]string{"config.yaml": head + "multiKueue:\n  gcInterval: 1m\n  dispatcherName: \"ours\"\n"}, "ours"},
		{"flow style", map[string]string{"config.yaml": head + "multiKueue: {dispatcherName: ours}\n"}, "ours"},
		{"single quotes", map[string]string{"config.yaml": head + "multiKueue:\n  'dispatcherName': 'ours'\n"}, "ours"},
		{"JSON", map[string]string{"config.yaml": `{"kind": "Configuration", "multiKueue": {"dispatcherName": "ours"}}`}, "ours"},
		{"in a comment", map[string]string{"config.yaml": head + "multiKueue:\n  # dispatcherName: ours\n  gcInterval: 1m\n"}, ""},
		{"of another kind", map[string]string{"a.yaml": "kind: Other\nmultiKueue: {dispatcherName: other}\n", "b.yaml": head + "multiKueue: {dispatcherName: ours}\n"}, "ours"},
		{"in another section", map[string]string{"config.yaml": head + "other: {dispatcherName: other}\n"}, ""},
		{"no configuration", nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, err := dispatcherIn(&corev1.ConfigMap{Data: tc.data}); err != nil || got != tc.want {
				t.Errorf("got %q and error %v, want %q", got, err, tc.want)
			}
		})
	}
	if _, err := dispatcherIn(&corev1.ConfigMap{Data: map[string]string{"config.yaml": "a: ["}}); err == nil || !strings.Contains(err.Error(), "config.yaml") {
		t.Errorf("invalid YAML: error %v", err)
	}
}
