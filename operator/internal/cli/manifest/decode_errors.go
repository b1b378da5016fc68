package manifest

import (
	"fmt"
	"regexp"
	"strings"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/cli/hubclient"
)

// The parsers of YAML and JSON report fields only in their messages.
var (
	StrictError = regexp.MustCompile(`unknown field "([^"]+)"`)
	repeatedKey = regexp.MustCompile(`key "([^"]+)" already set in map`)
	typeError   = regexp.MustCompile(`cannot unmarshal (\S+) into Go struct field [^.]+\.(\S+) of type (\S+)`)
)

// IsList reports whether a document is a list of objects, as kubectl get -o yaml prints them.
func IsList(apiVersion, kind string) bool {
	return apiVersion == "v1" && kind == "List" || apiVersion == v1alpha1.GroupVersion.String() && strings.HasSuffix(kind, "List")
}

// ExplainDecodeError returns the path of the field that can't be decoded, and a message
// without the names of Go types.
func ExplainDecodeError(err error) (path, message string) {
	if m := typeError.FindStringSubmatch(err.Error()); m != nil {
		return m[2], "must be of type " + m[3] + ", not " + m[1]
	}
	return "", err.Error()
}

// ExplainUnknownType returns the field that names no type of the API, and what is wrong with it.
// path is empty for a type of the API.
func ExplainUnknownType(apiVersion, kind string) (path, message string) {
	known := v1alpha1.GroupVersion
	switch {
	case apiVersion == "":
		return "apiVersion", fmt.Sprintf("must be %s", known)
	case apiVersion != known.String():
		return "apiVersion", fmt.Sprintf("must be %s, not %s", known, apiVersion)
	case !hubclient.Scheme.Recognizes(known.WithKind(kind)):
		return "kind", fmt.Sprintf("unknown kind: %s has MetricsSource, ScoringPolicy, PlacementGate, CapacityPolicy, ReclaimPolicy and TrialPolicy", known)
	}
	return "", ""
}
