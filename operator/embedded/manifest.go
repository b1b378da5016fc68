package embedded

import (
	"context"
	"fmt"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/config/crd"
)

// Manifest is an object in YAML.
type Manifest struct {
	Object []byte
	// Patch is merged into the object, as `kubectl patch --type=merge` does; nil = none.
	Patch []byte
}

// decode decodes the patched object. It sets defaults and validates the object, as an API
// server does.
func (m Manifest) decode(ctx context.Context, into any) error {
	text, err := yaml.YAMLToJSON(m.Object)
	if err != nil {
		return err
	}
	if m.Patch != nil {
		if text, err = jsonpatch.MergePatch(text, m.Patch); err != nil {
			return fmt.Errorf("patch: %w", err)
		}
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(text); err != nil {
		return err
	}
	problems, err := crd.Validate(ctx, object)
	if err != nil {
		return err
	}
	if len(problems) > 0 {
		return problems.ToAggregate()
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, into, true)
}
