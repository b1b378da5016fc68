package contract

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	clusterv1beta1 "open-cluster-management.io/api/cluster/v1beta1"
	clusterv1beta2 "open-cluster-management.io/api/cluster/v1beta2"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	plimsoll "plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// Each YAML block of a document parses. Objects have only fields that exist, and those of
// plimsoll.dev pass the validation of their CRDs.
func TestYAMLOfDocuments(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		admissionregistrationv1.AddToScheme, corev1.AddToScheme, batchv1.AddToScheme, rbacv1.AddToScheme, kueue.AddToScheme, kueueconfig.AddToScheme,
		addonv1alpha1.Install, clusterv1beta1.Install, clusterv1beta2.Install, plimsoll.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	objects := 0
	for _, d := range readDocuments(t) {
		for _, b := range d.blocks {
			if b.language != "yaml" {
				continue
			}
			for _, text := range strings.Split("\n"+b.code, "\n---\n") {
				if !strings.Contains(text, "apiVersion:") {
					var fragment any
					if err := yaml.UnmarshalStrict([]byte(dedent(text)), &fragment); err != nil {
						t.Errorf("%s:%d: %v", d.path, b.line, err)
					}
					continue
				}
				objects++
				_, kind, err := decoder.Decode([]byte(text), nil, nil)
				if err != nil {
					t.Errorf("%s:%d: %v", d.path, b.line, err)
					continue
				}
				if kind.Group != plimsoll.GroupVersion.Group {
					continue
				}
				for _, problem := range validate(t, []byte(text)) {
					t.Errorf("%s:%d: %s", d.path, b.line, problem)
				}
			}
		}
	}
	if objects == 0 {
		t.Error("no document contains an object")
	}
}

// dedent removes the indentation of the first line from all lines.
func dedent(text string) string {
	first := strings.TrimLeft(text, "\n")
	indent := first[:len(first)-len(strings.TrimLeft(first, " "))]
	var out strings.Builder
	for line := range strings.Lines(first) {
		out.WriteString(strings.TrimPrefix(line, indent))
	}
	return out.String()
}
