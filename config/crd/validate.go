// Package crd has the CustomResourceDefinitions of plimsoll.dev, and validates objects as
// an API server with these definitions would.
package crd

import (
	"context"
	"embed"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

//go:embed plimsoll.dev_*.yaml
var files embed.FS

// validator is the compiled schema of a kind.
type validator struct {
	structural *schema.Structural
	schema     validation.SchemaValidator
	rules      *cel.Validator
}

// Validate returns the problems of an object of plimsoll.dev/v1alpha1 that the API server
// would report: it applies the defaults to object, and then checks types, enums, bounds,
// patterns, duplicate list items and CEL rules. Unknown fields are not reported. It returns
// an error if the definitions are broken, and no problems for an unknown kind.
func Validate(ctx context.Context, object *unstructured.Unstructured) (field.ErrorList, error) {
	kinds, err := validators()
	if err != nil {
		return nil, err
	}
	v, ok := kinds[object.GetKind()]
	if !ok {
		return nil, nil
	}
	defaulting.Default(object.Object, v.structural)
	problems := validation.ValidateCustomResource(nil, object.Object, v.schema)
	problems = append(problems, listtype.ValidateListSetsAndMaps(nil, v.structural, object.Object)...)
	if v.rules != nil && !slices.ContainsFunc(problems, blocksRules) {
		found, _ := v.rules.Validate(ctx, nil, v.structural, object.Object, nil, celconfig.RuntimeCELCostBudget)
		problems = append(problems, found...)
	}
	return problems, nil
}

// UnknownFields returns the paths of the fields of an object that its kind does not have, and none for an unknown kind.
func UnknownFields(object *unstructured.Unstructured) ([]string, error) {
	kinds, err := validators()
	if err != nil || kinds[object.GetKind()] == nil {
		return nil, err
	}
	return pruning.PruneWithOptions(object.DeepCopy().Object, kinds[object.GetKind()].structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}), nil
}

// blocksRules reports whether the CEL rules can't be evaluated because of a problem. The API
// server skips them for the same problems.
func blocksRules(e *field.Error) bool {
	switch e.Type { //nolint:exhaustive // the others do not
	case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
		return true
	}
	return false
}

// validators compiles the definitions once. The key is the kind.
var validators = sync.OnceValues(func() (map[string]*validator, error) {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("list CRDs: %w", err)
	}
	kinds := map[string]*validator{}
	for _, entry := range entries {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		content, err := files.ReadFile(entry.Name())
		if err != nil {
			return nil, fmt.Errorf("read CRD: %w", err)
		}
		if err := yaml.UnmarshalStrict(content, definition); err != nil {
			return nil, fmt.Errorf("%s: %w", entry.Name(), err)
		}
		if kinds[definition.Spec.Names.Kind], err = compile(definition); err != nil {
			return nil, fmt.Errorf("%s: %w", entry.Name(), err)
		}
	}
	return kinds, nil
})

func compile(definition *apiextensionsv1.CustomResourceDefinition) (*validator, error) {
	internal := &apiextensions.CustomResourceValidation{}
	err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(definition.Spec.Versions[0].Schema, internal, nil)
	if err != nil {
		return nil, err
	}
	v := &validator{}
	if v.structural, err = schema.NewStructural(internal.OpenAPIV3Schema); err != nil {
		return nil, err
	}
	if v.schema, _, err = validation.NewSchemaValidator(internal.OpenAPIV3Schema); err != nil {
		return nil, err
	}
	v.rules = cel.NewValidator(v.structural, true, celconfig.PerCallLimit)
	return v, nil
}
