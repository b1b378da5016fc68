package contract

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// fieldRow is a row of the API reference, which is generated from the CRDs.
	fieldRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|")
	// namedField is a field in inline code, with or without a value: a path such as missing.keepLastSeconds, or
	// one name with a unit.
	namedField = regexp.MustCompile("`(?:spec\\.|status\\.)?([a-z][A-Za-z]*(?:(?:\\[\\])?\\.[a-z][A-Za-z]*)+|[a-z][A-Za-z]*(?:Seconds|Hours|Percent|Points))(?:: [^`]*)?`")
)

// foreignFields are fields of Kueue, Kubernetes and our charts, and of a workload's annotation.
var foreignFields = []string{
	"multiKueue.dispatcherName", "multiKueue.workerLostTimeout", "requeueAfterSeconds", "maximumExecutionTimeSeconds",
	"terminationGracePeriodSeconds", "activeDeadlineSeconds", "capacity.requests", "trials.enabled", "source.url", "unplacedSeconds",
}

// Each field of our API that a document names exists. A path may omit its beginning.
func TestFieldsOfDocuments(t *testing.T) {
	known, first := map[string]bool{}, map[string]bool{}
	for _, m := range fieldRow.FindAllStringSubmatch(readFile(t, filepath.Join(root, "operator/docs/api.md")), -1) {
		parts := strings.Split(strings.ReplaceAll(m[1], "[]", ""), ".")
		for i := range parts {
			first[parts[i]] = true
			for j := i + 1; j <= len(parts); j++ {
				known[strings.Join(parts[i:j], ".")] = true
			}
		}
	}
	for _, d := range readDocuments(t) {
		if d.path == "operator/docs/json.md" || d.path != "README.md" && !strings.HasPrefix(d.path, "operator/docs/") && !strings.HasPrefix(d.path, "rules/") {
			continue
		}
		for _, m := range namedField.FindAllStringSubmatch(withoutCode(d.text), -1) {
			path := strings.ReplaceAll(m[1], "[]", "")
			begin, _, isPath := strings.Cut(path, ".")
			isFile := slices.Contains([]string{".json", ".yaml"}, filepath.Ext(path))
			if (first[begin] || !isPath) && !isFile && !known[path] && !slices.Contains(foreignFields, path) {
				t.Errorf("%s: no CRD has %s", d.path, m[1])
			}
		}
	}
}
