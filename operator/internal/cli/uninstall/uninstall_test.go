package uninstall

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/operator/internal/cli/installation"
)

// The commands of uninstall --check delete every object that connect creates on a worker.
func TestAccountStepNamesAllObjectsOfAWorker(t *testing.T) {
	step := (&uninstaller{kueue: "kueue-system"}).accountStep()
	_, global, _ := strings.Cut(step.Command, ";")
	for text := range strings.SplitSeq(installation.WorkerManifests, "\n---\n") {
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
