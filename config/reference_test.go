package config_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

var update = flag.Bool("update", false, "generate operator/docs/api.md")

const referenceFile = "../operator/docs/api.md"

// operator/docs/api.md lists every field of the CRDs.
func TestAPIReferenceIsGenerated(t *testing.T) {
	objects, _ := buildFolder(t, "crd")
	var b strings.Builder
	b.WriteString("# API reference\n\nEvery field of the custom resources in `plimsoll.dev/v1alpha1`, generated from [config/crd](../../config/crd) by `make manifests`. `kubectl explain scoringpolicy.spec` shows the same.\n")
	for _, object := range objects {
		if crd, ok := object.(*apiextensionsv1.CustomResourceDefinition); ok {
			writeReference(&b, crd)
		}
	}
	if *update {
		if err := os.WriteFile(referenceFile, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(filepath.Clean(referenceFile))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(b.String(), string(got)); d != "" {
		t.Errorf("operator/docs/api.md is not up to date: run make manifests (-want +got):\n%s", d)
	}
}

// writeReference writes the fields of a custom resource: a table for spec, and one for
// status.
func writeReference(b *strings.Builder, crd *apiextensionsv1.CustomResourceDefinition) {
	version := crd.Spec.Versions[0]
	schema := version.Schema.OpenAPIV3Schema
	names := append([]string{crd.Spec.Names.Plural}, crd.Spec.Names.ShortNames...)
	fmt.Fprintf(b, "\n## %s\n\n%s Scope: %s. Names for kubectl: `%s`.\n", crd.Spec.Names.Kind, oneLine(schema.Description), crd.Spec.Scope, strings.Join(names, "`, `"))
	for _, part := range []string{"spec", "status"} {
		fmt.Fprintf(b, "\n### %s %s\n\n| field | type | meaning |\n|---|---|---|\n", crd.Spec.Names.Kind, part)
		writeFields(b, "", new(schema.Properties[part]))
		writeRules(b, part, new(schema.Properties[part]))
	}
}

// writeFields writes a row for each field below a schema, depth first.
func writeFields(b *strings.Builder, prefix string, schema *apiextensionsv1.JSONSchemaProps) {
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		field := schema.Properties[name]
		path, child := prefix+name, &field
		if field.Items != nil {
			path, child = path+"[]", field.Items.Schema
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", path, typeOf(&field), meaning(&field, slices.Contains(schema.Required, name)))
		if field.Description == conditionsText(&field) { // the fields of a condition are the same everywhere
			continue
		}
		writeFields(b, path+".", child)
	}
}

// conditionsText returns the description of a list of metav1.Condition, and a text that no
// field has for other fields.
func conditionsText(field *apiextensionsv1.JSONSchemaProps) string {
	if field.Items != nil && len(field.Items.Schema.Properties) == 6 && field.Items.Schema.Properties["lastTransitionTime"].Type != "" {
		return field.Description
	}
	return "-"
}

// typeOf returns the type of a field, with its values if it is an enumeration.
func typeOf(field *apiextensionsv1.JSONSchemaProps) string {
	switch {
	case len(field.Enum) > 0:
		var values []string
		for _, v := range field.Enum {
			var text string
			if err := json.Unmarshal(v.Raw, &text); err != nil {
				text = string(v.Raw)
			}
			values = append(values, "`"+text+"`")
		}
		return strings.Join(values, ", ")
	case field.Items != nil:
		return "list of " + typeOf(field.Items.Schema)
	case field.AdditionalProperties != nil && field.AdditionalProperties.Schema != nil:
		return "map of " + typeOf(field.AdditionalProperties.Schema)
	case field.XIntOrString:
		return "integer or string"
	case field.Format == "date-time":
		return "time"
	}
	return field.Type
}

// meaning returns the description of a field, and whether it is required.
func meaning(field *apiextensionsv1.JSONSchemaProps, required bool) string {
	text := strings.ReplaceAll(oneLine(field.Description), "|", `\|`)
	if required && !strings.Contains(text, "Required") {
		text += " Required."
	}
	if field.Default != nil && !strings.Contains(text, "Default") {
		text += " Default `" + string(field.Default.Raw) + "`."
	}
	return strings.TrimSpace(text)
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// writeRules writes the messages of the validation rules below a schema.
func writeRules(b *strings.Builder, path string, schema *apiextensionsv1.JSONSchemaProps) {
	messages := map[string]bool{}
	collectRules(messages, "", schema)
	if len(messages) == 0 {
		return
	}
	fmt.Fprintf(b, "\nRules of `%s`:\n\n", path)
	for _, message := range slices.Sorted(maps.Keys(messages)) {
		fmt.Fprintf(b, "- %s\n", message)
	}
}

func collectRules(messages map[string]bool, path string, schema *apiextensionsv1.JSONSchemaProps) {
	for _, rule := range schema.XValidations {
		prefix := ""
		if path != "" {
			prefix = "`" + path + "`: "
		}
		messages[prefix+strings.ReplaceAll(oneLine(rule.Message), "|", `\|`)] = true
	}
	for name, field := range schema.Properties {
		child := strings.TrimPrefix(path+"."+name, ".")
		collectRules(messages, child, &field)
		if field.Items != nil && field.Items.Schema != nil {
			collectRules(messages, child+"[]", field.Items.Schema)
		}
	}
}
