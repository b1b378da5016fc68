//go:build e2e && long

package install

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// prepareHub installs what a hub with OCM and Kueue has and the lab's hub does not, and
// removes the credentials that the lab creates for Kueue.
func (w *way) prepareHub(t *testing.T) {
	t.Helper()
	for _, group := range []string{"addon", "work"} {
		if err := w.lab.ApplyOCMCRDs(w.ctx, group); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.lab.ApplyKueueDeployment(w.ctx); err != nil {
		t.Fatal(err)
	}
	kueue := &appsv1.Deployment{}
	if err := w.lab.Hub.Client.Get(w.ctx, client.ObjectKey{Namespace: "kueue-system", Name: "kueue-controller-manager"}, kueue); err != nil {
		t.Fatal(err)
	}
	w.setAvailable(t, kueue)
	for _, worker := range w.lab.Workers {
		w.hub(t, "", "delete", "secret", "-n", "kueue-system", worker.Name+"-kubeconfig")
	}
}

// workAgent is the account of OCM's work agent.
const workAgent = "system:serviceaccount:open-cluster-management-agent:klusterlet-work-sa"

// workAgentRoles are the permissions that OCM v1.2 gives to its work agent for the objects of
// ManifestWorks.
const workAgentRoles = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: work-admin}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
subjects: [{kind: ServiceAccount, name: klusterlet-work-sa, namespace: open-cluster-management-agent}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: work-aggregate}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: work-aggregate}
subjects: [{kind: ServiceAccount, name: klusterlet-work-sa, namespace: open-cluster-management-agent}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: work-aggregate}
aggregationRule: {clusterRoleSelectors: [{matchLabels: {open-cluster-management.io/aggregate-to-work: "true"}}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: work-execution, labels: {open-cluster-management.io/aggregate-to-work: "true"}}
rules:
- {apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions], verbs: [get, list, watch, create, delete, update]}
- {apiGroups: [""], resources: [namespaces], verbs: [create, update, patch, delete]}
- {apiGroups: [rbac.authorization.k8s.io], resources: [clusterrolebindings, rolebindings], verbs: [get, list, watch, create, update, patch, delete]}
- {apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles, roles], verbs: [get, list, watch, create, update, patch, delete, escalate, bind]}
- {apiGroups: [monitoring.coreos.com], resources: [servicemonitors], verbs: [get, list, watch, create, update, patch, delete]}
- {apiGroups: [scheduling.k8s.io], resources: [priorityclasses], verbs: [get, list, watch, create, patch, update, delete]}
`

// monitoringCRD is a CRD of prometheus-operator without a schema.
const monitoringCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]ss.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {kind: %[2]s, plural: %[1]ss, singular: %[1]s}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
---`

// prepareWorkers installs what a worker with OCM's agents and prometheus-operator has.
func (w *way) prepareWorkers(t *testing.T) {
	t.Helper()
	var crds strings.Builder
	for _, kind := range []string{"PodMonitor", "ServiceMonitor", "PrometheusRule"} {
		fmt.Fprintf(&crds, monitoringCRD, strings.ToLower(kind), kind)
	}
	w.exporting = map[string]bool{}
	for _, worker := range w.lab.Workers {
		if err := worker.Apply(w.ctx, crds.String()+workAgentRoles); err != nil {
			t.Fatal(err)
		}
	}
}

// removeDevices removes the GPUs from the nodes' capacity: no device plugin reports any.
func (w *way) removeDevices(t *testing.T) {
	t.Helper()
	for _, worker := range w.lab.Workers {
		for _, node := range w.names(t, worker, "nodes") {
			if _, err := worker.Kubectl(w.ctx, "", "patch", "node", node, "--subresource=status", "--type=json",
				"-p", `[{"op": "remove", "path": "/status/capacity/nvidia.com~1gpu"}, {"op": "remove", "path": "/status/allocatable/nvidia.com~1gpu"}]`); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// prepareDirectory creates the working directory: the samples, of which a new user edits one
// file, a kubeconfig with the contexts of the document, and kubectl with the plugin.
func (w *way) prepareDirectory(t *testing.T, exporter map[string]any) {
	t.Helper()
	from, to := filepath.Join(root(t), "config", "samples"), filepath.Join(w.dir, "config", "samples")
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"fleet.yaml", "job.yaml"} {
		text, err := os.ReadFile(filepath.Join(from, file))
		if err != nil {
			t.Fatal(err)
		}
		if file == "fleet.yaml" {
			text = w.edit(t, text, exporter)
		}
		if err := os.WriteFile(filepath.Join(to, file), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	bin := filepath.Join(w.dir, "bin")
	build := exec.CommandContext(w.ctx, "go", "build", "-o", filepath.Join(bin, "kubectl-plimsoll"), "./operator/cmd/kubectl-plimsoll")
	build.Dir = root(t)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.Symlink(w.lab.Program("kubectl"), filepath.Join(bin, "kubectl")); err != nil {
		t.Fatal(err)
	}
	w.env = []string{"KUBECONFIG=" + w.writeKubeconfig(t), "PATH=" + bin + ":" + os.Getenv("PATH")}
}

// edit makes the edits of a new user: the URL of the metrics server, and the platform.
func (w *way) edit(t *testing.T, text []byte, exporter map[string]any) []byte {
	t.Helper()
	values := map[string]map[string]any{}
	var all map[string]any
	if err := yaml.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	for _, section := range []string{"source", "exporter"} {
		values[section], _ = all[section].(map[string]any)
	}
	if values["source"] == nil || values["exporter"] == nil {
		t.Fatalf("config/samples/fleet.yaml lacks a section: %s", bytes.TrimSpace(text))
	}
	values["source"]["url"] = w.lab.Thanos
	for key, value := range exporter {
		values["exporter"][key] = value
	}
	edited, err := yaml.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return edited
}

// writeKubeconfig writes a kubeconfig with the context hub, and admin@NAME for each worker.
func (w *way) writeKubeconfig(t *testing.T) string {
	t.Helper()
	merged := clientcmdapi.NewConfig()
	add := func(name string, c *fleet.Cluster) {
		config, err := clientcmd.LoadFromFile(c.Kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		current := config.Contexts[config.CurrentContext]
		merged.Clusters[name], merged.AuthInfos[name] = config.Clusters[current.Cluster], config.AuthInfos[current.AuthInfo]
		merged.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	add("hub", w.lab.Hub)
	for _, worker := range w.lab.Workers {
		add("admin@"+worker.Name, worker)
	}
	merged.CurrentContext = "hub"
	file := filepath.Join(w.dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*merged, file); err != nil {
		t.Fatal(err)
	}
	return file
}
