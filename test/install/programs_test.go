//go:build e2e && long

package install

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// The functions of this file act as the programs that the lab does not run: Helm, the kubelet
// of the hub, OCM's add-on manager and work agent, and prometheus-operator.

func root(t *testing.T) string {
	t.Helper()
	root, err := fleet.FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func await(ctx context.Context, t *testing.T, what string, done func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	if err := fleet.Await(ctx, what, done); err != nil {
		t.Fatal(err)
	}
}

// run runs a command of the document in the working directory, and returns its output.
func (w *way) run(t *testing.T, command string) string {
	t.Helper()
	out, err := w.try(w.ctx, command)
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return out
}

func (w *way) try(ctx context.Context, command string) (string, error) {
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Dir, cmd.Env = w.dir, append(os.Environ(), w.env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

var chartArchive = regexp.MustCompile(`/(plimsoll[a-z-]*)-\d[^/]*\.tgz$`)

// helmInstall does the same as `helm install NAME ARCHIVE -n NAMESPACE --create-namespace
// -f VALUES`: it maps all objects before it creates the first one, and refuses existing ones.
func (w *way) helmInstall(t *testing.T, args []string) {
	t.Helper()
	chart, namespace, values := "", "default", "{}"
	for i, arg := range args {
		switch {
		case chartArchive.MatchString(arg):
			chart = chartArchive.FindStringSubmatch(arg)[1]
		case arg == "-n":
			namespace = args[i+1]
		case arg == "--create-namespace":
			w.hub(t, "", "create", "namespace", namespace)
		case arg == "-f":
			text, err := os.ReadFile(filepath.Join(w.dir, args[i+1]))
			if err != nil {
				t.Fatal(err)
			}
			values = string(text)
		}
	}
	cmd := exec.CommandContext(w.ctx, "go", "-C", filepath.Join(root(t), ".tools", "charts"), "run", "./generate", "--render="+chart, "--namespace="+namespace, "--values="+values)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("render %s: %v", chart, err)
	}
	w.hub(t, string(out), "create", "--dry-run=client", "-f", "-")
	w.hub(t, string(out), "create", "-f", "-")
}

// hub runs kubectl on the hub as its administrator.
func (w *way) hub(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := w.lab.Hub.Kubectl(w.ctx, stdin, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// settle lets the programs act that the lab does not run.
func (w *way) settle(t *testing.T) {
	t.Helper()
	w.runOperator(t)
	w.restartKueue(t)
	for _, worker := range w.lab.Workers {
		w.applyWork(t, worker, append(w.addOnManifests(t), w.workManifests(t, worker.Name)...))
		w.reportInstalled(t, worker.Name)
		w.monitor(t, worker)
	}
}

// reportInstalled sets the conditions of the works and of the add-on of a worker.
func (w *way) reportInstalled(t *testing.T, worker string) {
	t.Helper()
	const status = `{"status":{"conditions":[{"type":%q,"status":"True","reason":"Test","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`
	report := func(object, condition string) {
		w.hub(t, "", "patch", object, "-n", worker, "--subresource=status", "--type=merge", "-p", fmt.Sprintf(status, condition))
	}
	for _, work := range strings.Fields(w.hub(t, "", "get", "manifestworks", "-n", worker, "-o", "name")) {
		report(work, "Applied")
	}
	for _, addOn := range strings.Fields(w.hub(t, "", "get", addOnKind("clustermanagementaddons"), "-o", "jsonpath={.items[*].metadata.name}")) {
		w.hub(t, fmt.Sprintf("{apiVersion: addon.open-cluster-management.io/v1alpha1, kind: ManagedClusterAddOn, metadata: {name: %s, namespace: %s}, spec: {}}", addOn, worker), "apply", "--server-side", "-f", "-")
		report(addOnKind("managedclusteraddons")+"/"+addOn, "Available")
	}
}

// addOnKind returns a kind of OCM's add-on framework in the version that the chart uses.
func addOnKind(plural string) string { return plural + ".v1alpha1.addon.open-cluster-management.io" }

// runOperator runs the operator once its Deployment exists, and reports it as available.
func (w *way) runOperator(t *testing.T) {
	t.Helper()
	deployment := &appsv1.Deployment{}
	err := w.lab.Hub.Client.Get(w.ctx, client.ObjectKey{Namespace: "plimsoll-system", Name: "plimsoll-operator"}, deployment)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	if err != nil || deployment.Status.AvailableReplicas > 0 {
		return
	}
	if err := w.lab.RunDeployment(w.ctx, deployment); err != nil {
		t.Fatal(err)
	}
	w.setAvailable(t, deployment)
}

func (w *way) setAvailable(t *testing.T, deployment *appsv1.Deployment) {
	t.Helper()
	deployment.Status = appsv1.DeploymentStatus{ObservedGeneration: deployment.Generation, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1}
	if err := w.lab.Hub.Client.Status().Update(w.ctx, deployment); err != nil {
		t.Fatal(err)
	}
}

var dispatcher = regexp.MustCompile(`(?m)^ +dispatcherName: (\S+)$`)

// restartKueue restarts Kueue with the dispatcher of its ConfigMap once its Deployment changes.
func (w *way) restartKueue(t *testing.T) {
	t.Helper()
	deployment, config := &appsv1.Deployment{}, &corev1.ConfigMap{}
	for name, object := range map[string]client.Object{"kueue-controller-manager": deployment, "kueue-manager-config": config} {
		if err := w.lab.Hub.Client.Get(w.ctx, client.ObjectKey{Namespace: "kueue-system", Name: name}, object); err != nil {
			t.Fatal(err)
		}
	}
	if deployment.Status.ObservedGeneration == deployment.Generation {
		return
	}
	if m := dispatcher.FindStringSubmatch(config.Data["controller_manager_config.yaml"]); m != nil {
		if err := w.lab.SetDispatcher(w.ctx, m[1]); err != nil {
			t.Fatal(err)
		}
	}
	w.setAvailable(t, deployment)
}

// workManifests returns the manifests of the worker's ManifestWorks, as JSON.
func (w *way) workManifests(t *testing.T, worker string) []string {
	t.Helper()
	out := w.hub(t, "", "get", "manifestworks", "-n", worker, "-o", "jsonpath={range .items[*].spec.workload.manifests[*]}{@}{\"\\n\"}{end}")
	return strings.Split(strings.TrimSpace(out), "\n")
}

// addOnManifests returns the manifests of the add-on's template with the values of its
// variables, as JSON.
func (w *way) addOnManifests(t *testing.T) []string {
	t.Helper()
	var addOns, configs, templates struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct {
				SupportedConfigs []struct {
					Resource      string
					DefaultConfig struct{ Name string }
				}
				CustomizedVariables []struct{ Name, Value string }
				AgentSpec           struct {
					Workload struct{ Manifests []json.RawMessage }
				}
			}
		}
	}
	for resource, list := range map[string]any{"clustermanagementaddons": &addOns, "addondeploymentconfigs": &configs, "addontemplates": &templates} {
		if err := json.Unmarshal([]byte(w.hub(t, "", "get", addOnKind(resource), "-A", "-o", "json")), list); err != nil {
			t.Fatal(err)
		}
	}
	var variables []string
	for _, c := range configs.Items {
		for _, v := range c.Spec.CustomizedVariables {
			variables = append(variables, "{{"+v.Name+"}}", v.Value)
		}
	}
	var manifests []string
	for _, addOn := range addOns.Items {
		for _, template := range templates.Items {
			for _, config := range addOn.Spec.SupportedConfigs {
				if config.Resource != "addontemplates" || config.DefaultConfig.Name != template.Metadata.Name {
					continue
				}
				for _, m := range template.Spec.AgentSpec.Workload.Manifests {
					manifests = append(manifests, strings.NewReplacer(variables...).Replace(string(m)))
				}
			}
		}
	}
	return manifests
}

// applyWork applies manifests on a worker with the permissions of OCM's work agent, and
// repeats those that fail, because one can be the permission for another.
func (w *way) applyWork(t *testing.T, worker *fleet.Cluster, manifests []string) {
	t.Helper()
	await(w.ctx, t, "the work agent of "+worker.Name+" to apply its manifests", func(ctx context.Context) error {
		var failed []string
		var last error
		for _, m := range manifests {
			if m == "" {
				continue
			}
			if _, err := worker.Kubectl(ctx, m, "apply", "--server-side", "--as="+workAgent, "-f", "-"); err != nil {
				failed, last = append(failed, m), err
			}
		}
		manifests = failed
		return last
	})
}

// monitor does what prometheus-operator and the kubelets of a worker do: it loads the rules,
// and runs the exporters once their DaemonSet and PodMonitor exist.
func (w *way) monitor(t *testing.T, worker *fleet.Cluster) {
	t.Helper()
	if len(w.names(t, worker, "daemonsets")) == 0 || len(w.names(t, worker, "podmonitors")) == 0 || w.exporting[worker.Name] {
		return
	}
	out, err := worker.Kubectl(w.ctx, "", "get", "prometheusrules", "-A", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var rules struct {
		Items []struct {
			Spec struct{ Groups []json.RawMessage }
		}
	}
	if err := json.Unmarshal([]byte(out), &rules); err != nil {
		t.Fatal(err)
	}
	var groups []json.RawMessage
	for _, r := range rules.Items {
		groups = append(groups, r.Spec.Groups...)
	}
	text, err := yaml.Marshal(map[string]any{"groups": groups})
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.LoadRules(w.ctx, text); err != nil {
		t.Fatal(err)
	}
	if err := w.lab.StartExporters(w.ctx, worker.Name); err != nil {
		t.Fatal(err)
	}
	w.exporting[worker.Name] = true
}

// names returns the objects of a kind on a worker.
func (w *way) names(t *testing.T, worker *fleet.Cluster, kind string) []string {
	t.Helper()
	out, err := worker.Kubectl(w.ctx, "", "get", kind, "-A", "-o", "jsonpath={.items[*].metadata.name}")
	if err != nil {
		t.Fatal(fmt.Errorf("%s on %s: %w", kind, worker.Name, err))
	}
	return strings.Fields(out)
}
