package contract

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clusterv1beta1 "open-cluster-management.io/api/cluster/v1beta1"
	clusterv1beta2 "open-cluster-management.io/api/cluster/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/config/crd"
	plimsoll "plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// sampleDocuments returns all objects of config/samples by file or folder.
func sampleDocuments(t *testing.T) map[string][]byte {
	t.Helper()
	dir := filepath.Join(root, "config", "samples")
	documents := map[string][]byte{"job.yaml": []byte(readFile(t, filepath.Join(dir, "job.yaml")))}
	for _, folder := range []string{"cookbook", "gates"} {
		for _, file := range findFiles(t, filepath.Join(dir, folder), ".yaml") {
			if filepath.Base(filepath.Dir(file)) == "tests" {
				continue // of kubectl plimsoll test
			}
			documents[folder+"/"+filepath.Base(file)] = []byte(readFile(t, file))
		}
	}
	for _, folder := range []string{"hub", "team", "worker"} {
		built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(dir, folder))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range built.Resources() {
			text, err := r.AsYAML()
			if err != nil {
				t.Fatal(err)
			}
			documents[folder+"/"+r.CurId().String()] = text
		}
	}
	return documents
}

var sampleOfFleetTest = regexp.MustCompile(`(?:ApplySample\(ctx, |sample: )"([^"]+)"`)

// Fleet tests, which few checks of a change run, name samples that exist.
func TestFleetTestsNameSamplesThatExist(t *testing.T) {
	found := 0
	for _, folder := range []string{"e2e", "lab/fleet"} {
		for _, file := range findFiles(t, filepath.Join(root, "test", folder), ".go") {
			for _, m := range sampleOfFleetTest.FindAllStringSubmatch(readFile(t, file), -1) {
				found++
				if _, err := os.Stat(filepath.Join(root, "config", "samples", m[1])); err != nil {
					t.Errorf("%s: %v", file, err)
				}
			}
		}
	}
	if found < 5 {
		t.Errorf("found %d names of samples", found)
	}
}

// All fields of the samples exist, and the objects of plimsoll.dev pass the validation
// of their CRDs.
func TestSamplesAreValid(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		admissionregistrationv1.AddToScheme, corev1.AddToScheme, batchv1.AddToScheme, kueue.AddToScheme, clusterv1beta1.Install, clusterv1beta2.Install, plimsoll.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	for name, text := range sampleDocuments(t) {
		t.Run(name, func(t *testing.T) {
			_, kind, err := decoder.Decode(text, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if kind.Group != plimsoll.GroupVersion.Group {
				return
			}
			for _, problem := range validate(t, text) {
				t.Error(problem)
			}
		})
	}
}

func TestValidationAppliesCELRules(t *testing.T) {
	const policy = `{apiVersion: plimsoll.dev/v1alpha1, kind: ScoringPolicy, metadata: {name: x}, spec: {sourceRef: {name: thanos}, scores: [{name: a, query: up, normalize: {type: Linear}}]}}`
	got := strings.Join(validate(t, []byte(policy)), "\n")
	if want := "linear must be set exactly when type is Linear"; !strings.Contains(got, want) {
		t.Errorf("problems %q, want %q", got, want)
	}
}

// validate returns the problems that the API server would report.
func validate(t *testing.T, text []byte) []string {
	t.Helper()
	asJSON, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(asJSON, object); err != nil {
		t.Fatal(err)
	}
	found, err := crd.Validate(t.Context(), object)
	if err != nil {
		t.Fatal(err)
	}
	var problems []string
	for _, p := range found {
		problems = append(problems, p.Error())
	}
	return problems
}
