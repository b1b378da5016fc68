package config_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// The description of a number in a spec states its limits, because `kubectl explain` does not show them.
func TestDescriptionsStateLimits(t *testing.T) {
	objects, _ := buildFolder(t, "crd")
	found := 0
	for _, object := range objects {
		crd, ok := object.(*apiextensionsv1.CustomResourceDefinition)
		if !ok {
			continue
		}
		spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
		visitFields(crd.Spec.Names.Kind+".spec", &spec, func(path string, field *apiextensionsv1.JSONSchemaProps) {
			if field.Minimum == nil || field.Maximum == nil {
				return
			}
			found++
			wants := []string{fmt.Sprintf("from %.0f to %.0f.", *field.Minimum, *field.Maximum)}
			if *field.Minimum == 0 {
				wants = append(wants, fmt.Sprintf("at most %.0f.", *field.Maximum))
			}
			text := strings.ReplaceAll(oneLine(field.Description), "From ", "from ")
			if !slices.ContainsFunc(wants, func(want string) bool { return strings.Contains(text, want) }) {
				t.Errorf("%s: no %q in %q", path, wants[0], oneLine(field.Description))
			}
		})
	}
	if found < 40 {
		t.Errorf("%d numbers with limits", found)
	}
}

// visitFields calls visit for each field below a schema.
func visitFields(path string, schema *apiextensionsv1.JSONSchemaProps, visit func(string, *apiextensionsv1.JSONSchemaProps)) {
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		field := schema.Properties[name]
		visit(path+"."+name, &field)
		visitFields(path+"."+name, &field, visit)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		visitFields(path+"[]", schema.Items.Schema, visit)
	}
}
