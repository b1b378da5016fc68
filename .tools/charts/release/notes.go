package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// writeNotes writes the notes: the section of the changelog, the images and how to verify
// the files.
func (o options) writeNotes(images map[string]image, signed bool) error {
	text, err := os.ReadFile(filepath.Join(o.root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	changes, err := section(string(text), o.chartVersion())
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Plimsoll %s\n\n%s\n\n## Images\n\n", o.version, changes)
	for _, name := range slices.Sorted(maps.Keys(images)) {
		fmt.Fprintf(&b, "- `%s`\n", images[name])
	}
	if !images[requiredImages[0]].hasRegistry() {
		b.WriteString("\nNo registry was set, so manifests and charts name the images by their tag, and no node can pull them. Load the archives of `make images` on each node; with kind, for each name that `kind get clusters` prints: `kind load image-archive FILE --name NAME`.\n")
	}
	b.WriteString("\n## Verification\n\n`sha256sum -c checksums.txt` checks the files. ")
	if signed {
		b.WriteString("`checksums.txt.sig` is the signature of `checksums.txt`:\n\n```sh\n" +
			"base64 -d checksums.txt.sig > signature\nopenssl dgst -sha256 -verify PUBLIC_KEY -signature signature checksums.txt\n```\n")
	} else {
		b.WriteString("This release is not signed.\n")
	}
	return o.write("NOTES.md", []byte(b.String()))
}

// section returns the changelog of a version, or the section Unreleased.
func section(changelog, version string) (string, error) {
	for _, title := range []string{version, "Unreleased"} {
		heading := regexp.MustCompile(`(?m)^## \[v?` + regexp.QuoteMeta(title) + `\].*\n`)
		at := heading.FindStringIndex(changelog)
		if at == nil {
			continue
		}
		text := changelog[at[1]:]
		if end := strings.Index(text, "\n## "); end >= 0 {
			text = text[:end]
		}
		return strings.TrimSpace(text), nil
	}
	return "", fmt.Errorf("CHANGELOG.md has neither a section [%s] nor [Unreleased]", version)
}
