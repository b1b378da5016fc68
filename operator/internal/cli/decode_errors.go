package cli

import (
	"fmt"
	"regexp"
	"strings"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// The parsers of YAML and JSON report fields only in their messages.
var (
	strictError = regexp.MustCompile(`unknown field "([^"]+)"`)
	repeatedKey = regexp.MustCompile(`key "([^"]+)" already set in map`)
	typeError   = regexp.MustCompile(`cannot unmarshal (\S+) into Go struct field [^.]+\.(\S+) of type (\S+)`)
)

// isList reports whether a document is a list of objects, as kubectl get -o yaml prints them.
func isList(apiVersion, kind string) bool {
	return apiVersion == "v1" && kind == "List" || apiVersion == v1alpha1.GroupVersion.String() && strings.HasSuffix(kind, "List")
}

// explainDecodeError returns the path of the field that can't be decoded, and a message
// without the names of Go types.
func explainDecodeError(err error) (path, message string) {
	if m := typeError.FindStringSubmatch(err.Error()); m != nil {
		return m[2], "must be of type " + m[3] + ", not " + m[1]
	}
	return "", err.Error()
}

// explainUnknownType returns the field that names no type of the API, and what is wrong with it.
// path is empty for a type of the API.
func explainUnknownType(apiVersion, kind string) (path, message string) {
	known := v1alpha1.GroupVersion
	switch {
	case apiVersion == "":
		return "apiVersion", fmt.Sprintf("must be %s", known)
	case apiVersion != known.String():
		return "apiVersion", fmt.Sprintf("must be %s, not %s", known, apiVersion)
	case !scheme.Recognizes(known.WithKind(kind)):
		return "kind", fmt.Sprintf("unknown kind: %s has MetricsSource, ScoringPolicy, PlacementGate, CapacityPolicy, ReclaimPolicy and TrialPolicy", known)
	}
	return "", ""
}
