package cli

import (
	"bytes"
	"encoding/base64"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/tools/clientcmd"
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
	if secret.GetLabels()["app.kubernetes.io/managed-by"] != "kubectl-plimsoll" {
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
