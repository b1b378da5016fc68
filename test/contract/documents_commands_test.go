package contract

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// commandsOf returns the command lines of a document: those of shell blocks, and inline code
// that begins with a program of programChecks.
func commandsOf(d document) []string {
	var all []string
	for _, b := range d.blocks {
		if b.language != "sh" && b.language != "console" {
			continue
		}
		joined := strings.ReplaceAll(b.code, "\\\n", " ")
		for line := range strings.SplitSeq(joined, "\n") {
			line, _, _ = strings.Cut(line, " #")
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				all = append(all, line)
			}
		}
	}
	for _, m := range inlineCode.FindAllStringSubmatch(withoutCode(d.text), -1) {
		first, _, _ := strings.Cut(m[1], " ")
		if programChecks[first] != nil && strings.Contains(m[1], " ") {
			all = append(all, m[1])
		}
	}
	return all
}

var (
	inlineCode  = regexp.MustCompile("`([^`\n]+)`")
	makeTarget  = regexp.MustCompile(`(?m)^([a-z0-9-]+):.*## `)
	makeSetting = regexp.MustCompile(`^([A-Z_]+)=`)
	folderFlag  = regexp.MustCompile(`-k (config\S*)`)
	fileFlag    = regexp.MustCompile(`-f (config\S*)`)
	// logsOfOnePod matches an owner of pods, of which kubectl logs reads one. Its flag --all-pods is newer
	// than the oldest Kubernetes of the hub.
	logsOfOnePod = regexp.MustCompile(`^(deploy(ment)?|ds|daemonset|sts|statefulset|rs|job|svc|service)/`)
)

// programChecks return what is wrong with the arguments of a program.
var programChecks = map[string]func(t *testing.T, args []string) string{
	"make":    checkMake,
	"go":      checkGo,
	"kubectl": checkKubectl,
	"helm":    checkHelm,
}

// Each command of a document names targets, folders and files that exist. The commands of
// kubectl plimsoll are checked by the tests of operator/internal/cli.
func TestCommandsOfDocuments(t *testing.T) {
	checked := map[string]int{}
	for _, d := range readDocuments(t) {
		for _, line := range commandsOf(d) {
			words := strings.Fields(line)
			for len(words) > 1 && makeSetting.MatchString(words[0]) { // variables before the program
				words = words[1:]
			}
			check := programChecks[words[0]]
			if check == nil {
				continue
			}
			checked[words[0]]++
			if problem := check(t, words[1:]); problem != "" {
				t.Errorf("%s: %s: %s", d.path, line, problem)
			}
		}
	}
	for program := range programChecks {
		if checked[program] == 0 {
			t.Errorf("no document has a command of %s", program)
		}
	}
}

func checkMake(t *testing.T, args []string) string {
	text := readFile(t, filepath.Join(root, "Makefile"))
	targets := map[string]bool{}
	for _, m := range makeTarget.FindAllStringSubmatch(text, -1) {
		targets[m[1]] = true
	}
	for _, arg := range args {
		arg = strings.Trim(arg, ",.")
		if strings.HasPrefix(arg, "-") { // an option of make itself
			continue
		}
		if m := makeSetting.FindStringSubmatch(arg); m != nil {
			if !strings.Contains(text, m[1]) && os.Getenv(m[1]) == "" && !slices.Contains([]string{"JOBS", "SOAK", "SEED"}, m[1]) {
				return "the Makefile does not read " + m[1]
			}
			continue
		}
		if !targets[arg] && arg != "help" {
			return "no target " + arg
		}
	}
	return ""
}

func checkGo(_ *testing.T, args []string) string {
	dir := root
	for i, arg := range args {
		if arg == "-C" && i+1 < len(args) {
			dir = filepath.Join(root, args[i+1])
		}
	}
	for _, arg := range args {
		if !strings.HasPrefix(arg, "./") {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, strings.TrimSuffix(arg, "/..."))); err != nil {
			return err.Error()
		}
	}
	return ""
}

func checkKubectl(_ *testing.T, args []string) string {
	line := strings.Join(args, " ")
	if slices.Contains(args, "logs") {
		switch {
		case slices.ContainsFunc(args, logsOfOnePod.MatchString):
			return "prints the log of one replica, chosen by kubectl: name a POD, or all with -l LABEL --prefix --tail=-1"
		case slices.Contains(args, "-l") && !strings.Contains(line, "--prefix --tail="):
			return "prints the last ten lines of each pod, without its name: add --prefix --tail=-1"
		}
	}
	for _, m := range folderFlag.FindAllStringSubmatch(line, -1) {
		if strings.Contains(m[1], "FOLDER") {
			continue
		}
		folder := filepath.Join(root, m[1])
		if _, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder); err != nil {
			return err.Error()
		}
	}
	for _, m := range fileFlag.FindAllStringSubmatch(line, -1) {
		if found, err := filepath.Glob(filepath.Join(root, m[1])); err != nil || len(found) == 0 {
			return "no file " + m[1]
		}
	}
	return ""
}

var chartValue = regexp.MustCompile(`([\w.]+)=`)

