package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// changedTags are the build tags whose files count as files of their package.
const changedTags = "integration,e2e,long,soak,labbench,chromium"

// contract tests what no package contains: documents, rules, dashboards and manifests.
const contract = "/test/contract"

// changedPackages returns the folders of packages with files that differ from the commit where HEAD
// left the branch base, or that git does not know yet. It compares with HEAD if there is no such
// commit, as in a shallow clone. With importers it adds the packages whose files or tests import one
// of them.
func changedPackages(dir, base string, importers bool) ([]string, error) {
	files, err := changedFiles(dir, base)
	if err != nil {
		return nil, err
	}
	all, err := listPackages(dir, changedTags, []string{"./..."})
	if err != nil {
		return nil, err
	}
	isChanged := map[string]bool{} // by folder
	for _, file := range files {
		isChanged[folderOfPackage(all, filepath.Join(dir, file))] = true
		if importers && filepath.Ext(file) != ".go" {
			isChanged[dir+contract] = true
		}
	}
	var changed, paths []string
	for _, p := range all {
		if isChanged[p.Dir] {
			changed = append(changed, p.ImportPath)
		}
	}
	for _, p := range all {
		imports := slices.Concat(p.Imports, p.TestImports, p.XTestImports)
		if isChanged[p.Dir] || importers && slices.ContainsFunc(changed, func(path string) bool { return slices.Contains(imports, path) }) {
			relative, err := filepath.Rel(dir, p.Dir)
			if err != nil {
				return nil, err
			}
			paths = append(paths, "./"+relative)
		}
	}
	return paths, nil
}

// changedFiles returns the paths, relative to dir, of files that changed since HEAD left base.
func changedFiles(dir, base string) ([]string, error) {
	since, err := git(dir, "merge-base", base, "HEAD")
	if err != nil {
		since = "HEAD"
	}
	known, err := git(dir, "diff", "--name-only", "--relative", strings.TrimSpace(since))
	if err != nil {
		return nil, err
	}
	unknown, err := git(dir, "ls-files", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	return strings.Fields(known + unknown), nil
}

// folderOfPackage returns the nearest folder above the file that has a package, or "". A file in
// testdata belongs to the package above it.
func folderOfPackage(all []listedPackage, file string) string {
	for folder := filepath.Dir(file); folder != filepath.Dir(folder); folder = filepath.Dir(folder) {
		if slices.ContainsFunc(all, func(p listedPackage) bool { return p.Dir == folder }) {
			return folder
		}
	}
	return ""
}

// git returns the output of a git command.
func git(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}
