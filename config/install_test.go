//go:build integration

package config_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	plimsoll "plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// installation is a set of manifests, with the namespace and its pod security level.
type installation struct {
	name      string
	namespace string
	level     string
	objects   func(t *testing.T) []*unstructured.Unstructured
}

var installations = []installation{
	{"kustomize", "plimsoll-system", "restricted", func(t *testing.T) []*unstructured.Unstructured {
		return slices.Concat(buildUntyped(t, "crd"), buildUntyped(t, "default"), buildUntyped(t, "guard"))
	}},
	{"chart", "plimsoll-system", "restricted", renderedChart("plimsoll", "plimsoll-system", `{dashboards: {enabled: true}}`)},
	{"chart in another namespace", "elsewhere", "restricted", renderedChart("plimsoll", "elsewhere",
		`{nomination: {enabled: true}, gateFirst: {enabled: true}, logFormat: json, replicas: 3, image: {repository: registry.example.com/op}, extraArgs: ["--ledger-settle=1m"], imagePullSecrets: [{name: pull}]}`)},
	{"exporter", "plimsoll-exporter", "privileged", func(t *testing.T) []*unstructured.Unstructured {
		return slices.Concat(buildUntyped(t, "exporter"), buildUntyped(t, "exporter-tpu"), buildUntyped(t, "exporter-amd"))
	}},
	{"exporter chart", "plimsoll-exporter", "privileged", renderedChart("plimsoll-exporter", "plimsoll-exporter", `{}`)},
	{"exporter chart with pod owners", "plimsoll-exporter", "privileged", renderedChart("plimsoll-exporter", "plimsoll-exporter", `{podOwners: {enabled: true}, kubeletRoot: /var/lib/k0s/kubelet}`)},
	{"exporter chart for GKE", "plimsoll-exporter", "privileged", renderedChart("plimsoll-exporter", "plimsoll-exporter", `{platform: gke}`)},
	{"exporter chart for CDI", "plimsoll-exporter", "privileged", renderedChart("plimsoll-exporter", "plimsoll-exporter", `{platform: cdi}`)},
	{"exporter chart without GPUs", "monitoring", "privileged", renderedChart("plimsoll-exporter", "monitoring", `{platform: sim, amd: {enabled: false}, tpu: {enabled: false}}`)},
}

// renderedChart returns the manifests of a chart, as `helm template` prints them.
func renderedChart(name, namespace, values string) func(t *testing.T) []*unstructured.Unstructured {
	return func(t *testing.T) []*unstructured.Unstructured {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "go", "-C", "../.tools/charts", "run", "./generate", "--render="+name, "--namespace="+namespace, "--values="+values)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("render %s: %v\n%s", name, err, stderr.String())
		}
		return parseManifests(t, out)
	}
}

func parseManifests(t *testing.T, text []byte) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		u := &unstructured.Unstructured{}
		err := decoder.Decode(&u.Object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(u.Object) > 0 {
			objects = append(objects, u)
		}
	}
}

// An API server accepts the manifests of kustomize and of the charts. A second apply
// changes nothing. Removal leaves only the CRDs, with the objects of users.
func TestInstallAndRemove(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	_, hub := startEnvironment(t, &envtest.Environment{CRDDirectoryPaths: ocmScoreCRDs(t), CRDs: kueueCRDs(t), ErrorIfCRDPathMissing: true, CRDInstallOptions: envtest.CRDInstallOptions{MaxTime: time.Minute}})
	if err := hub.Create(ctx, &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "nvidia"}, Handler: "nvidia"}); err != nil {
		t.Fatal(err)
	}
	for _, install := range installations {
		t.Run(install.name, func(t *testing.T) {
			objects := install.objects(t)
			createNamespace(ctx, t, hub, install)
			for _, o := range objects {
				apply(ctx, t, hub, o)
			}
			versions := resourceVersions(ctx, t, hub, objects)
			createPods(ctx, t, hub, objects, install.namespace)
			for _, o := range objects {
				apply(ctx, t, hub, o)
			}
			for key, version := range resourceVersions(ctx, t, hub, objects) {
				if versions[key] != version {
					t.Errorf("a second apply changes %s", key)
				}
			}
			source := createUserObject(ctx, t, hub, install)
			remove(ctx, t, hub, objects)
			if source != nil {
				if err := hub.Get(ctx, client.ObjectKeyFromObject(source), source); err != nil {
					t.Errorf("the MetricsSource of a user after the removal: %v", err)
				}
			}
		})
	}
}

