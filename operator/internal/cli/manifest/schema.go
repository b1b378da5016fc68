package manifest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/config/crd"
)

// SchemaProblem is a field that an API server would refuse.
type SchemaProblem struct{ Path, Message string }

// ValidateSchema returns what an API server would refuse in a YAML document. A document
// that is no object has no problems here: decoding reports it.
func ValidateSchema(document []byte) ([]SchemaProblem, error) {
	asJSON, err := yaml.YAMLToJSON(document)
	if err != nil {
		return nil, nil //nolint:nilerr // reported by the decoder, with the position
	}
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(asJSON, object); err != nil {
		return nil, nil //nolint:nilerr // reported by the decoder
	}
	found, err := crd.Validate(context.Background(), object)
	if err != nil {
		return nil, fmt.Errorf("the CRDs of this program are broken: %w", err)
	}
	problems := make([]SchemaProblem, 0, len(found))
	for _, f := range found {
		isRepeated := slices.ContainsFunc(problems, func(p SchemaProblem) bool { return p.Path == f.Field && strings.HasPrefix(p.Message, noQuantity) })
		if f.Field != "<nil>" && !isRepeated { // repeats another error, without the field
			problems = append(problems, SchemaProblem{Path: f.Field, Message: schemaMessage(f, valueAt(object.Object, f.Field))})
		}
	}
	if len(problems) == 0 { // the decoder reports unknown fields
		return nil, nil
	}
	unknown, err := crd.UnknownFields(object)
	for _, path := range unknown {
		problems = append(problems, SchemaProblem{Path: path, Message: "unknown field"})
	}
	return problems, err
}

// wrongType is the message about a value of another type.
var wrongType = regexp.MustCompile(`^must be of type (\S+): "(\S+)"$`)

// noQuantity begins the messages about another value where a quantity is expected.
const noQuantity = "must be a number in quotes"

// typeNames are the names of the schema for types of Go.
var typeNames = map[string]string{"int32": "integer", "int64": "integer", "float64": "number"}

// valueAt returns the value of a field, such as spec.scores[0].name, or nil if there is none.
func valueAt(value any, path string) any {
	for _, step := range strings.FieldsFunc(path, func(r rune) bool { return strings.ContainsRune(".[]", r) }) {
		switch v := value.(type) {
		case map[string]any:
			value = v[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(v) {
				return nil
			}
			value = v[i]
		default:
			return nil
		}
	}
	return value
}

// schemaMessage returns the message of a schema error without the values of Go. value is that of the field.
func schemaMessage(f *field.Error, value any) string {
	switch f.Type { //nolint:exhaustive // the others have a readable body
	case field.ErrorTypeRequired:
		return "must be set"
	case field.ErrorTypeNotSupported:
		return fmt.Sprintf("%v is not supported: must be %s", quoted(f.BadValue), strings.TrimPrefix(f.Detail, "supported values: "))
	case field.ErrorTypeDuplicate:
		return "duplicate " + quoted(f.BadValue)
	case field.ErrorTypeInvalid, field.ErrorTypeTypeInvalid:
		// The path precedes the message, so that "spec.x in body" repeats it.
		detail := f.Detail
		if _, after, ok := strings.Cut(detail, " in body "); ok {
			detail = after
		}
		if m := wrongType.FindStringSubmatch(detail); m != nil {
			if m[1] == "integer,string" { // a quantity
				if fraction, ok := value.(float64); ok {
					return fmt.Sprintf("%s: \"%s\"", noQuantity, quoted(fraction))
				}
				return fmt.Sprintf(`%s, such as "0.1", not %s`, noQuantity, cmp.Or(typeNames[m[2]], m[2]))
			}
			return fmt.Sprintf("must be of type %s, not %s", cmp.Or(typeNames[m[1]], m[1]), cmp.Or(typeNames[m[2]], m[2]))
		}
		return detail
	}
	return f.ErrorBody()
}

func quoted(value any) string {
	if text, ok := value.(string); ok {
		return fmt.Sprintf("%q", text)
	}
	asJSON, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(asJSON)
}
