// Package config_test tests the manifests for users.
package config_test

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	clusterv1beta1 "open-cluster-management.io/api/cluster/v1beta1"
	clusterv1beta2 "open-cluster-management.io/api/cluster/v1beta2"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/config"
)

func TestMain(m *testing.M) {
	if err := config.Generate(".."); err != nil {
		fmt.Fprintln(os.Stderr, "generate config:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

var folders = []string{"crd", "rbac", "operator", "exporter", "exporter/pod-owners", "exporter/claim-shares", "exporter-tpu", "exporter-tpu/plugin-metrics", "exporter-amd", "addon", "default", "guard", "nomination", "gate-first", "ui"}

// buildFolder builds a folder like `kubectl apply -k` and decodes all objects strictly.
func buildFolder(t *testing.T, folder string) (objects []runtime.Object, documents [][]byte) {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, rbacv1.AddToScheme, networkingv1.AddToScheme, apiextensionsv1.AddToScheme, policyv1.AddToScheme, schedulingv1.AddToScheme,
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

func TestFoldersBuildAndDecode(t *testing.T) {
	for _, folder := range folders {
		t.Run(folder, func(t *testing.T) {
			if objects, _ := buildFolder(t, folder); len(objects) == 0 {
				t.Error("the folder has no objects")
			}
		})
	}
}

func TestRolesHaveNoWildcards(t *testing.T) {
	for _, folder := range folders {
		objects, _ := buildFolder(t, folder)
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
					t.Errorf("%s: a rule has a wildcard: %v", folder, r)
				}
			}
		}
	}
}

func TestSecretsAreReadableOnlyInOperatorNamespace(t *testing.T) {
	objects, _ := buildFolder(t, "default")
	readable := false
	for _, object := range objects {
		switch role := object.(type) {
		case *rbacv1.ClusterRole:
			for _, r := range role.Rules {
				if slices.Contains(r.Resources, "secrets") {
					t.Errorf("ClusterRole %s grants access to Secrets of all namespaces", role.Name)
				}
			}
		case *rbacv1.Role:
			for _, r := range role.Rules {
				if slices.Contains(r.Resources, "secrets") {
					readable = readable || role.Namespace == "plimsoll-system"
					if want := []string{"list", "watch"}; !cmp.Equal(want, r.Verbs) {
						t.Errorf("Role %s grants %v on Secrets, want %v", role.Name, r.Verbs, want)
					}
				}
			}
		}
	}
	if !readable {
		t.Error("no Role grants access to Secrets in plimsoll-system")
	}
}

func TestBindingsReferenceExistingRoles(t *testing.T) {
	objects, _ := buildFolder(t, "rbac")
	for _, component := range []string{"exporter/pod-owners", "exporter/claim-shares"} {
		more, _ := buildFolder(t, component)
		objects = append(objects, more...)
	}
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
				t.Errorf("ClusterRoleBinding %s references a missing %s %s", binding.Name, ref.Kind, ref.Name)
			}
		case *rbacv1.RoleBinding:
			if ref := binding.RoleRef; !roles[ref.Kind+"/"+ref.Name] {
				t.Errorf("RoleBinding %s references a missing %s %s", binding.Name, ref.Kind, ref.Name)
			}
		}
	}
}

// Deleting config/default must keep the objects of users: a CRD would take them with it.
func TestDefaultHasNoCRDs(t *testing.T) {
	objects, _ := buildFolder(t, "default")
	for _, object := range objects {
		if crd, ok := object.(*apiextensionsv1.CustomResourceDefinition); ok {
			t.Errorf("config/default contains the CRD %s", crd.Name)
		}
	}
}

// buildUntyped builds a folder with objects that are not in the scheme of buildFolder.
func buildUntyped(t *testing.T, folder string) []*unstructured.Unstructured {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatal(err)
	}
	var objects []*unstructured.Unstructured
	for _, resource := range built.Resources() {
		text, err := resource.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &object.Object); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, object)
	}
	return objects
}
