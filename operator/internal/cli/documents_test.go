package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"plimsoll.dev/plimsoll/operator/internal/cli/command"
)

// documentedCommand is a command of the plugin in a block or in inline code.
var documentedCommand = regexp.MustCompile("(?m)(?:^\\s*|`)(?:kubectl plimsoll|bin/kubectl-plimsoll) ([^#`\n|)]+)")

// Each command of the plugin in a document exists, with its flags. TestReadmeCommands also
// runs those of the README.
func TestCommandsInDocuments(t *testing.T) {
	root, found := "../../..", 0
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && path != root && (strings.HasPrefix(e.Name(), ".") || e.Name() == "dist") {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		joined := strings.ReplaceAll(string(text), "\\\n", " ")
		for _, m := range documentedCommand.FindAllStringSubmatch(joined, -1) {
			found++
			if err := checkCommand(strings.Fields(m[1])); err != nil {
				t.Errorf("%s: kubectl plimsoll %s: %v", path, m[1], err)
			}
		}
		return nil
	})
	if err != nil || found < 20 {
		t.Fatalf("%d commands, %v", found, err)
	}
}

// checkCommand checks the name and the flags of a command without running it.
func checkCommand(args []string) error {
	root := newRoot(&command.App{Flags: genericclioptions.NewConfigFlags(true)})
	cmd, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil && !errors.Is(err, pflag.ErrHelp) {
		return err
	}
	if cmd == root || !cmd.Runnable() && len(cmd.Flags().Args()) > 0 {
		return errors.New("no such command")
	}
	return cmd.ValidateRequiredFlags()
}