// checkHelm checks that the chart exists and has the values of --set.
func checkHelm(t *testing.T, args []string) string {
	var chart string
	for _, arg := range args {
		if name, ok := strings.CutPrefix(arg, "dist/charts/"); ok {
			chart = name
		}
	}
	if chart == "" {
		return ""
	}
	_, values, found := strings.Cut(readFile(t, filepath.Join(root, "config", "charts.md")), "\n## "+chart+"\n")
	if !found {
		return "no chart " + chart
	}
	values, _, _ = strings.Cut(values, "\n## ")
	for i, arg := range args {
		if arg != "--set" || i+1 == len(args) {
			continue
		}
		for _, m := range chartValue.FindAllStringSubmatch(args[i+1], -1) {
			if !strings.Contains(values, "`"+m[1]+"`") {
				return "the chart has no value " + m[1]
			}
		}
	}
	return ""
}

var (
	inlineFlag = regexp.MustCompile("`(?:[a-z][a-z-]* )?--([a-z][a-z0-9.-]+)")
	quotedName = regexp.MustCompile(`"([a-z][a-z0-9.-]+)"`)
)

// flagFolders are the folders that define flags of our programs.
var flagFolders = []string{"operator/cmd", "operator/internal/cli", "exporter/cmd", "exporter/internal", "test/lab", "test/demo", "test/mutants", ".tools/images", ".tools/charts"}

// foreignFlags are flags of other programs that documents name.
var foreignFlags = []string{"server-side", "help", "version", "web.listen-address", "web.config.file", "namespace", "create-namespace", "force-conflicts", "metric-labels-allowlist", "custom-resource-state-config-file"}

// Each flag that a document names is one of our programs', or of kubectl's.
func TestFlagsOfDocuments(t *testing.T) {
	known := map[string]bool{}
	for _, name := range foreignFlags {
		known[name] = true
	}
	for _, folder := range flagFolders {
		for _, file := range goFiles(t, filepath.Join(root, folder)) {
			for _, m := range quotedName.FindAllStringSubmatch(readFile(t, file), -1) {
				known[m[1]] = true
			}
		}
	}
	for _, d := range readDocuments(t) {
		if strings.HasPrefix(d.path, "operator/design/") { // describes other programs too
			continue
		}
		for _, m := range inlineFlag.FindAllStringSubmatch(d.text, -1) {
			isPrefix := strings.HasSuffix(m[1], "-") && slices.ContainsFunc(slices.Collect(maps.Keys(known)), func(name string) bool { return strings.HasPrefix(name, m[1]) })
			if !known[m[1]] && !known[strings.TrimPrefix(m[1], "no-")] && !isPrefix {
				t.Errorf("%s: no program has the flag --%s", d.path, m[1])
			}
		}
	}
}

// goFiles returns the Go files below a folder, without tests.
func goFiles(t *testing.T, folder string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(folder, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %d files, %v", folder, len(files), err)
	}
	return files
}

var (
	metricName = regexp.MustCompile(`(?:^|[^-\w])(plimsoll_[a-z0-9_]+[a-z0-9])\b(\*|_\*)?`)
	alertName  = regexp.MustCompile("`(Plimsoll[A-Z][A-Za-z]+)`")
)

// Each metric of ours that a document names is in METRICS.md, or the source declares it.
// Each alert has a runbook.
func TestMetricsAndAlertsOfDocuments(t *testing.T) {
	known := map[string]bool{}
	for name := range exportedMetrics(t) {
		known[name] = true
	}
	for _, m := range metricName.FindAllStringSubmatch(readFile(t, filepath.Join(root, "exporter", "METRICS.md")), -1) {
		known[m[1]] = true
	}
	for _, folder := range []string{"operator", "exporter"} {
		for _, file := range goFiles(t, filepath.Join(root, folder)) {
			for _, m := range metricName.FindAllStringSubmatch(readFile(t, file), -1) {
				known[m[1]] = true
			}
		}
	}
	for _, file := range findFiles(t, filepath.Join(root, "rules"), ".yaml") { // names of recording rules contain those of metrics
		for _, m := range metricName.FindAllStringSubmatch(readFile(t, file), -1) {
			known[m[1]] = true
		}
	}
	names := slices.Sorted(maps.Keys(known))
	for _, d := range readDocuments(t) {
		if strings.HasPrefix(d.path, "operator/design/") || d.path == "CHANGELOG.md" { // also name what was removed
			continue
		}
		for _, m := range metricName.FindAllStringSubmatch(d.text, -1) {
			isPrefix := m[2] != "" && slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, m[1]) })
			base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(m[1], "_bucket"), "_sum"), "_count")
			if !known[m[1]] && !known[base] && !isPrefix {
				t.Errorf("%s: no component exports %s", d.path, m[0])
			}
		}
		for _, m := range alertName.FindAllStringSubmatch(d.text, -1) {
			if _, err := os.Stat(filepath.Join(root, "rules", "runbooks", m[1]+".md")); err != nil {
				t.Errorf("%s: alert %s: %v", d.path, m[1], err)
			}
		}
	}
}
