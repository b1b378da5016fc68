package charts

import (
	"encoding/json"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

// value is a setting of a chart. values.yaml, values.schema.json and the table in README.md
// are generated from it.
type value struct {
	path   string // such as image.tag
	def    any
	schema map[string]any // of the value, without default and description
	text   string         // what the setting does
}

var (
	str      = map[string]any{"type": "string"}
	boolean  = map[string]any{"type": "boolean"}
	anyMap   = map[string]any{"type": "object"}
	textMap  = map[string]any{"type": "object", "additionalProperties": str}
	anyList  = map[string]any{"type": "array", "items": map[string]any{"type": "object"}}
	textList = map[string]any{"type": "array", "items": str}
)

func oneOf(values ...string) map[string]any { return map[string]any{"type": "string", "enum": values} }
func atLeast(n int) map[string]any          { return map[string]any{"type": "integer", "minimum": n} }

// imageValues are the settings of the image.
func imageValues(name string) []value {
	return []value{
		{"image.repository", name, map[string]any{"type": "string", "minLength": 1}, "Image without tag."},
		{"image.tag", "", str, "Tag. Default: the version of the chart's application."},
		{"image.digest", "", map[string]any{"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"}, "Digest, such as sha256:…. It takes precedence over the tag."},
		{"image.pullPolicy", "IfNotPresent", oneOf("Always", "IfNotPresent", "Never"), "Pull policy."},
		{"imagePullSecrets", []any{}, anyList, "Secrets for the registry, as in a pod: [{name: …}]."},
	}
}

// tree returns the values as a nested map. leaf returns the entry of a value.
func tree(values []value, leaf func(value) any, node func(map[string]any) map[string]any) map[string]any {
	root := map[string]any{}
	for _, v := range values {
		at, keys := root, strings.Split(v.path, ".")
		for _, key := range keys[:len(keys)-1] {
			if at[key] == nil {
				at[key] = node(map[string]any{})
			}
			at = children(at[key].(map[string]any))
		}
		at[keys[len(keys)-1]] = leaf(v)
	}
	return root
}

// children returns the map of a node that holds its children: that of a schema is below
// properties.
func children(node map[string]any) map[string]any {
	if properties, ok := node["properties"].(map[string]any); ok {
		return properties
	}
	return node
}

// valuesFiles returns values.yaml and values.schema.json.
func valuesFiles(values []value) (yamlText, schemaText string, err error) {
	defaults := tree(values, func(v value) any { return v.def }, func(m map[string]any) map[string]any { return m })
	text, err := yaml.Marshal(defaults)
	if err != nil {
		return "", "", err
	}
	closed := func(properties map[string]any) map[string]any {
		return map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
	}
	schema := closed(tree(values, func(v value) any {
		entry := map[string]any{"description": v.text, "default": v.def}
		for key, x := range v.schema {
			entry[key] = x
		}
		return entry
	}, closed))
	// Helm passes the values of a parent chart in global.
	schema["properties"].(map[string]any)["global"] = anyMap
	schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	encoded, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		return "", "", err
	}
	return "# Defaults. README.md describes each value.\n" + string(text), string(encoded) + "\n", nil
}

// valuesTable returns the values as a Markdown table.
func valuesTable(values []value) (string, error) {
	var b strings.Builder
	b.WriteString("| value | default | meaning |\n|---|---|---|\n")
	for _, v := range values {
		def, err := json.Marshal(v.def)
		if err != nil {
			return "", err
		}
		text := v.text
		if choices, ok := v.schema["enum"].([]string); ok {
			text += " One of " + strings.Join(choices, ", ") + "."
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s |\n", v.path, def, text)
	}
	return b.String(), nil
}
