// Package config_test checks the manifests in config.
package config_test

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	clusterv1beta1 "open-cluster-management.io/api/cluster/v1beta1"
	clusterv1beta2 "open-cluster-management.io/api/cluster/v1beta2"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "regenerate addon/template.yaml from exporter/ and exporter-tpu/")

// folders are the kustomizations to apply.
var folders = []string{"crd", "rbac", "operator", "exporter", "exporter/pod-owners", "exporter-tpu", "exporter-tpu/plugin-metrics", "addon", "default", "nomination"}

// build builds a folder like kubectl apply -k, decodes each object strictly, and returns
// the objects and their YAML documents.
func build(t *testing.T, folder string) (objects []runtime.Object, documents [][]byte) {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, rbacv1.AddToScheme, networkingv1.AddToScheme, apiextensionsv1.AddToScheme,
		admissionregistrationv1.AddToScheme, addonv1alpha1.Install, clusterv1beta1.Install, clusterv1beta2.Install,
	} {
		utilruntime.Must(add(scheme))
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	for _, resource := range built.Resources() {
		document, err := resource.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		object, _, err := decoder.Decode(document, nil, nil)
		if err != nil {
			t.Errorf("%s: %s: %v", folder, resource.CurId(), err)
			continue
		}
		objects, documents = append(objects, object), append(documents, document)
	}
	return objects, documents
}

func TestEveryFolderBuildsAndDecodes(t *testing.T) {
	for _, folder := range folders {
		t.Run(folder, func(t *testing.T) {
			if objects, _ := build(t, folder); len(objects) == 0 {
				t.Error("the folder contains no objects")
			}
		})
	}
}

// TestNoRoleHasWildcard checks that no role grants *, the operator's included.
func TestNoRoleHasWildcard(t *testing.T) {
	for _, folder := range folders {
		t.Run(folder, func(t *testing.T) {
			objects, _ := build(t, folder)
			for _, object := range objects {
				var rules []rbacv1.PolicyRule
				switch role := object.(type) {
				case *rbacv1.ClusterRole:
					rules = role.Rules
				case *rbacv1.Role:
					rules = role.Rules
				}
				for _, r := range rules {
					if slices.Contains(slices.Concat(r.APIGroups, r.Resources, r.Verbs, r.NonResourceURLs), "*") {
						t.Errorf("a rule contains *: %v", r)
					}
				}
			}
		})
	}
}

// TestSecretsAreReadOnlyInTheOperatorsNamespace checks the operator's permissions for
// Secrets: get, list and watch in plimsoll-system, and none in other namespaces.
func TestSecretsAreReadOnlyInTheOperatorsNamespace(t *testing.T) {
	objects, _ := build(t, "default")
	seen := false
	for _, object := range objects {
		switch role := object.(type) {
		case *rbacv1.ClusterRole:
			for _, r := range role.Rules {
				if slices.Contains(r.Resources, "secrets") {
					t.Errorf("ClusterRole %s may read the Secrets of all namespaces", role.Name)
				}
			}
		case *rbacv1.Role:
			for _, r := range role.Rules {
				if slices.Contains(r.Resources, "secrets") {
					seen = seen || role.Namespace == "plimsoll-system"
					if want := []string{"get", "list", "watch"}; !cmp.Equal(want, r.Verbs) {
						t.Errorf("Role %s has the verbs %v for Secrets, want %v", role.Name, r.Verbs, want)
					}
				}
			}
		}
	}
	if !seen {
		t.Error("the operator has no permission to read Secrets in plimsoll-system")
	}
}

// TestBindingsNameRolesThatExist checks that the role of each binding is part of the same
// manifests.
func TestBindingsNameRolesThatExist(t *testing.T) {
	objects, _ := build(t, "rbac")
	owners, _ := build(t, "exporter/pod-owners")
	objects = append(objects, owners...)
	roles := map[string]bool{}
	for _, object := range objects {
		switch role := object.(type) {
		case *rbacv1.ClusterRole:
			roles["ClusterRole/"+role.Name] = true
		case *rbacv1.Role:
			roles["Role/"+role.Name] = true
		}
	}
	for _, object := range objects {
		switch binding := object.(type) {
		case *rbacv1.ClusterRoleBinding:
			if ref := binding.RoleRef; !roles[ref.Kind+"/"+ref.Name] {
				t.Errorf("ClusterRoleBinding %s: no %s %s", binding.Name, ref.Kind, ref.Name)
			}
		case *rbacv1.RoleBinding:
			if ref := binding.RoleRef; !roles[ref.Kind+"/"+ref.Name] {
				t.Errorf("RoleBinding %s: no %s %s", binding.Name, ref.Kind, ref.Name)
			}
		}
	}
}

// TestAddOnContainsExporter checks that the add-on installs the same objects as
// config/exporter and config/exporter-tpu, except the network policies: the worker's
// administrator decides about these.
func TestAddOnContainsExporter(t *testing.T) {
	_, documents := build(t, "exporter")
	_, tpu := build(t, "exporter-tpu")
	want := addOnTemplate(t, append(documents, tpu...))
	path := filepath.Join("addon", "template.yaml")
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is not up to date, run go test ./config -update (-want +got):\n%s", path, diff)
	}
}

// addOnTemplate returns the text of the AddOnTemplate with the documents as manifests.
func addOnTemplate(t *testing.T, documents [][]byte) string {
	var manifests []any
	for _, document := range documents {
		var manifest map[string]any
		if err := yaml.Unmarshal(document, &manifest); err != nil {
			t.Fatal(err)
		}
		if manifest["kind"] != "NetworkPolicy" {
			manifests = append(manifests, manifest)
		}
	}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "addon.open-cluster-management.io/v1alpha1",
		"kind":       "AddOnTemplate",
		"metadata":   map[string]any{"name": "plimsoll-exporter"},
		"spec": map[string]any{
			"addonName": "plimsoll-exporter",
			"agentSpec": map[string]any{"workload": map[string]any{"manifests": manifests}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "{{") {
		t.Error("the manifests contain {{, which the add-on framework would replace")
	}
	return "# Generated from ../exporter and ../exporter-tpu: go test ./config -update\n" + string(text)
}
