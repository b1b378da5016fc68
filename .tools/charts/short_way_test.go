package charts

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	shortWay     = regexp.MustCompile(`(?s)### Short way\n.*?` + "```sh\n(.*?)```")
	chartArchive = regexp.MustCompile(`/(plimsoll[a-z-]*)-\d`)
)

// The short way has the commands that config/README.md counts, and its charts render with
// the files and namespaces in these commands. The README has the same commands.
func TestShortWayOfDocuments(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "config", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := shortWay.FindSubmatch(text)
	if block == nil {
		t.Fatal("config/README.md has no short way")
	}
	commands := strings.Split(strings.TrimSpace(string(block[1])), "\n")
	if len(commands) != 5 || !strings.Contains(string(text), "| commands on the hub, with the first job | 5 |") {
		t.Errorf("%d commands, and the table says another number", len(commands))
	}
	rendered := 0
	for _, command := range commands {
		if !strings.Contains(string(readme), "\n"+command) {
			t.Errorf("README.md does not have: %s", command)
		}
		words := strings.Fields(command)
		if words[0] != "helm" {
			continue
		}
		chart, namespace, values := chartArchive.FindStringSubmatch(command), "", map[string]any{}
		for i, word := range words[:len(words)-1] {
			switch word {
			case "-n":
				namespace = words[i+1]
			case "-f":
				values = readValues(t, filepath.Join(root, words[i+1]))
			}
		}
		if chart == nil || chart[1] != words[2] {
			t.Errorf("the release is not named as its chart: %s", command)
			continue
		}
		if _, err := renderChart(chart[1], namespace, values); err != nil {
			t.Errorf("%s: %v", command, err)
		}
		rendered++
	}
	if rendered != 2 {
		t.Errorf("%d charts", rendered)
	}
}
