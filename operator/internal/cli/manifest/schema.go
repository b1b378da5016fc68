package manifest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
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
		isRepeated := slices.ContainsFunc(problems, func(p SchemaProblem) bool { return p.Path == f.Field && p.Message == unquotedNumber })
		if f.Field != "<nil>" && !isRepeated { // repeats another error, without the field
			problems = append(problems, SchemaProblem{Path: f.Field, Message: schemaMessage(f)})
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

// unquotedNumber is the message about a decimal fraction where a quantity is expected.
const unquotedNumber = `must be in quotes, such as "0.1"`

// typeNames are the names of the schema for types of Go.
var typeNames = map[string]string{"int32": "integer", "int64": "integer", "float64": "number"}

// schemaMessage returns the message of a schema error without the values of Go.
func schemaMessage(f *field.Error) string {
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
				return unquotedNumber
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
