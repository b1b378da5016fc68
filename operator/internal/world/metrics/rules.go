package metrics

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"plimsoll.dev/plimsoll/operator/internal/promengine"
)

// Rules are recording rules in the order in which they are evaluated.
type Rules struct{ rules []promengine.Rule }

// ruleFiles are the shipped files. A file reads the series of the files before it.
var ruleFiles = []string{
	"recording-nodes.yaml", "recording-devices.yaml", "recording-shares.yaml", "recording-topology.yaml",
	"recording-owners.yaml", "recording-queues.yaml", "recording-fleet.yaml",
}

// LoadRules reads the recording rules of a folder. Files that are not shipped are the last ones.
func LoadRules(dir string) (*Rules, error) {
	files, err := filepath.Glob(filepath.Join(dir, "recording-*.yaml"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no recording rules", dir)
	}
	slices.SortStableFunc(files, func(a, b string) int { return rank(a) - rank(b) })
	rules := &Rules{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		decoded, err := promengine.DecodeRules(file, content)
		if err != nil {
			return nil, err
		}
		rules.rules = append(rules.rules, decoded...)
	}
	return rules, nil
}

func rank(file string) int {
	if i := slices.Index(ruleFiles, filepath.Base(file)); i >= 0 {
		return i
	}
	return len(ruleFiles)
}
