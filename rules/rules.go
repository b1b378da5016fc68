// Package rules holds Plimsoll's recording rules.
package rules

import (
	"embed"
	"io/fs"
	"regexp"
	"slices"
	"sync"
)

//go:embed recording-*.yaml
var files embed.FS

var record = regexp.MustCompile(`(?m)^ *- record: ([\w:]+)$`)

// Recorded returns the names of the series that the rules record, sorted, without the facts about taint keys
// (plimsoll:tolerated_taint:info), which users add to.
var Recorded = sync.OnceValue(func() (names []string) {
	paths, err := fs.Glob(files, "*.yaml")
	if err != nil {
		panic(err) // the pattern is invalid
	}
	for _, path := range paths {
		text, err := files.ReadFile(path)
		if err != nil {
			panic(err) // a file that the build embedded
		}
		for _, m := range record.FindAllSubmatch(text, -1) {
			names = append(names, string(m[1]))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
})