// createNamespace creates the namespace of a release with its pod security level. The
// folders of kustomize contain theirs, with the same level.
func createNamespace(ctx context.Context, t *testing.T, hub client.Client, install installation) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: install.namespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": install.level}}}
	if err := hub.Create(ctx, ns); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// apply does the same as `kubectl apply --server-side`, which refuses unknown fields.
func apply(ctx context.Context, t *testing.T, hub client.Client, o *unstructured.Unstructured) {
	t.Helper()
	if err := hub.Apply(ctx, client.ApplyConfigurationFromUnstructured(o.DeepCopy()), client.FieldOwner("kubectl")); err != nil {
		t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
	}
}

func objectKey(o *unstructured.Unstructured) string {
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}

func resourceVersions(ctx context.Context, t *testing.T, hub client.Client, objects []*unstructured.Unstructured) map[string]string {
	t.Helper()
	versions := map[string]string{}
	for _, o := range objects {
		if o.GetKind() == "CustomResourceDefinition" { // its status changes
			continue
		}
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(o.GroupVersionKind())
		if err := hub.Get(ctx, client.ObjectKeyFromObject(o), live); err != nil {
			t.Errorf("%s: %v", objectKey(o), err)
			continue
		}
		versions[objectKey(o)] = live.GetResourceVersion()
	}
	return versions
}

// createPods creates a pod of each Deployment and DaemonSet: the namespace and the
// priority classes must admit it.
func createPods(ctx context.Context, t *testing.T, hub client.Client, objects []*unstructured.Unstructured, namespace string) {
	t.Helper()
	found := false
	for _, o := range objects {
		if o.GetKind() != "Deployment" && o.GetKind() != "DaemonSet" {
			continue
		}
		found = true
		template, _, err := unstructured.NestedMap(o.Object, "spec", "template")
		if err != nil {
			t.Fatal(err)
		}
		pod := &corev1.Pod{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(template, pod); err != nil {
			t.Fatal(err)
		}
		pod.Namespace, pod.Name, pod.GenerateName = namespace, "", o.GetName()+"-"
		if err := hub.Create(ctx, pod); err != nil {
			t.Errorf("a pod of %s: %v", objectKey(o), err)
			continue
		}
		if err := hub.Delete(ctx, pod, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
	}
	if !found {
		t.Error("the manifests run nothing")
	}
}

// createUserObject creates a MetricsSource, if the manifests contain its CRD.
func createUserObject(ctx context.Context, t *testing.T, hub client.Client, install installation) *unstructured.Unstructured {
	t.Helper()
	if install.level != "restricted" { // an exporter has no CRDs
		return nil
	}
	source := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": plimsoll.GroupVersion.String(), "kind": "MetricsSource", "metadata": map[string]any{"generateName": "thanos-"},
		"spec": map[string]any{"url": "https://thanos.example.com"},
	}}
	if err := hub.Create(ctx, source); err != nil {
		t.Fatal(err)
	}
	return source
}

// remove deletes the objects in reverse order as `kubectl delete` and Helm do, without the
// CRDs. This API server runs no controllers, so it skips namespaces.
func remove(ctx context.Context, t *testing.T, hub client.Client, objects []*unstructured.Unstructured) {
	t.Helper()
	for _, o := range slices.Backward(objects) {
		if o.GetKind() == "CustomResourceDefinition" || o.GetKind() == "Namespace" {
			continue
		}
		if err := hub.Delete(ctx, o.DeepCopy()); err != nil {
			t.Errorf("delete %s: %v", objectKey(o), err)
		}
		live := o.DeepCopy()
		if err := hub.Get(ctx, client.ObjectKeyFromObject(o), live); !apierrors.IsNotFound(err) {
			t.Errorf("%s remains after the removal: %v", objectKey(o), err)
		}
	}
}

// The apply in these tests refuses what a schema does not contain.
func TestApplyIsStrict(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, hub := startAPIServer(t, "crd")
	for _, text := range []string{
		`{apiVersion: plimsoll.dev/v1alpha1, kind: MetricsSource, metadata: {name: x}, spec: {url: "https://a.example.com", timeOut: 5}}`,
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: default}, date: {}}`,
	} {
		o := parseManifests(t, []byte(text))[0]
		if err := hub.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("kubectl")); err == nil || !strings.Contains(err.Error(), "field not declared in schema") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
